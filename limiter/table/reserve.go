package table

import (
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A decision reserves everything it needs before it charges anything: words for logs,
// numbers for limits, slots for new keys. If a bound prevents that, the decision is
// settled again with limits that overflow.

// reserveFound makes room for the words that the charges of decideFound need, and
// reports false if there is none.
func (t *Table) reserveFound(p *partition, now limiter.Tick, c *arith.Charge, d *limiter.Decision,
	found *[inlineCounters]opened) bool {
	for i := range d.Len() {
		if s := found[i&(inlineCounters-1)].slot; !p.growWords(now, c.Peek, d, i, s, t.words(s)) {
			return false
		}
	}
	return true
}

// reserveWords does the same for any decision. A limit without room denies, since an
// admission that is not counted would lift the limit. The decision must then be settled
// again, and reserveWords reports false.
func (t *Table) reserveWords(now limiter.Tick, peek bool, d *limiter.Decision, counters []counter) bool {
	for i := range counters {
		k := &counters[i]
		if k.found == nil {
			continue // a first charge needs no words
		}
		if !k.part.growWords(now, peek, d, i, k.found, k.words) {
			out := d.Limit(i)
			out.Overflow, out.Allowed, out.RetryAfter = true, false, t.room.wait(now).Duration()
			need := k.found.state.Words(out.Limit, now, max(out.Cost, 1))
			k.tenant = t.room.wordsBeyondTenant(k.found, out, need, k.words)
			k.crowd, k.own = false, k.tenant || t.room.wordsBeyondShare(out, need, k.words)
			return false
		}
		if !peek {
			k.words = t.words(k.found)
		}
	}
	return true
}

// growWords makes room for the words that the charge of limit i needs, and reports
// false if there is none. A limit that is only peeked at needs the room, too, but does
// not take it.
func (p *partition) growWords(now limiter.Tick, peek bool, d *limiter.Decision, i int, s *slot, words []uint64) bool {
	out := d.Limit(i)
	if out.Overflow || !arith.KeepsWords(out.Limit) {
		return true
	}
	charge, _ := arith.ToCharge(d, i)
	if !charge && (!d.Allowed || !peek && out.Cost > 0) {
		return true
	}
	need := s.state.Words(out.Limit, now, max(out.Cost, 1))
	if need <= len(words) {
		return true
	}
	if p.table.room.wordsBeyondShare(out, need, words) || p.table.room.wordsBeyondTenant(s, out, need, words) {
		return false
	}
	if !charge {
		return p.table.room.slab.fits(need, p.table.room.left())
	}
	_, ok := p.room(out.Limit, s, words, need, p.table.room.left())
	return ok
}

// wordsBeyondShare reports whether the share of the rule leaves no room for so many words
// in place of those that a counter has.
func (r *room) wordsBeyondShare(out *limiter.LimitDecision, need int, words []uint64) bool {
	if out.Rule.MaxShare == 0 {
		return false
	}
	_, have := r.registry.taken(out.Rule.Name)
	return have+blockBytesFor(need)-int64(len(words))*wordBytes > shareOf(out.Rule, r.maxBytes)
}

// wordsBeyondTenant is wordsBeyondShare for the share of the tenant of a slot.
func (r *room) wordsBeyondTenant(s *slot, out *limiter.LimitDecision, need int, words []uint64) bool {
	return r.beyondTenant(keyLo(s.lo, out.Limit), asked{bytes: blockBytesFor(need) - int64(len(words))*wordBytes})
}

// reserveKeys numbers the limits of the new keys of a decision and counts these keys;
// if they do not fit it counts nothing. Keys that are only peeked at are not counted,
// but must fit, too.
func (r *room) reserveKeys(d *limiter.Decision, counters []counter, peek bool) outcome {
	n, asked, full := int64(0), int64(0), false
	for i := range counters {
		k, out := &counters[i], d.Limit(i)
		if k.found != nil || out.Overflow {
			continue
		}
		charge, block := arith.ToCharge(d, i)
		switch {
		case charge || block:
			if k.fresh.limit = r.registry.id(out.Limit, out.Rule, k.by); k.fresh.limit == 0 {
				r.unreserve(counters)
				return noLimit
			}
			n++
			k.full = k.crowd || r.shareFull(out.Rule, 0)
		case d.Allowed && (peek || out.Cost == 0):
			asked++
			k.full = k.crowd || r.shareFull(out.Rule, 1)
		default:
			continue
		}
		full = full || k.full
	}
	if n+asked > 0 && !full && r.tenantFull(d, counters, n+asked) {
		full = true
	}
	switch {
	case n+asked == 0:
		return decided
	case full || !r.fits(counters):
	case r.keys.Add(n)+asked-r.copied.Load() <= r.maxKeys:
		return decided
	default:
		r.keys.Add(-n)
	}
	r.unreserve(counters)
	return noRoom
}

// tenantFull reports whether the new counters of a decision, of which there are n, would exceed the share of
// their tenant, and marks them then.
func (r *room) tenantFull(d *limiter.Decision, counters []counter, n int64) bool {
	full, asks := false, asked{keys: n}
	for i := range counters {
		k, out := &counters[i], d.Limit(i)
		if k.found != nil || out.Overflow {
			continue
		}
		if !full && !r.beyondTenant(keyLo(k.fresh.lo, out.Limit), asks) {
			return false // a check is of one tenant
		}
		full, k.full, k.tenant = true, true, true
	}
	return full
}

// unreserve releases the numbers that reserveKeys took.
func (r *room) unreserve(counters []counter) {
	for i := range counters {
		if k := &counters[i]; k.found == nil && k.fresh.limit != 0 {
			r.registry.release(k.fresh.limit, 1)
			k.fresh.limit = 0
		}
	}
}

// fits reports whether there is memory for the slots of new counters. The slots are read
// only if there may be too little.
func (r *room) fits(counters []counter) bool {
	if growthOf(counters, (*slots).growthBound) <= r.left() {
		return true
	}
	need := growthOf(counters, (*slots).growth)
	return need == 0 || need <= r.left()
}

// growthOf returns the growth of all partitions for new counters.
func growthOf(counters []counter, growth func(*slots, int) int64) (need int64) {
	for i := range counters {
		k := &counters[i]
		if k.found != nil {
			continue
		}
		n, counted := 0, false
		for j := range counters {
			if counters[j].found == nil && counters[j].part == k.part {
				n, counted = n+1, counted || j < i
			}
		}
		if !counted {
			need += growth(&k.part.slots, n)
		}
	}
	return need
}

// overflowFresh makes the counters overflow that have no room: those that overflow for
// a reason of their own, or else all new ones.
func (r *room) overflowFresh(now limiter.Tick, d *limiter.Decision, counters []counter) {
	some := false
	for i := range counters {
		some = some || counters[i].full
	}
	for i := range counters {
		k, out := &counters[i], d.Limit(i)
		if k.found != nil || some && !k.full {
			continue
		}
		k.own, k.full, out.Overflow = k.full, false, true
		if r.overflow == OverflowDeny && !out.Never {
			out.Allowed, out.RetryAfter = false, r.wait(now).Duration()
		}
	}
}
