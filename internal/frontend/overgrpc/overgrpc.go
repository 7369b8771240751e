// Package overgrpc is what protocols over gRPC share: what a caller has shown, and errors as statuses.
package overgrpc

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
)

// Authorization is the metadata that a caller shows itself with. HTTP/2 has no capital
// letters in names.
const Authorization = "authorization"

// Shower is the address of a peer that knows what its caller has shown, where nothing need be copied. known is
// false if it does not know.
type Shower interface {
	net.Addr
	Shown(ctx context.Context) (c frontend.Credentials, known bool)
}

// Credentials returns what the caller of a gRPC call has shown.
func Credentials(ctx context.Context) frontend.Credentials {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return frontend.Credentials{Authorization: metadata.ValueFromIncomingContext(ctx, Authorization)}
	}
	if a, ok := p.Addr.(Shower); ok {
		if c, known := a.Shown(ctx); known {
			return c
		}
	}
	c := frontend.Credentials{Authorization: metadata.ValueFromIncomingContext(ctx, Authorization)}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
		c.TLS = &info.State
	}
	return c
}

// From returns the address of the caller of a gRPC call, nil if it is not known.
func From(ctx context.Context) fmt.Stringer {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr
	}
	return nil
}

// Code returns the status code for an error of a decider or of a session. An error may have one of its
// own, as the result of a method GRPCCode.
func Code(err error) codes.Code {
	var own interface{ GRPCCode() codes.Code }
	switch {
	case err == nil:
		return codes.OK
	case errors.Is(err, frontend.ErrUnauthenticated):
		return codes.Unauthenticated
	case errors.As(err, &own):
		return own.GRPCCode()
	case errors.Is(err, limiter.ErrInvalid):
		return codes.InvalidArgument
	case errors.Is(err, limiter.ErrForbidden):
		return codes.PermissionDenied
	case errors.Is(err, limiter.ErrSettled), errors.Is(err, limiter.ErrRaised), errors.Is(err, limiter.ErrCosts):
		return codes.FailedPrecondition
	case errors.Is(err, frontend.ErrBudget), errors.Is(err, limiter.ErrNoRoom):
		return codes.ResourceExhausted
	case errors.Is(err, frontend.ErrUnexplained):
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

// Status turns an error into a status, nil into nil. If the time to wait is known, the status has it as RetryInfo.
func Status(err error) error {
	if err == nil {
		return nil
	}
	s := status.New(Code(err), err.Error())
	if wait := front.RetryAfter(err); wait > 0 {
		if told, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
			s = told
		}
	}
	out := s.Err()
	if why := frontend.AuditText(err); why != err.Error() {
		return &auditedError{out, why}
	}
	return out
}

// auditedError is a status for a caller, with what the audit is told in its place.
type auditedError struct {
	error // of package status
	why   string
}

// AuditText is for [frontend.AuditText].
func (e *auditedError) AuditText() string { return e.why }

// GRPCStatus is for package status.
func (e *auditedError) GRPCStatus() *status.Status { return status.Convert(e.error) }
