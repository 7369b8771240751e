package grpclimit

import (
	"context"
	"errors"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/internal/middle"
	"github.com/weirlimit/weir/limiter"
)

// Decider decides checks; a *weir.Node is one. A denial is a decision, never an error.
// CheckInto is called from many goroutines and must not keep its arguments.
type Decider interface {
	CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
}

// The methods that rules see.
const (
	// Unary is a call with one request and one response.
	Unary = "UNARY"
	// Stream is the opening of a stream.
	Stream = "STREAM"
	// Message is a message that a server receives on a stream, see [PerMessage].
	Message = "MESSAGE"
)

// Call is the call to decide. It is valid until the function that receives it returns.
type Call struct {
	// Method is the full name, such as /weir.v1.Limiter/Check.
	Method string
	// Kind is [Unary], [Stream] or [Message].
	Kind string
	// Client reports that this process is about to send the call. Metadata is then the
	// outgoing metadata, and there is no peer.
	Client bool
	// Message is the request of a unary call, or the received message; nil for the
	// opening of a stream.
	Message any
}

// Limiter asks a decider about calls and refuses those that are denied. It is safe for
// concurrent use.
type Limiter struct {
	decider    Decider
	core       core
	skip       func(context.Context, *Call) bool
	identify   []func(context.Context, *Call, *limiter.Request)
	cost       func(context.Context, *Call) limiter.Cost
	perMessage bool
	quiet      bool
	onDenied   func(context.Context, *Call, *limiter.Decision) error
	onError    func(context.Context, *Call, error) error
}

// core is what a limiter has in common with those of other protocols.
type core = middle.Core[Extract, func(context.Context, *Call, *Result) middle.Usage,
	func(context.Context, *Call, limiter.Amended, error)]

// New returns a limiter, or an error that joins those of all invalid options.
func New(d Decider, opts ...Option) (*Limiter, error) {
	l := &Limiter{decider: d, core: core{Package: "grpclimit"}}
	var problems []error
	for _, o := range opts {
		if err := o(l); err != nil {
			problems = append(problems, err)
		}
	}
	if err := l.core.Complete(d, "x-forwarded-for", false, problems); err != nil {
		return nil, err
	}
	return l, nil
}

// Check is for use within a server's method: where there is no interceptor, or for an
// additional check, of another message or attribute. It returns nil if the call may
// proceed, otherwise the status error that the method should return. It sets the
// metadata that reports the limits, unless headers have been sent.
func (l *Limiter) Check(ctx context.Context, call *Call) error {
	return l.check(ctx, call, serverHeader(ctx))
}

// check decides a call. setHeader, unless nil, receives the metadata for the caller.
func (l *Limiter) check(ctx context.Context, call *Call, setHeader func(metadata.MD) error) error {
	if l.skip != nil && l.skip(ctx, call) {
		return nil
	}
	c := l.core.Get()
	defer l.core.Release(c)
	_, err := l.decide(ctx, call, setHeader, c)
	return err
}

// decide is check with the memory for it, without Skip. It also reports whether the call was
// decided.
func (l *Limiter) decide(ctx context.Context, call *Call, setHeader func(metadata.MD) error,
	c *middle.Check) (decided bool, _ error) {
	l.fill(ctx, call, &c.Request, c)
	if err := l.decider.CheckInto(ctx, &c.Request, &c.Decision); err != nil {
		l.core.Settling.GivenUp(ctx, &c.Request, err)
		return false, l.failed(ctx, call, err)
	}
	if setHeader != nil && !l.quiet {
		// It fails if headers have been sent already, and then the metadata is dropped.
		if md := metadataOf(c); md != nil {
			_ = setHeader(md)
		}
	}
	switch {
	case c.Decision.Allowed:
		return true, nil
	case l.onDenied != nil:
		return true, l.onDenied(ctx, call, &c.Decision)
	}
	return true, Denial(&c.Decision)
}

// DecideInto asks the decider about a call as Check does, overwrites d with the
// decision, and sets no metadata. The error is the decider's; it wraps limiter.ErrInvalid if the
// call cannot be counted. Skip is not called.
func (l *Limiter) DecideInto(ctx context.Context, call *Call, d *limiter.Decision) error {
	c := l.core.Get()
	defer l.core.Release(c)
	l.fill(ctx, call, &c.Request, c)
	return l.decider.CheckInto(ctx, &c.Request, d)
}

// failed returns the error for a call that could not be decided, or nil if it may
// proceed all the same.
func (l *Limiter) failed(ctx context.Context, call *Call, err error) error {
	err = l.core.Blame(err)
	switch {
	case l.onError != nil:
		return l.onError(ctx, call, err)
	case errors.Is(err, limiter.ErrInvalid):
		return status.Error(codes.InvalidArgument,
			"the call cannot be counted against its limits: what names its sender is not valid or too long, or something is "+
				"missing from it")
	case errors.Is(err, limiter.ErrScope):
		return status.Error(codes.PermissionDenied, "a rule that matches the call is not one that the service may use")
	case errors.Is(err, limiter.ErrBudget):
		return overBudget(front.RetryAfter(err))
	case errors.Is(err, limiter.ErrSettled):
		return status.Error(codes.FailedPrecondition, "the id of the call is that of another one, which is over")
	case ctx.Err() != nil:
		// This also applies with FailOpen: callers must not pass by cancelling a call
		// before it is counted.
		return status.FromContextError(ctx.Err()).Err()
	case l.core.FailOpen:
		return nil
	}
	return status.Error(codes.Unavailable, unavailable)
}

const unavailable = "the limits cannot be looked up now, and without them nothing is let through"

// fill fills in the request for the decider.
func (l *Limiter) fill(ctx context.Context, call *Call, q *limiter.Request, c *middle.Check) {
	q.Rule, q.Path, q.Method = l.core.Rule, call.Method, call.Kind
	if !call.Client {
		q.IP = l.core.Addresses.Text(l.client(ctx))
	}
	for _, from := range l.identify {
		from(ctx, call, q)
	}
	l.core.SetAttributes(c, func(read Extract) string { return read(ctx, call) })
	if l.cost != nil {
		q.Cost = l.cost(ctx, call)
	}
}

// metadataOf returns the limits of the decision as metadata, nil if there are none.
func metadataOf(c *middle.Check) metadata.MD {
	seconds, wait := front.RetryAfterSeconds(&c.Decision)
	c.Limits = front.Limits(c.Limits[:0], &c.Decision)
	if len(c.Limits) == 0 && !wait {
		return nil
	}
	md := make(metadata.MD, 3)
	if len(c.Limits) > 0 {
		var policy int
		c.Text, policy = front.AppendLists(c.Text[:0], c.Limits)
		text := string(c.Text)
		values := [2]string{text[:policy], text[policy:]}
		md["ratelimit-policy"], md["ratelimit"] = values[:1:1], values[1:]
	}
	if wait {
		md["retry-after"] = []string{strconv.FormatInt(seconds, 10)}
	}
	return md
}
