package grpclimit

import (
	"net/http"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/limiter"
)

// The contents of ErrorInfo in a denial.
const (
	// Reason is the reason of every denial.
	Reason = "RATE_LIMITED"
	// Domain is the domain of Reason.
	Domain = "weir"
)

// Denial returns the status error of a denied decision, as the interceptors return it.
func Denial(d *limiter.Decision) error {
	code := codes.ResourceExhausted
	switch front.StatusOf(d) {
	case http.StatusServiceUnavailable:
		code = codes.Unavailable
	case http.StatusUnauthorized:
		code = codes.Unauthenticated
	case http.StatusTooManyRequests:
	default: // by a rule that denies each request
		code = codes.PermissionDenied
	}
	info := &errdetails.ErrorInfo{Reason: Reason, Domain: Domain, Metadata: map[string]string{"rule": d.Rule}}
	if b := d.BlockedBy(); b != nil {
		info.Metadata["rule"], info.Metadata["limit"] = b.Rule.Name, b.Limit.Name()
	}
	if d.Never {
		info.Metadata["never"] = "true"
	}
	details := []protoadapt.MessageV1{info}
	if denying := front.Denying(d); len(denying) > 0 {
		f := &errdetails.QuotaFailure{}
		for _, l := range denying {
			f.Violations = append(f.Violations, &errdetails.QuotaFailure_Violation{
				Subject: l.FullName(), QuotaId: l.FullName(), Description: front.Rate(l.Limit) + " is exceeded",
			})
		}
		details = append(details, f)
	}
	if !d.Never {
		// In milliseconds, rounded up: never too short, and as exact as a client's
		// timer.
		wait := time.Duration(max(1, limiter.Millis(d.RetryAfter))) * time.Millisecond
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	plain := status.New(code, front.Why(d))
	if s, err := plain.WithDetails(details...); err == nil {
		return s.Err()
	}
	return plain.Err() // adding details fails only if names are not UTF-8
}

// overBudget returns the error for a call of a service that asks more than it may. It has RetryInfo if a wait is
// known.
func overBudget(wait time.Duration) error {
	plain := status.New(codes.ResourceExhausted, "the service asks more about limits than it may: call again later")
	if wait > 0 {
		if s, err := plain.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
			return s.Err()
		}
	}
	return plain.Err()
}
