package frontend

import (
	"context"

	"github.com/weirlimit/weir/limiter"
)

// Config is what the server of any protocol is given. Only Decider is required.
type Config struct {
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
	// Denials, if not nil, receives denials.
	Denials DenialRecorder
}

// DenialRecorder receives each denial of a check that was no peek, with the protocol that it came over. It is called
// from many goroutines, must not wait, and must not keep its arguments.
type DenialRecorder interface {
	Denied(over string, r *limiter.Request, d *limiter.Decision)
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

// Reserves reports whether the decider has reservations.
func (f *Frontend) Reserves() bool { return f.reserver != nil }

// Receipt returns the receipt of a decision, empty if there is none.
func (f *Frontend) Receipt(r *limiter.Request, d *limiter.Decision) string {
	if f.Allows(ActionRefund) != nil {
		return ""
	}
	return f.refunder.SealReceipt(r, d).Sealed()
}

// Trace begins the span of a request, see [Tracer]. If the request is not traced, end is nil and the context is ctx.
func (f *Frontend) Trace(ctx context.Context, method, parent, state string) (_ context.Context, traceparent string,
	end func(code string)) {
	if f.Tracer == nil {
		return ctx, "", nil
	}
	return f.Tracer.Serve(ctx, method, parent, state)
}

// Allows returns why the configuration does not allow an action, whoever asks; nil if it does, or if an Access decides.
func (f *Frontend) Allows(a Action) error {
	allowed := true
	switch a {
	case ActionLimits:
		allowed = f.AllowRequestLimits || f.Access != nil
	case ActionReset:
		allowed = f.AllowReset || f.Access != nil
	case ActionRefund:
		allowed = f.refunder != nil && (f.AllowRefunds || f.Access != nil)
	}
	if allowed {
		return nil
	}
	return f.notAllowed(a)
}

// notAllowed returns the refusal of an action. It names the flag of the node program that allows it.
func (f *Frontend) notAllowed(a Action) error {
	what, flag := f.Limits, "--allow-request-limits"
	switch a {
	case ActionReset:
		what, flag = f.Resets, "--allow-reset"
	case ActionRefund:
		what, flag = f.Refunds, "--allow-refunds"
	}
	return ForbiddenError(what + " not allowed here: the operator must start the node with " + flag)
}

func (f *Frontend) admit(r *limiter.Request, a Action) error {
	if len(r.Limits) > 0 {
		if err := f.Allows(ActionLimits); err != nil {
			return err
		}
	}
	err := f.Allows(a)
	if err == nil && r.Hold != 0 && a != ActionLease {
		err = f.Allows(ActionRefund)
	}
	return err
}
