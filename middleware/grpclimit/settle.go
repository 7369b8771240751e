package grpclimit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/internal/unanswered"
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

// settleWithin bounds a settlement. The status of the call waits for it.
const settleWithin = 5 * time.Second

// settling is what [Settle] sets.
type settling struct {
	hold    time.Duration
	settler Settler
	used    func(context.Context, *Call, *Result) usage
	named   bool // usage is by attribute
	cancels *unanswered.Cancels
	told    func(context.Context, *Call, limiter.Amended, error) // nil: nobody
}

// usage is what a call has used: of everything, or by attribute. The zero value leaves it unsettled.
type usage struct {
	units limiter.Cost
	named map[string]int64
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
// The decider must be a [Settler], and nodes must allow refunds. Checks by other methods, by the
// interceptors of clients, and of single messages ([PerMessage]) are not reservations. A call that
// could not be decided, but proceeds, is not settled. It may have been reserved all the same, so it is cancelled,
// in the background unless its context has ended, and used is not called. If used panics, the estimate counts as
// used.
func Settle(hold time.Duration, used func(context.Context, *Call, *Result) limiter.Cost) Option {
	return func(l *Limiter) error {
		if used == nil {
			return isNil("Settle")
		}
		if hold < limiter.MinHold || hold > limiter.MaxHold {
			return fmt.Errorf("grpclimit: Settle with a hold of %v is out of range: give %v to %v", hold, limiter.MinHold,
				limiter.MaxHold)
		}
		s := l.settling()
		s.hold, s.named = hold, false
		s.used = func(ctx context.Context, call *Call, out *Result) usage { return usage{units: used(ctx, call, out)} }
		return nil
	}
}

// SettleBy is [Settle] for reservations of different units, such as tokens and micro-dollars: used returns what the
// call has used by the attributes from which its rules take their costs, as for limiter.Actual. An empty map cancels
// the reservation. nil leaves it unsettled, and so does a panic of used.
func SettleBy(hold time.Duration, used func(context.Context, *Call, *Result) map[string]int64) Option {
	return func(l *Limiter) error {
		if used == nil {
			return isNil("SettleBy")
		}
		if err := Settle(hold, func(context.Context, *Call, *Result) (none limiter.Cost) { return none })(l); err != nil {
			return err
		}
		l.settle.named = true
		l.settle.used = func(ctx context.Context, call *Call, out *Result) usage {
			named := used(ctx, call, out)
			if named != nil && len(named) == 0 {
				return usage{units: limiter.Units(0)}
			}
			return usage{named: named}
		}
		return nil
	}
}

// OnSettled is called after each settlement, with what was done or why it failed. After an
// error that wraps limiter.ErrInvalid, or limiter.ErrSettled, nothing has changed. Any other
// leaves the estimate charged until the hold is over. It needs [Settle].
func OnSettled(f func(context.Context, *Call, limiter.Amended, error)) Option {
	return func(l *Limiter) error {
		if f == nil {
			return isNil("OnSettled")
		}
		l.settling().told = f
		return nil
	}
}

func (l *Limiter) settling() *settling {
	if l.settle == nil {
		l.settle = new(settling)
	}
	return l.settle
}

// checkSettle completes the options of settlements, and returns why they do not fit.
func (l *Limiter) checkSettle() error {
	if l.settle == nil {
		return nil
	}
	var can bool
	l.settle.settler, can = l.decider.(Settler)
	if can {
		l.settle.cancels = unanswered.NewCancels(l.settle.settler.Settle)
	}
	switch {
	case l.settle.used == nil:
		return errors.New("grpclimit: OnSettled needs Settle")
	case !can && l.decider != nil:
		return errors.New("grpclimit: Settle needs a decider with reservations: pass a *weir.Node or a *client.Client")
	}
	return nil
}

// serve decides a call of a server, has next serve it if it may proceed, and settles it if there
// are settlements. next fills in the result.
func (l *Limiter) serve(ctx context.Context, call *Call, setHeader func(metadata.MD) error,
	next func(*Result) error) error {
	if l.skip != nil && l.skip(ctx, call) {
		return next(new(Result))
	}
	c := l.pool.Get().(*check)
	defer l.release(c)
	if l.settle != nil {
		c.request.ID, c.request.Hold = rand.Text(), l.settle.hold
	}
	decided, err := l.decide(ctx, call, setHeader, c)
	if err != nil {
		return err
	}
	out := new(Result)
	if l.settle == nil || !decided || !c.decision.Allowed || c.decision.Len() == 0 { // nothing was reserved
		return next(out)
	}
	out.Panicked = true
	defer func() { l.settled(ctx, call, c, out) }() // and a panic goes on
	err = next(out)
	out.Panicked, out.Err = false, err
	return err
}

// settled settles a call whose method has ended.
func (l *Limiter) settled(ctx context.Context, call *Call, c *check, out *Result) {
	if out.Err == nil {
		out.Err = ctx.Err()
	}
	used := usage{units: limiter.Units(front.Estimate(&c.decision))} // stays if the function panics, which goes on
	if l.settle.named {
		used = usage{} // one number settles nothing
	}
	defer func() { l.finish(ctx, call, &c.request, used) }()
	used = l.settle.used(ctx, call, out)
}

// finish settles a call with what it has used, if that is given, and tells of it.
func (l *Limiter) finish(ctx context.Context, call *Call, q *limiter.Request, used usage) {
	if !used.units.Given() && used.named == nil {
		return
	}
	actual, err := used.units.Value(0)
	var done limiter.Amended
	if err == nil {
		done, err = l.end(ctx, q, int64(actual), used.named)
	}
	if l.settle.told != nil {
		l.settle.told(ctx, call, done, err)
	}
}

// end settles a call. A caller that has hung up must not keep its estimate, so the end of ctx does
// not end the settlement.
func (l *Limiter) end(ctx context.Context, q *limiter.Request, actual int64,
	named map[string]int64) (limiter.Amended, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	var opts []limiter.SettleOption
	switch {
	case named != nil:
		opts = append(opts, limiter.Actual(named))
	case actual == 0:
		opts = append(opts, limiter.IgnoreUnknown())
	}
	return l.settle.settler.Settle(ctx, *q, actual, opts...)
}

// givenUp cancels the reservation of a call that was not decided since its context, or the decider's
// time, had ended: it may have been reserved all the same.
func (l *Limiter) givenUp(ctx context.Context, q *limiter.Request, err error) {
	switch {
	case q.Hold == 0 || front.OfRequest(err) || errors.Is(err, limiter.ErrForbidden): // nothing was reserved
	case ctx.Err() != nil:
		_, _ = l.end(ctx, q, 0, nil) // if it fails, the hold ends by itself
	default: // a client has errors of its own
		l.settle.cancels.Begin(ctx, q)
	}
}

// sending is a stream that sees what its method sends.
type sending struct {
	grpc.ServerStream
	result *Result
}

// SendMsg sends a message.
func (s *sending) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.result.Last = m
		s.result.Sent++
	}
	return err
}
