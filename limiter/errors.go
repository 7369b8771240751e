package limiter

import "errors"

// ErrInvalid is wrapped by every error that the caller must correct: an invalid limit,
// a cost out of range, a key that is too long. Nothing was decided or counted.
var ErrInvalid = errors.New("invalid")

// ErrUnanswered is wrapped if no member that holds a key answered in time. The error
// states whether the operation may have been carried out.
var ErrUnanswered = errors.New("nobody who holds the keys has answered")

// ErrForbidden is wrapped if a member that holds a key refuses an operation that its
// operator has not allowed. Nothing was done for that key.
var ErrForbidden = errors.New("whoever holds the keys does not allow it")

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
