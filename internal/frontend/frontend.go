package frontend

import (
	"context"
	"fmt"

	"github.com/weirlimit/weir/limiter"
)

// Decider decides requests: a node. It may also be a [BatchPeeker], an [Explainer], a [Refunder] and a [Reserver].
// Its methods are called from many goroutines.
type Decider interface {
	Checker
	// PeekInto returns what CheckInto would answer, and charges nothing.
	PeekInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
	// CheckBatchInto decides requests in order, at one instant.
	CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error
	// Reset deletes the counters of a request and returns how many there were.
	Reset(ctx context.Context, r limiter.Request) (int, error)
}

// BatchPeeker decides the peeks of a batch together with its checks. Without it the requests of a batch
// with peeks are decided one after the other.
type BatchPeeker interface {
	// PeekBatchInto only peeks request i if peeks[i] is true. If peeks is nil, it peeks all.
	PeekBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision, peeks []bool) error
}

// Explainer explains what a check would answer.
type Explainer interface {
	Explain(ctx context.Context, r limiter.Request) (*limiter.Explanation, error)
}

// Refunder gives receipts to clients, and takes charges back.
type Refunder interface {
	// SealReceipt returns the receipt of a decision with Sealed set, empty if there is none.
	SealReceipt(r *limiter.Request, d *limiter.Decision) limiter.Receipt
	// Refund takes back the charge that a receipt names.
	Refund(ctx context.Context, r limiter.Request, rc limiter.Receipt) error
}

// Reserver ends and extends reservations.
type Reserver interface {
	// Settle ends the reservation with the request's id: the request has used actual units. If
	// the id is not known, they are charged, unless an option says otherwise.
	Settle(ctx context.Context, r limiter.Request, actual int64, opts ...limiter.SettleOption) (limiter.Amended, error)
	// Extend lets the reservation last for the request's Hold from now on.
	Extend(ctx context.Context, r limiter.Request) (limiter.Amended, error)
}

// Config is what the server of any protocol is given. Only Decider is required.
type Config struct {
	// Decider decides.
	Decider Decider
	// Access, if not nil, identifies callers, and decides in place of AllowRequestLimits,
	// AllowReset and AllowRefunds.
	Access Access
	// AllowRequestLimits allows limits that come with requests, AllowReset resets, and
	// AllowRefunds refunds and reservations.
	AllowRequestLimits, AllowReset, AllowRefunds bool
	// Audit, if not nil, is told of resets and refunds, and of what callers may not do.
	Audit Auditor
	// Tracer, if not nil, traces requests.
	Tracer Tracer
}

// Protocol is what a protocol calls itself, and what it calls that which a Config may not allow.
type Protocol struct {
	// Over names it in the audit.
	Over string
	// Limits, Resets and Refunds begin the texts of refusals, such as "resets are".
	Limits, Resets, Refunds string
}

// Frontend is what the sessions of one protocol share. It is safe for concurrent use.
type Frontend struct {
	Config
	Protocol
	peeker    BatchPeeker // nil: batches with peeks are not decided together
	explainer Explainer   // nil: nothing is explained
	refunder  Refunder    // nil: there are no refunds
	reserver  Reserver    // nil: there are no reservations
}

// New returns a frontend.
func New(c Config, p Protocol) *Frontend {
	f := &Frontend{Config: c, Protocol: p}
	f.peeker, _ = c.Decider.(BatchPeeker)
	f.explainer, _ = c.Decider.(Explainer)
	f.refunder, _ = c.Decider.(Refunder)
	f.reserver, _ = c.Decider.(Reserver)
	return f
}

// Identify begins the session of a caller at an address, which may be nil. After an error the session has no
// caller, and is only for the audit.
func (f *Frontend) Identify(from fmt.Stringer, c Credentials) (s Session, err error) {
	s.of, s.from = f, from
	if f.Access == nil {
		return s, nil
	}
	if s.caller, err = f.Access.Identify(c); err != nil {
		s.caller = nil
	}
	return s, err
}

// Anyone begins a session without a caller, which may do everything that the configuration allows.
func (f *Frontend) Anyone(from fmt.Stringer) Session { return Session{of: f, from: from} }

// Reserves reports whether the decider has reservations.
func (f *Frontend) Reserves() bool { return f.reserver != nil }

// Receipt returns the receipt of a decision, empty if there is none.
func (f *Frontend) Receipt(r *limiter.Request, d *limiter.Decision) string {
	if f.Allows(ActionRefund) != nil {
		return ""
	}
	return f.refunder.SealReceipt(r, d).Sealed
}

// Trace begins the span of a request, see [Tracer]. If the request is not traced, end is nil and the context is ctx.
func (f *Frontend) Trace(ctx context.Context, method, parent, state string) (_ context.Context, traceparent string, end func(code string)) {
	if f.Tracer == nil {
		return ctx, "", nil
	}
	return f.Tracer.Serve(ctx, method, parent, state)
}
