package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Amend settles or extends the reservation of a charge's ID, see [route.Router.Amend].
func (c *Core) Amend(charge *arith.Charge, a limiter.Amend, done func(route.Outcome)) {
	t := c.begin()
	defer t.end()
	defer t.Catch()
	if charge.Len() == 0 || charge.ID == nil {
		t.later = append(t.later, func(*turn) { done(route.Outcome{Amended: &limiter.Amended{State: limiter.AmendUnknown}}) })
		return
	}
	c.calls.Amend(&t.Turn, charge, a, done)
}

// amend settles or extends a reservation whose partitions this node owns and has locked. The
// reply waits for the heir: with what is given back others are admitted, and what was used must
// not come back a second time when the copy of the reservation ends. An amendment that changes
// nothing waits as well: the reply to the first one may still be withheld, and what this node knows of the
// id is old if it was fenced.
func (d *decider) amend(t *turn, q *route.Request, parts []*partition, answer *limiter.Decision) (route.Verdict,
	*partition) {
	if len(parts) > 0 && (parts[0].r.Own().Congested() || d.pending.crowded(&q.Reply)) {
		return route.Overloaded, parts[0]
	}
	for _, p := range parts {
		if p.r.Own().Behind() {
			return route.Overloaded, p
		}
	}
	if at := d.inDoubt(q.Charge); at != nil {
		if d.pending.contend(t, at, q) {
			return route.Kept, at
		}
		return route.Overloaded, at // and is repeated a little later
	}
	for _, p := range parts {
		p.instant(t)
	}
	out, changed := d.amendTable(t, q)
	if q.Outcome.Amended = &out; changed && !q.Amend.Extend && out.State == limiter.AmendDone {
		q.Outcome.At = t.At
	}
	if changed {
		d.amended(t, q.Charge)
	}
	return d.confirm(t, q, parts, answer), nil
}

// admits reports whether a request has admitted something by extending a reservation.
func admits(q *route.Request) bool {
	return q.Amend.Extend && q.Outcome.Amended.State == limiter.AmendDone
}

// charges reports whether a settlement has charged ids that were not known.
func charges(q *route.Request) bool { return q.Outcome.Amended.State == limiter.AmendCharged }

// amendTable settles or extends a reservation in the table, or takes an extension back.
func (d *decider) amendTable(t *turn, q *route.Request) (out limiter.Amended, changed bool) {
	switch charge := d.shares.of(t, q.Charge); {
	case q.Back != nil:
		if !d.table.TakeBack(t.At, charge, *q.Back) {
			out, _, q.Outcome.Shape = d.table.StandsFor(t.At, charge)
		}
		return out, out.State == limiter.AmendDone
	case q.Amend.Extend && charge.Len() == 1:
		var x table.Extension
		if out, x, changed = d.table.Extend(t.At, charge, q.Amend); out.State == limiter.AmendDone {
			q.Outcome.Extension = &x
		}
		return out, changed
	default:
		return d.table.Amend(t.At, charge, q.Amend)
	}
}

// inDoubt returns a partition in which the check that made a reservation may still be taken
// back; nil if there is none.
func (d *decider) inDoubt(k *arith.Charge) *partition {
	for i := range k.Len() {
		if p := d.parts.of(k.Key(i)); p != nil && p.r.Own().Attempted(k.Key(i), k.ID) {
			return p
		}
	}
	return nil
}

// amended records that the keys and the id of a charge changed, whatever its costs are. A late
// cancel of the check takes nothing back any more.
func (d *decider) amended(t *turn, k *arith.Charge) {
	for i := range k.Len() {
		key := *k.Key(i)
		key.Cost = max(1, key.Cost) // a key without a cost would have no id
		if p := d.parts.of(&key); p != nil && p.r.Own() != nil {
			p.r.Own().Stands(&key, k.ID)
			p.charged(t, &key, k.ID, false, 0)
			replica.GivenBack(t.inputs(), p.r.Own(), &key, k.ID.ID)
			p.apply(t)
		}
	}
}
