package middle

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/limiter"
)

// Settler settles reservations; a *weir.Node and a *client.Client are ones.
type Settler interface {
	Settle(ctx context.Context, r limiter.Request, actual int64, opts ...limiter.SettleOption) (limiter.Amended, error)
}

// settleWithin bounds a settlement, for which the end of an answer waits.
const settleWithin = 5 * time.Second

// Settling makes reservations of what is checked, and settles them.
type Settling[Used, Told any] struct {
	// Hold is how long a reservation lasts.
	Hold time.Duration
	// Used says what something has used, and Told learns of settlements: nil if nobody does.
	Used Used
	Told Told

	settler Settler
	cancels *Cancels
	named   bool // what is used is by attribute
}

// Usage is what something has used: of everything, or by attribute. The zero value leaves it unsettled.
type Usage struct {
	Units limiter.Cost
	Named map[string]int64
}

// UsedBy returns what was used by attribute. An empty map cancels the reservation.
func UsedBy(named map[string]int64) Usage {
	if named != nil && len(named) == 0 {
		return Usage{Units: limiter.Units(0)}
	}
	return Usage{Named: named}
}

// Reserve makes a request a reservation with an id of its own.
func (s *Settling[Used, Told]) Reserve(q *limiter.Request) { q.ID, q.Hold = rand.Text(), s.Hold }

// Finish settles what was reserved and is over with what used returns, and tells of it. If that is not given, it stays
// as it is. If used panics, which goes on, the estimate counts as used, unless what is used is by attribute: one number
// settles nothing then.
func (s *Settling[Used, Told]) Finish(ctx context.Context, k *Check, used func() Usage,
	told func(limiter.Amended, error)) {
	usage := Usage{Units: limiter.Units(front.Estimate(&k.Decision))}
	if s.named {
		usage = Usage{}
	}
	defer func() {
		if !usage.Units.Given() && usage.Named == nil {
			return
		}
		actual, err := usage.Units.Value(0)
		var out limiter.Amended
		if err == nil {
			out, err = s.end(ctx, &k.Request, int64(actual), usage.Named)
		}
		told(out, err)
	}()
	usage = used()
}

// end settles a request. A client that has hung up must not keep its estimate, so the end of ctx
// does not end the settlement.
func (s *Settling[Used, Told]) end(ctx context.Context, q *limiter.Request, actual int64,
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
	return s.settler.Settle(ctx, *q, actual, opts...)
}

// GivenUp cancels the reservation of a request that was not decided since its context, or the decider's
// time, had ended: it may have been reserved all the same.
func (s *Settling[Used, Told]) GivenUp(ctx context.Context, q *limiter.Request, err error) {
	switch {
	case q.Hold == 0 || front.OfRequest(err) || errors.Is(err, limiter.ErrForbidden): // nothing was reserved
	case ctx.Err() != nil:
		s.cancels.Wait(ctx, q) // the request's own goroutine can wait: its caller has hung up
	default: // a client has errors of its own
		s.cancels.Begin(ctx, q)
	}
}
