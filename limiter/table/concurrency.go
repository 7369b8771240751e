package table

import (
	"fmt"
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// What limits on concurrency count is what the holds of their key have charged to them. So a
// settlement gives all of it back, and only these holds know when it ends.

// concurrency returns the counter that an entry of holds has charged if its limit is one on
// concurrency, else nil.
func (b ledger) concurrency(h *arith.Hold) *slot {
	if h.Limit == 0 {
		return nil
	}
	s, l := b.beside(h.Limit)
	if s == nil || l.Algorithm() != limiter.Concurrency {
		return nil
	}
	return s
}

// occupy lets what the hold of an id holds count until its end; n units of it are new.
func (x hold) occupy(n uint64, end limiter.Tick) {
	for _, h := range x.in.of(x.id) {
		if s := x.in.concurrency(&h); s != nil {
			arith.Occupy(x.in.p.table.registry.limit(s.limit), &s.state, n, end)
			x.in.p.expiresAt(s.state.Time)
		}
	}
}

// letGo gives back what the hold of an id holds, before it is settled.
func (x hold) letGo() {
	let := false
	for i, h := range x.in.of(x.id) {
		if x.in.concurrency(&h) != nil {
			h.Detach()
			h.Put(x.in.words(), i)
			let = true
		}
	}
	if let {
		x.in.countAllSlots()
	}
}

// countSlots lets a counter of a key, which may lie outside the table, count what holds of the key have charged to it,
// if its limit is one on concurrency.
func (p *partition) countSlots(s *slot, l *limiter.Limit) {
	if l.Algorithm() != limiter.Concurrency || p.due == never {
		return
	}
	var none slot
	holds := &none
	if at, found := p.slots.find(s.place, s.lo^arith.NameID(l)^arith.NameID(p.table.ids.holds.limit)); found {
		holds = p.slots.at(at)
	}
	arith.CountHeld(l, &s.state, &holds.state, p.table.words(holds))
}

// countAllSlots does so for all counters of the key of some holds.
func (b ledger) countAllSlots() {
	if !b.exists() {
		return
	}
	key := b.s.lo ^ arith.NameID(b.p.table.ids.holds.limit)
	i, found := b.p.slots.findKey(b.s.place)
	for ; found; i++ {
		s := b.p.slots.at(i)
		if s.limit == 0 || s.place != b.s.place {
			return
		}
		if l := b.p.table.registry.limit(s.limit); l.Algorithm() == limiter.Concurrency && s.lo^arith.NameID(l) == key {
			arith.CountHeld(l, &s.state, &b.s.state, b.words())
			b.p.expiresAt(s.state.EmptyAt(l, nil))
		}
	}
}

// holdTimes corrects the times that a decision has for the limits of keys with holds: units come back when
// these end, to limits on concurrency then only. What is lent may come back, too. An explanation gives the
// counters that it has looked at, some of which are copies.
func (t *Table) holdTimes(now limiter.Tick, c *arith.Charge, d *limiter.Decision, looked []counter) {
	changed := false
	for i := range d.Len() {
		out := d.Limit(i)
		slots := out.Limit.Algorithm() == limiter.Concurrency
		if denied := out.RetryAfter > 0 && !out.Overflow; !denied && !slots {
			continue
		}
		k := c.Key(out.Key)
		p := &t.parts[PartitionOf(k)]
		b := p.ledgerOf(k)
		at, found := p.slots.find(t.order.of(k.Hash.Hi), identity(k, out.Limit))
		if !b.exists() || !found && !slots {
			continue
		}
		of := &slot{} // a new one of slots that are held since the limit was on concurrency before
		if found {
			of = p.slots.at(at)
		}
		if slots {
			changed = b.slotTimes(now, of, out) || changed
			continue
		}
		seen, words, holds, held := out.Limit, t.words(of), b.s.state, b.words()
		if have := t.registry.limit(of.limit); !have.Equal(seen) && looked == nil {
			seen = arith.Seen(seen, have)
		} else if looked != nil {
			k := &looked[i]
			if k.found != of { // a copy
				holds, held = b.followed(of, seen, have, now)
			}
			if of, seen, words = k.slot(), k.seen, k.words; holds.A == 0 {
				continue
			}
		}
		until := of.state.RetryAt(seen, words, now, p.clock, max(out.Cost, 1), &holds, held)
		out.RetryAfter = (loans{b}.comeBack(out, now, until) - now).Duration()
		changed = true
	}
	if changed {
		arith.Conclude(d)
	}
}

// slotTimes is holdTimes for a limit on concurrency, whose counter is of. It reports whether the wait was
// corrected.
func (b ledger) slotTimes(now limiter.Tick, of *slot, out *limiter.LimitDecision) bool {
	n, until := min(max(out.Cost, 1), out.Limit.Capacity()), arith.BlockEnd(out.Limit, &of.state)
	last, room := arith.HoldEnds(&b.s.state, b.words(), arith.CountsID(out.Limit), out.Limit.Capacity()-n)
	out.ResetAfter = max(0, last-now, until-now).Duration()
	if out.RetryAfter <= 0 || out.Overflow {
		return false
	}
	out.RetryAfter = max(0, room-now, until-now).Duration()
	return true
}

// ErrSpent is returned by Decide for a check whose id is that of a reservation that is over, and that
// a limit on concurrency concerns. It wraps [limiter.ErrSettled].
var ErrSpent = fmt.Errorf("%w: the id is that of a reservation that is over, and a check with it would hold nothing: "+
	"give each request an id of its own", limiter.ErrSettled)

// Spent reports whether [Table.Decide] returns [ErrSpent] for a check, also for a peek that stands for one.
func (t *Table) Spent(now limiter.Tick, c *arith.Charge) (is bool) {
	if c.ID == nil || c.ID.Hold == 0 {
		return false
	}
	t.locked(now, c, func() {
		_, known := t.remembered(now, c)
		is = known != 0 && t.over(c, known)
	})
	return is
}

// spent reports whether a charge with a hold repeats one whose hold is over, for a key with a limit on
// concurrency: it would be told that it is admitted, and hold nothing. known are the keys for which its
// id is remembered, one bit each.
func (t *Table) spent(c *arith.Charge, known uint16) bool {
	return c.ID.Hold > 0 && !c.Peek && t.over(c, known)
}

// over is spent for a charge whose hold may be over.
func (t *Table) over(c *arith.Charge, known uint16) bool {
	for i := range c.Len() {
		k := c.Key(i)
		if known&(1<<i) == 0 || k.Rule.Shadow || !slices.ContainsFunc(k.Rule.Limits, func(l *limiter.Limit) bool {
			return l.Algorithm() == limiter.Concurrency
		}) {
			continue
		}
		if !t.parts[PartitionOf(k)].ledgerOf(k).has(c.ID.ID) {
			return true
		}
	}
	return false
}
