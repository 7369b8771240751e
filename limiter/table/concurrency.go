package table

import (
	"fmt"
	"slices"

	"github.com/weirlimit/weir/limiter"
)

// What limits on concurrency count is what the holds of their key have charged to them. So a
// settlement gives all of it back, and only these holds know when it ends.

// concurrency returns the counter that an entry of holds has charged if its limit is one on
// concurrency, else nil.
func (t *Table) concurrency(p *partition, holds *slot, h *limiter.Hold) *slot {
	if h.Limit == 0 {
		return nil
	}
	s, l := t.beside(p, holds, h.Limit)
	if s == nil || l.Algorithm() != limiter.Concurrency {
		return nil
	}
	return s
}

// occupy lets what the hold of an id holds count until its end; n units of it are new.
func (t *Table) occupy(p *partition, holds *slot, id, n uint64, end limiter.Tick) {
	words := t.words(holds)
	for i := range int(holds.state.A) {
		h := limiter.HoldAt(words, i)
		if h.ID != id {
			continue
		}
		if s := t.concurrency(p, holds, &h); s != nil {
			limiter.Occupy(t.registry.limit(s.limit), &s.state, n, end)
			t.expiresAt(p, s.state.Time)
		}
	}
}

// letGo gives back what the hold of an id holds, before it is settled.
func (t *Table) letGo(p *partition, holds *slot, id uint64, now limiter.Tick) {
	holds.state.EachHold(t.words(holds), func(h limiter.Hold) (limiter.Hold, bool) {
		if h.ID == id && t.concurrency(p, holds, &h) != nil {
			t.giveBack(p, holds, &h, now, h.Cost)
			h.Limit = 0
		}
		return h, true
	})
}

// holdTimes corrects the times that a decision has for limits on concurrency: these are free when
// the holds of their key end.
func (t *Table) holdTimes(now limiter.Tick, c *limiter.Charge, d *limiter.Decision) {
	changed := false
	for i := range d.Len() {
		out := d.Limit(i)
		if out.Limit.Algorithm() != limiter.Concurrency {
			continue
		}
		k := c.Key(out.Key)
		p := &t.parts[PartitionOf(k)]
		s := t.findHolds(p, k)
		at, found := p.slots.find(t.order.of(k.Hash.Hi), identity(k, out.Limit))
		if s == nil || !found {
			continue
		}
		n, until := max(out.Cost, 1), limiter.BlockEnd(out.Limit, &p.slots.at(at).state)
		last, room := limiter.HoldEnds(&s.state, t.words(s), limiter.CountsID(out.Limit), out.Limit.Capacity()-min(n, out.Limit.Capacity()))
		out.ResetAfter = max(0, last-now, until-now).Duration()
		if out.RetryAfter > 0 && !out.Overflow {
			out.RetryAfter, changed = max(0, room-now, until-now).Duration(), true
		}
	}
	if changed {
		limiter.Conclude(d)
	}
}

// ErrSpent is returned by Decide for a check whose id is that of a reservation that is over, and that
// a limit on concurrency concerns. It wraps [limiter.ErrSettled].
var ErrSpent = fmt.Errorf("%w: the id is that of a reservation that is over, and a check with it would hold nothing: give each request an id of its own", limiter.ErrSettled)

// spent reports whether a charge with a hold repeats one whose hold is over, for a key with a limit on
// concurrency: it would be told that it is admitted, and hold nothing. known are the keys for which its
// id is remembered, one bit each.
func (t *Table) spent(c *limiter.Charge, known uint16) bool {
	if c.ID.Hold == 0 || c.Peek {
		return false
	}
	for i := range c.Len() {
		k := c.Key(i)
		if known&(1<<i) == 0 || k.Rule.Shadow || !slices.ContainsFunc(k.Rule.Limits, func(l *limiter.Limit) bool { return l.Algorithm() == limiter.Concurrency }) {
			continue
		}
		if s := t.findHolds(&t.parts[PartitionOf(k)], k); s == nil || !s.state.HoldsID(t.words(s), c.ID.ID) {
			return true
		}
	}
	return false
}
