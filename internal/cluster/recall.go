package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// refusesLease reports whether a charge asks for a lease and nothing is lent: by a share, by a rule that does not lend,
// beside members that could not copy it, or while a check waits for what is lent.
func (d *decider) refusesLease(t *turn, k *arith.Charge) bool {
	if k.ID == nil || !k.ID.Lent {
		return false
	}
	p := d.parts.of(k.Key(0))
	cost, rule, hold := k.Key(0).Cost, k.Key(0).Rule, limiter.Span(k.ID.Hold)
	switch {
	case k.ID.Rate == 0 && hold > arith.LeaseWait*arith.LeaseFor(rule),
		k.ID.Rate > 0 && (cost == 0 || cost > arith.MaxBurst || hold < arith.MinSlice || !arith.Lends(rule, true)):
		return true
	}
	return d.shares.of(t, k) != k || !t.view().Speaks(peer.LeaseWire) ||
		p != nil && p.r.Own().AwaitsLent(k.Key(0))
}

// lendsNothing writes the denial of a lease.
func (d *decider) lendsNothing(t *turn, k *arith.Charge, answer *limiter.Decision) {
	_ = engine.Refuse(d.table, t.At, k, answer, 0)
	for i := range answer.Len() {
		answer.Limit(i).Owner = d.name
	}
}

// loan is a lease of a key of a charge.
type loan struct {
	key *arith.Key
	id  uint64
	end limiter.Tick
}

// inTheWay returns what is lent, and may be waited for, of the keys that deny a check, and the partition of one of
// them; nil if the check was admitted, has changed something, or would be denied although that is given back. alone
// reports whether it would be admitted if all that is lent was given back, also what is not waited for. The rule of the
// check need not lend: others do that count in the same place, or it did.
func (d *decider) inTheWay(t *turn, k *arith.Charge, answer *limiter.Decision) (at *partition, all []loan, alone bool) {
	if answer.Allowed || k.Peek || k.ID != nil && k.ID.Lent || arith.Fields(&answer.Receipt).Charged != 0 ||
		arith.BlockBegan(answer) {
		return nil, nil, false
	}
	var lent, waited [limiter.MaxKeys]uint64
	waits := true
	for i := range answer.Len() {
		l := answer.Limit(i)
		if l.Allowed || l.Rule.Shadow {
			continue
		}
		key := k.Key(l.Key)
		p := d.parts.of(key)
		if p == nil {
			return nil, nil, false
		}
		if lent[l.Key] == 0 {
			for _, h := range d.table.Lent(key) {
				if h.Sliced {
					continue
				}
				lent[l.Key] += h.Cost
				if p.r.Own().Waits.MayRecall(t.inputs(), h.ID) && borrowed(t.view(), h.ID) {
					waited[l.Key] += h.Cost
					all = append(all, loan{key, h.ID, h.End})
				}
			}
		}
		if !caused(l, lent[l.Key]) {
			return nil, nil, false
		}
		at, waits = p, waits && caused(l, waited[l.Key])
	}
	if !waits {
		return nil, nil, at != nil
	}
	return at, all, at != nil
}

// awaitsLent has a check that was denied wait, if lent units stand in its way: it recalls them. It reports whether the
// check waits. If it does not, its denial is not cached: what is lent may come back at any time.
func (d *decider) awaitsLent(t *turn, q *route.Request, k *arith.Charge, answer *limiter.Decision) bool {
	p, all, alone := d.inTheWay(t, k, answer)
	q.Reply.Provisional = alone
	if p == nil || !p.r.Own().MayWait(t.inputs(), &q.Wait) || !d.pending.admits(&q.Reply) {
		return false
	}
	for _, x := range all {
		if at := d.parts.of(x.key); at.r.Own().Waits.Recall(t.inputs(), x.id, x.end-t.At) {
			t.recall(x)
		}
	}
	d.table.Uncount(k, answer)
	kept := *q
	kept.Charge = q.Charge.Clone()
	replica.AwaitLent(t.inputs(), p.r.Own(), &kept)
	p.apply(t)
	return true
}

// recall asks the holder of a lease to give it back.
func (t *turn) recall(x loan) {
	to, found := route.Borrower(t.view(), x.id)
	switch {
	case !found:
	case to == t.c.self:
		t.later = append(t.later, func(t *turn) { t.c.calls.Leases.Recall(&t.Turn, x.id) })
	default:
		charge := new(arith.Charge)
		charge.Add(*x.key)
		t.Out.Refund(to, charge, false, peer.Refund{Kind: peer.RecallLease, ChargeID: x.id}, nil)
	}
}

// borrowed reports whether a member has the lease with an id, and not a client.
func borrowed(v *view.View, id uint64) bool {
	_, found := route.Borrower(v, id)
	return found
}
