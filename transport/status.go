package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/limiter"
)

// Requests that the operator has not allowed. The texts name the flags of the node
// program that allow them.
var (
	errRequestLimits = errors.New("limits that come with a request are not allowed here: the operator must start the node with --allow-request-limits")
	errReset         = errors.New("resets are not allowed here: the operator must start the node with --allow-reset")
	errRefunds       = errors.New("receipts, refunds and reservations are not allowed here: the operator must start the node with --allow-refunds")
	errStopping      = errors.New("the node is stopping: ask another one, or again in a moment")
)

// internalError is the error of a request that panicked, or whose reply cannot be
// encoded. It is not known whether it was decided.
type internalError struct{ error }

// codeOf returns the status code for an error of the decider or of this package.
func codeOf(err error) codes.Code {
	switch {
	case err == nil:
		return codes.OK
	case errors.Is(err, ErrUnauthenticated):
		return codes.Unauthenticated
	case errors.As(err, &internalError{}):
		return codes.Internal
	case errors.Is(err, limiter.ErrInvalid):
		return codes.InvalidArgument
	case errors.Is(err, errRequestLimits), errors.Is(err, errReset), errors.Is(err, errRefunds), errors.Is(err, errRing), errors.Is(err, limiter.ErrForbidden):
		return codes.PermissionDenied
	case errors.Is(err, limiter.ErrSettled), errors.Is(err, limiter.ErrRaised), errors.Is(err, limiter.ErrCosts):
		return codes.FailedPrecondition
	case lacksRoom(err), errors.Is(err, ErrBudget), errors.Is(err, limiter.ErrNoRoom):
		return codes.ResourceExhausted
	case errors.Is(err, errUnexplained):
		return codes.Unimplemented
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, limiter.ErrUnanswered):
		return codes.DeadlineExceeded
	default:
		// Nothing was decided and the client is not at fault, so it may ask another
		// node.
		return codes.Unavailable
	}
}

// errUndecodable is wrapped by the error of a message that cannot be decoded.
var errUndecodable = errors.New("the message cannot be decoded")

// undecodable returns such an error, nil for nil.
func undecodable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w: %w", limiter.ErrInvalid, errUndecodable, err)
}

// statusOf turns an error into a status, nil into nil.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	s := status.New(codeOf(err), err.Error())
	if wait := retryAfter(err); wait > 0 {
		if told, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
			s = told
		}
	}
	out := s.Err()
	if why := AuditText(err); why != err.Error() {
		return &auditedError{out, why}
	}
	return out
}

// retryAfter returns how long to wait before a request that was refused with this error may
// be repeated; 0 if that is not known, or no wait helps.
func retryAfter(err error) time.Duration {
	if lacksRoom(err) {
		return retryRoom
	}
	var later interface{ RetryAfter() time.Duration }
	if errors.As(err, &later) {
		return later.RetryAfter()
	}
	return 0
}

// invalid returns an error that wraps ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{limiter.ErrInvalid}, args...)...)
}
