package table

import (
	"unsafe"

	"github.com/weirlimit/weir/limiter"
)

// A check with a new id is mostly one of a single key whose counters exist. It is decided with one
// search for the id. The id takes the slot of one whose time is over, if one lies where the new one
// belongs: so nothing is counted, few slots move, and the partition neither grows nor is swept.

// decideNew decides a check of one key, if it is without a hold, its id is not remembered, the
// counters of the key have slots and the id finds room. In any other case it changes nothing and
// reports false.
func (t *Table) decideNew(now limiter.Tick, c *limiter.Charge, d *limiter.Decision) bool {
	k := c.Key(0)
	p, at := &t.parts[PartitionOf(k)], t.order.of(k.Hash.Hi)
	place, lo := t.placeOfID(k, c.ID.ID)
	p.slots.fetchBoth(at, place)
	if c.ID.Hold > 0 || c.Peek || k.Cost == 0 {
		return false
	}
	i, over := p.slots.find(place, lo)
	end := i
	switch {
	case !over:
		end, over = t.overID(p, place, now)
	case p.slots.at(i).state.Time > now:
		return false
	}
	var r reserved
	if !over {
		var room bool
		if r, room = t.reserveOnce(c, 1, 1); !room {
			return false
		}
	}
	if !t.decideFound(p, at, now, c, d) { // it moves no slot
		t.unreserveOnce(r)
		return false
	}
	if !d.Allowed {
		t.unreserveOnce(r)
		return true
	}
	var to *slot
	number := r.id
	switch {
	case over:
		number = p.slots.at(end).limit
		to = p.slots.replace(i, end)
	case !p.slots.full():
		to = p.slots.gap(i)
	}
	state := idState(now, c.ID, k, chargedOf(d.Receipt, 0, k))
	if to == nil {
		t.insert(p, slot{place: place, lo: lo, state: state, limit: number}, now)
		return true
	}
	to.place, to.lo, to.state, to.words, to.limit, to.class = place, lo, state, 0, number, 0
	t.expiresAt(p, state.Time)
	return true
}

// overID returns the index of the first id whose time is over among the slots that are searched
// for an entry with a place, or would move for it.
func (t *Table) overID(p *partition, place uint64, now limiter.Tick) (end int, ok bool) {
	if p.expiry.Load() > int64(now) || p.slots.homes == 0 {
		return 0, false
	}
	other := uint16(0) // the last number that was not of ids
	for i := p.slots.home(place); ; i++ {
		s := p.slots.at(i)
		if s.limit == 0 {
			return 0, false
		}
		if s.limit != other && s.state.Time <= now {
			if t.registry.limit(s.limit).Algorithm() == limiter.Remembered {
				return i, true
			}
			other = s.limit
		}
	}
}

// idState returns the state of the id of a charge of a key.
func idState(now limiter.Tick, id *limiter.Idempotency, k *limiter.Key, charged uint64) limiter.State {
	return limiter.NewID(rememberedUntil(now, id), now, k.Cost, uint32(charged))
}

// fetchBoth makes the processor fetch the slots of two places at a time: those of a key and its id,
// which lie apart. The partition is locked.
func (t *slots) fetchBoth(key, id uint64) {
	if t.homes == 0 {
		return
	}
	fetchPair(unsafe.Pointer(t.at(t.home(key))))
	fetchPair(unsafe.Pointer(t.at(t.home(id))))
}

// fetchAll is fetchBoth for all keys of a charge.
func (t *Table) fetchAll(c *limiter.Charge) {
	for i := range c.Len() {
		k := c.Key(i)
		place, _ := t.placeOfID(k, c.ID.ID)
		t.parts[PartitionOf(k)].slots.fetchBoth(t.order.of(k.Hash.Hi), place)
	}
}
