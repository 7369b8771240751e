package grpclimit

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/internal/middle"
	"github.com/weirlimit/weir/limiter"
)

// Settler is a [Decider] with reservations; a *weir.Node and a *client.Client are ones.
type Settler interface {
	Decider
	// Settle ends the reservation of the request's id, which has used actual units. It must not
	// keep the request.
	Settle(ctx context.Context, r limiter.Request, actual int64, opts ...limiter.SettleOption) (limiter.Amended, error)
}

// Result is how a call ended.
type Result struct {
	// Last is the last message that the method has sent, which is the response of a unary call.
	// It is nil if there is none, and must not be changed.
	Last any
	// Sent is the number of messages that the method has sent.
	Sent int64
	// Err is the error that the method has returned. If it has returned none, Err is the error of
	// the call's context, such as [context.Canceled] if the caller hung up.
	Err error
	// Panicked reports that the method panicked.
	Panicked bool
}

// Settle turns each call that the interceptors of a server pass on into a reservation. First the
// call is charged an estimate: what [CostFunc] or the rule says. When the method has ended, in any
// way, used returns the units that it has used. If the estimate was too high, the rest is given
// back. If it was too low, the rest is charged, also beyond the limit. limiter.Units(0) cancels
// the reservation, for instance if the method failed or the caller hung up. The zero Cost leaves
// it unsettled, and the rule decides when the hold ends (on_expiry). The status of the call waits
// for the settlement, 5 s at most.
//
// hold should be longer than any call takes, since a settlement after it is charged in full.
// The decider must be a [Settler], and nodes must allow refunds. Rules with "any" reserve nothing: their calls are
// treated as while the decider fails, and a warning is logged (log/slog) once a minute. Checks by other methods, by the
// interceptors of clients, and of single messages ([PerMessage]) are not reservations. A call that
// could not be decided, but proceeds, is not settled. It may have been reserved all the same, so it is cancelled,
// in the background unless its context has ended, and used is not called. If used panics, the estimate counts as
// used.
func Settle(hold time.Duration, used func(context.Context, *Call, *Result) limiter.Cost) Option {
	return func(l *Limiter) error {
		if used == nil {
			return l.core.NeedsFunction("Settle")
		}
		return l.core.Settle(hold, false, func(ctx context.Context, call *Call, out *Result) middle.Usage {
			return middle.Usage{Units: used(ctx, call, out)}
		})
	}
}

// SettleBy is [Settle] for reservations of different units, such as tokens and micro-dollars: used returns what the
// call has used by the attributes from which its rules take their costs, as for limiter.Actual. An empty map cancels
// the reservation. nil leaves it unsettled, and so does a panic of used.
func SettleBy(hold time.Duration, used func(context.Context, *Call, *Result) map[string]int64) Option {
	return func(l *Limiter) error {
		if used == nil {
			return l.core.NeedsFunction("SettleBy")
		}
		return l.core.Settle(hold, true, func(ctx context.Context, call *Call, out *Result) middle.Usage {
			return middle.UsedBy(used(ctx, call, out))
		})
	}
}

// OnSettled is called after each settlement, with what was done or why it failed. After an
// error that wraps limiter.ErrInvalid, or limiter.ErrSettled, nothing has changed. Any other
// leaves the estimate charged until the hold is over. It needs [Settle].
func OnSettled(f func(context.Context, *Call, limiter.Amended, error)) Option {
	return func(l *Limiter) error { return l.core.OnSettled(f, f != nil) }
}

// serve decides a call of a server, has next serve it if it may proceed, and settles it if there
// are settlements. next fills in the result.
func (l *Limiter) serve(ctx context.Context, call *Call, setHeader func(metadata.MD) error,
	next func(*Result) error) error {
	if l.skip != nil && l.skip(ctx, call) {
		return next(new(Result))
	}
	c := l.core.Get()
	defer l.core.Release(c)
	if l.core.Settling != nil {
		l.core.Settling.Reserve(&c.Request)
	}
	decided, err := l.decide(ctx, call, setHeader, c)
	if err != nil {
		return err
	}
	out := new(Result)
	if l.core.Settling == nil || !decided || !c.Decision.Allowed || c.Decision.Len() == 0 { // nothing was reserved
		return next(out)
	}
	out.Panicked = true
	defer func() { l.settled(ctx, call, c, out) }() // and a panic goes on
	err = next(out)
	out.Panicked, out.Err = false, err
	return err
}

// settled settles a call whose method has ended.
func (l *Limiter) settled(ctx context.Context, call *Call, c *middle.Check, out *Result) {
	if out.Err == nil {
		out.Err = ctx.Err()
	}
	settling := l.core.Settling
	settling.Finish(ctx, c, func() middle.Usage { return settling.Used(ctx, call, out) },
		func(done limiter.Amended, err error) {
			if settling.Told != nil {
				settling.Told(ctx, call, done, err)
			}
		})
}

// sending is a stream that sees what its method sends. A goroutine may send still when the
// method has returned.
type sending struct {
	grpc.ServerStream
	mu   sync.Mutex
	last any
	sent int64
}

// report fills in what was sent until now.
func (s *sending) report(out *Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Last, out.Sent = s.last, s.sent
}

func (s *sending) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last = m
		s.sent++
	}
	return err
}
