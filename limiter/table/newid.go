package table

import (
	"unsafe"

	"github.com/weirlimit/weir/limiter"
)

// A check with a new id is mostly one of a single key whose counters exist. It takes the slot of
// an id whose time is over, if one lies where the new id belongs: so nothing is counted, few slots
// move, and the partition neither grows nor is swept.

// decideNew decides a check of one key, without a hold, whose id is not remembered, if there is
// such a slot. In any other case it changes nothing and reports false.
func (t *Table) decideNew(now limiter.Tick, c *limiter.Charge, d *limiter.Decision) bool {
	if c.Len() != 1 || c.ID.Hold > 0 || c.Peek || c.Key(0).Cost == 0 {
		return false
	}
	k := c.Key(0)
	p, e, i, found, _ := t.findID(now, c, k)
	if found {
		return false
	}
	end, ok := t.overID(p, i, now)
	if !ok || !t.decideFound(p, now, c, d) { // decideFound moves no slot
		return false
	}
	if d.Allowed {
		e.limit = p.slots.at(end).limit
		e.state = idState(now, c.ID, k, chargedOf(d.Receipt, 0, k))
		p.slots.replace(i, end, e)
		t.expiresAt(p, e.state.Time)
	}
	return true
}

// overID returns the index of the first id whose time is over among the slots that would move
// for an entry at i.
func (t *Table) overID(p *partition, i int, now limiter.Tick) (end int, ok bool) {
	if p.expiry.Load() > int64(now) {
		return 0, false
	}
	other := uint16(0) // the last number that was not of ids
	for s := range p.slots.run(i) {
		if s.limit != other && s.state.Time <= now {
			if t.registry.limit(s.limit).Algorithm() == limiter.Remembered {
				return i, true
			}
			other = s.limit
		}
		i++
	}
	return 0, false
}

// idState returns the state of the id of a charge of a key.
func idState(now limiter.Tick, id *limiter.Idempotency, k *limiter.Key, charged uint64) limiter.State {
	return limiter.NewID(rememberedUntil(now, id), now, k.Cost, uint32(charged))
}

// fetchBoth makes the processor fetch the counters of a key and its id at a time. They lie apart.
// The partition is locked.
func (t *Table) fetchBoth(p *partition, k *limiter.Key, id uint64) {
	if p.slots.homes == 0 {
		return
	}
	fetchPair(unsafe.Pointer(p.slots.at(p.slots.home(t.order.of(k.Hash.Hi)))))
	fetchPair(unsafe.Pointer(p.slots.at(p.slots.home(t.order.of(IDOf(k, id).Hi)))))
}
