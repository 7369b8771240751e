package route

import (
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/view"
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
	if !lease.Single(charge) {
		return false
	}
	k, c := charge.Key(0), x.c
	if !x.Warm(t.Now, k.Hash) { // most keys are not
		return false
	}
	to, _ := c.config.Places.Owner(k)
	v := c.config.View()
	if to == 0 || to == c.config.Self || !v.Speaks(peer.LeaseWire) {
		return false
	}
	done, w := x.Holder.Decide(x.instant(t), k, uint64(max(1, len(v.Members)-1)), answer)
	if done && w.Seen%table.SampleOf == 0 {
		c.config.Sample(charge)
	}
	if w.Over != nil {
		x.giveBack(t, w.Over)
	}
	if w.Units > 0 {
		x.ask(t, charge, w.Units)
	}
	return done
}

// ask asks the owner of a key for a lease.
func (x *Leases) ask(t *Turn, of *arith.Charge, units uint64) {
	span := lease.Span(of)
	l := x.Ask(x.instant(t), of.Key(0), units, max(1, uint64(x.c.config.Self)-x.asked.Add(1)), span)
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
			x.Returned(l, true, limiter.Receipt{})
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
		amend: limiter.Amend{IgnoreUnknown: true}, done: func(t *Turn, o *Call) {
			x.c.denials.forget(charge) // there is more room than when its owner denied
			out := &o.result.outcome
			known := out.Amended != nil && (out.Amended.State == limiter.AmendDone || out.Amended.State == limiter.AmendRepeated)
			settled := arith.NewReceipt(arith.ReceiptFields{Epoch: uint64(o.result.by), Time: out.At})
			for _, late := range x.Returned(l, known, settled) {
				x.c.Refund(t, late.Charge, late.Receipt, func(Outcome) {})
			}
		}}})
}

// Recall gives back the lease with an id, since its owner needs the units.
func (x *Leases) Recall(t *Turn, id uint64) {
	if l := x.Holder.Recall(x.instant(t), id); l != nil {
		x.giveBack(t, l)
	}
}

// Refund takes back a check that a lease admitted, at this node or at another one, see [lease.Holder.Refund], and
// reports whether it is one. It calls done then. A refund by way of another node, and one that waits for a lease that
// is being given back, is not waited for: if it is lost, the units stay charged.
func (x *Leases) Refund(t *Turn, c *arith.Charge, r limiter.Receipt, done func(Outcome)) bool {
	f := arith.Fields(&r)
	if x.Refunded(t, c, r, done) {
		return true
	}
	v := x.c.config.View()
	holder, found := Borrower(v, f.Epoch)
	if !found || holder == x.c.config.Self || v.Has(peer.Instance(f.Epoch)) || // that is an owner's receipt
		c.Len() != 1 || f.Parts != nil || !c.Fits(r) {
		return false
	}
	t.Out.Refund(holder, c, true, peer.Refund{Kind: peer.RefundLeased, Receipt: mesh.Receipt(r, 0), Once: f.Once}, nil)
	done(Outcome{})
	return true
}

// Refunded takes back a check that a lease of this node admitted. It calls done, if it reports that there was one.
func (x *Leases) Refunded(t *Turn, c *arith.Charge, r limiter.Receipt, done func(Outcome)) bool {
	owner, ours := x.Holder.Refund(x.instant(t), c, r)
	switch {
	case arith.Fields(&owner).Time != 0:
		x.c.Refund(t, c, owner, done)
	case ours:
		done(Outcome{})
	}
	return ours
}

// borrowers is how many leases one instance may have had: it numbers them down from itself.
const borrowers = 1 << 40

// Borrower returns the member that has the lease with an id. It reports false if it is a client's, or that of a member
// that has left.
func Borrower(v *view.View, id uint64) (peer.Instance, bool) {
	for i := range v.Members {
		if m := v.Members[i].Instance; uint64(m)-id-1 < borrowers {
			return m, true
		}
	}
	return 0, false
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
