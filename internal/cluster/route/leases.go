package route

import (
	"sync/atomic"

	"github.com/weirlimit/weir/internal/lease"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Leases are the units that owners have lent this node. It is safe for concurrent use.
type Leases struct {
	c *Router
	lease.Holder
	asked atomic.Uint64 // leases that were asked for
}

// instant is now. The wall clock goes on while the machine is suspended, and the others may not.
func (x *Leases) instant(t *Turn) lease.Instant {
	now := lease.Instant{Now: t.Now, At: t.At}
	if x.c.config.Wall != nil {
		now.At = x.c.config.Wall()
	}
	return now
}

// Decide decides a check by what the owner of its key has lent this node, and reports whether it did. It asks for a
// lease if the key is hot.
func (x *Leases) Decide(t *Turn, charge *arith.Charge, answer *limiter.Decision) bool {
	span := lease.Span(charge)
	if span == 0 {
		return false
	}
	k, c := charge.Key(0), x.c
	if !x.Warm(t.Now, k.Hash) {
		return false
	}
	to, _ := c.config.Places.Owner(k)
	v := c.config.View()
	if to == 0 || to == c.config.Self || !v.Speaks(peer.LeaseWire) {
		return false
	}
	done, w := x.Holder.Decide(x.instant(t), k, span, uint64(max(1, len(v.Members)-1)), answer)
	if done && w.Seen%table.SampleOf == 0 {
		c.config.Sample(charge)
	}
	if w.Over != nil {
		x.giveBack(t, w.Over)
	}
	if w.Units > 0 {
		x.ask(t, k, w.Units, span)
	}
	return done
}

// ask asks the owner of a key for a lease.
func (x *Leases) ask(t *Turn, k *arith.Key, units uint64, span limiter.Tick) {
	l := x.Ask(x.instant(t), k, units, max(1, uint64(x.c.config.Self)-x.asked.Add(1)), span)
	charge := new(arith.Charge)
	charge.Add(l.Key)
	charge.ID = &arith.Idempotency{ID: l.ID, Life: limiter.Second.Duration(), Hold: (arith.LeaseWait * span).Duration(),
		Keep: true, Lent: true}
	answer := new(limiter.Decision)
	o := &Call{task: task{kind: KindCheck, charge: charge, answer: answer, until: l.Until.Now, begunAt: t.At}}
	o.task.done = func(t *Turn, o *Call) {
		switch used := x.Answered(x.instant(t), l, span, answer); {
		case used:
			t.Tick = true
		case answer.Allowed, o.result.by == 0: // it may be granted although no answer came in time
			x.giveBack(t, l)
		default:
			x.Returned(l, true)
		}
	}
	x.c.start(t, o)
}

// giveBack tells the owner what was used of a lease, which nobody uses any more. If the owner does not hear it, it
// charges all.
func (x *Leases) giveBack(t *Turn, l *lease.Lease) {
	key := l.Key
	key.Cost = x.Used(l)
	charge := new(arith.Charge)
	charge.Add(key)
	charge.ID = &arith.Idempotency{ID: l.ID, Life: limiter.Second.Duration()}
	x.c.start(t, &Call{task: task{kind: KindAmend, charge: charge, answer: new(limiter.Decision),
		amend: limiter.Amend{IgnoreUnknown: true}, done: func(_ *Turn, o *Call) {
			x.c.denials.forget(charge) // there is more room than when its owner denied
			amended := o.result.outcome.Amended
			x.Returned(l, amended != nil && (amended.State == limiter.AmendDone || amended.State == limiter.AmendRepeated))
		}}})
}

// Recall gives back the lease with an id, since its owner needs the units.
func (x *Leases) Recall(t *Turn, id uint64) {
	if l := x.Holder.Recall(x.instant(t), id); l != nil {
		x.giveBack(t, l)
	}
}

// Refund gives units back to a lease that lasts, see [lease.Holder.Refund].
func (x *Leases) Refund(t *Turn, c *arith.Charge, r limiter.Receipt) bool {
	return x.Holder.Refund(x.instant(t), c, r)
}

// End gives back all leases, since this node leaves, and asks for no more.
func (x *Leases) End(t *Turn) {
	x.Close()
	x.tick(t)
}

// tick gives back the leases whose time is over, and reports whether others are left.
func (x *Leases) tick(t *Turn) bool {
	over, more := x.Ended(x.instant(t))
	for _, l := range over {
		x.giveBack(t, l)
	}
	return more
}

// lent reports whether a charge asks for a lease.
func lent(k *arith.Charge) bool { return k.ID != nil && k.ID.Lent }
