package table

import (
	"unsafe"

	"github.com/weirlimit/weir/limiter"
)

// A check with a new id is mostly one of a single key whose counters exist. It is decided with one
// search for the id. The id takes the slot of one whose time is over, if one lies where the new one
// belongs: so nothing is counted, few slots move, and the partition neither grows nor is swept.

// decideNew decides a check of one key, without a hold, whose id is not remembered, if the
// counters of the key have slots and the id finds room. In any other case it changes nothing and
// reports false.
func (t *Table) decideNew(now limiter.Tick, c *limiter.Charge, d *limiter.Decision) bool {
	if c.Len() != 1 || c.ID.Hold > 0 || c.Peek || c.Key(0).Cost == 0 {
		return false
	}
	k := c.Key(0)
	p, e, i, found, live := t.findID(now, c, k)
	if live {
		return false
	}
	end, over := i, found
	if !found {
		end, over = t.overID(p, e.place, now)
	}
	var r reserved
	if !over {
		var room bool
		if r, room = t.reserveOnce(c, 1, 1); !room {
			return false
		}
	}
	if !t.decideFound(p, now, c, d) { // it moves no slot
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
		e.limit, e.state = number, state
		t.insert(p, e, now)
		return true
	}
	to.place, to.lo, to.state, to.words, to.limit, to.class = e.place, e.lo, state, 0, number, 0
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

// fetchBoth makes the processor fetch the counters of a key and its id at a time. They lie apart.
// The partition is locked.
func (t *Table) fetchBoth(p *partition, k *limiter.Key, id uint64) {
	if p.slots.homes == 0 {
		return
	}
	fetchPair(unsafe.Pointer(p.slots.at(p.slots.home(t.order.of(k.Hash.Hi)))))
	fetchPair(unsafe.Pointer(p.slots.at(p.slots.home(t.order.of(IDOf(k, id).Hi)))))
}
