package limiter

import (
	"errors"
	"fmt"
)

// ErrInvalid is wrapped by every error that the caller must correct: an invalid limit,
// a cost out of range, a key that is too long. Nothing was decided or counted.
var ErrInvalid = errors.New("invalid")

// ErrWait is wrapped by the error of a Wait that gives up: the check can never be allowed,
// or not before the deadline of the context.
var ErrWait = errors.New("no wait helps")

// ErrUnanswered is wrapped if no member that holds a key answered in time. The error
// states whether the operation may have been carried out.
var ErrUnanswered = errors.New("no member that holds the keys answered")

// ErrForbidden is wrapped if a member that holds a key refuses an operation that its
// operator has not allowed. Nothing was done for that key.
var ErrForbidden = errors.New("the member that holds the keys does not allow this")

// ErrScope is wrapped if a rule that a request matches is not one that its caller may use: see [Request.Scope].
// Which rules match is up to whoever sends the request, so a service that lets requests pass while it has no
// answer must not let this one pass.
var ErrScope = errors.New("a rule that matches the request is not one that the caller may use")

// ErrBudget is wrapped if a caller has used up its budget at a node, or its client has as many checks under way as it
// may have. That may be the doing of those who send the requests, as that of ErrScope. The error may have a method
// RetryAfter that returns a time.Duration.
var ErrBudget = errors.New("the caller's budget is exceeded")

// ErrNoID is wrapped if a rule with "any" decides a check with an ID, or with a Hold. It wraps [ErrInvalid].
// Whoever gives ids to all requests of that rule has caused it, such as a middleware that reserves, and not their
// senders.
var ErrNoID = fmt.Errorf("%w: a check by a rule with \"any\" takes no id", ErrInvalid)

// ErrSettled is wrapped if a reservation was settled before with another number, kept when it
// expired, or never was one. Nothing was done. It is also wrapped if a check that a limit on
// concurrency concerns has the id of a reservation that is over.
var ErrSettled = errors.New("the request is settled")

// ErrRaised is wrapped if the estimate of a reservation was raised as often as it may be. Nothing was
// done: the reservation stands, and can be extended without a higher estimate, and settled.
var ErrRaised = errors.New("the estimate was raised too often")

// ErrCosts is wrapped if a reservation is settled with one number above 0, and its rules have reserved
// different ones. Nothing was done.
var ErrCosts = errors.New("the costs differ")

// ErrNoRoom is wrapped if a settlement or an extension finds no room in a table for what it would
// charge. Nothing was done.
var ErrNoRoom = errors.New("there is no room")

// Why a member of a cluster is not ready. The errors of readiness wrap these.
var (
	// ErrJoining: it is not in the cluster yet. Ask another member.
	ErrJoining = errors.New("the node is joining")
	// ErrSettling: it does not hold all the counters yet that it should hold. It takes
	// checks.
	ErrSettling = errors.New("partitions are not settled")
	// ErrLeaving: it is handing over its counters. It takes checks until it stops.
	ErrLeaving = errors.New("the node is leaving")
)

// BatchError is the error of a batch of which some requests could not be decided. The
// others were.
type BatchError struct {
	// Index lists the failed requests, ascending; Errs has the error of each.
	Index []int
	Errs  []error
}

// Error returns the first error and the number of further ones.
func (e *BatchError) Error() string {
	if len(e.Index) == 0 || len(e.Errs) == 0 {
		return "a batch without errors"
	}
	text := fmt.Sprintf("request %d of the batch: %v", e.Index[0], e.Errs[0])
	if more := len(e.Errs) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// Unwrap returns the errors of the failed requests.
func (e *BatchError) Unwrap() []error { return e.Errs }
