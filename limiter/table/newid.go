package table

import (
	"unsafe"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A check with a new id is mostly one of a single key whose counters exist. It is decided with one
// search for the id. The id takes the room of the oldest of its partition, if the time of that is
// over: so nothing is counted, and the partition neither grows nor is swept.

// decideNew decides a check of one key, if it is without a hold, its id is not remembered, the
// counters of the key have slots and the id finds room. In any other case it changes nothing that counts
// and reports false.
func (t *Table) decideNew(now limiter.Tick, c *arith.Charge, d *limiter.Decision) bool {
	k := c.Key(0)
	p, at := &t.parts[PartitionOf(k)], t.order.of(k.Hash.Hi)
	place, lo := t.placeOfID(k, c.ID.ID)
	t.fetchBoth(p, at, place)
	if c.ID.Hold > 0 || c.Peek || k.Cost == 0 {
		return false
	}
	g := t.ring(p)
	pos := g.find(place, lo)
	if pos >= 0 && g.at(pos).Time > now {
		return false
	}
	var r reserved
	over := pos >= 0 || g.full() && g.over(now)
	if !over {
		var room bool
		if r, room = t.reserveOnce(c, 1, 1); !room {
			if over = g.over(now); !over {
				return false
			}
		}
	}
	if !t.decideFound(p, at, now, c, d) {
		t.room.unreserveOnce(r)
		return false
	}
	if !d.Allowed {
		t.room.unreserveOnce(r)
		return true
	}
	state := idState(now, c.ID, k, chargedOf(&d.Receipt, 0, k))
	switch {
	case pos >= 0:
		if !p.renewID(pos, state, now) {
			return true
		}
	case over && p.replaceOldest(place, lo, state, 0, now):
	case over:
		p.belongsID(g.oldest().lo, -1)
		g.leave()
		p.addID(place, lo, state, g.number, now)
	default:
		p.addID(place, lo, state, r.id, now)
	}
	c.ID.Came = 1
	return true
}

// renewID remembers an id once more, whose time was over: as the youngest, so that it does not keep others in
// the ring, or in its place if the ring would have to grow for it. It reports whether it is the youngest.
func (p *partition) renewID(pos int, state arith.State, now limiter.Tick) (came bool) {
	g := p.table.ring(p)
	e := g.ring[pos]
	p.belongsID(e.lo, -1)
	g.take(pos)
	if g.full() && p.popID(now) {
		p.table.room.unreserveIDs(g.number, 1)
	}
	if !g.full() {
		p.addID(e.place, e.lo, state, g.number, now)
		return true
	}
	g.out--
	*g.at(pos) = state
	p.belongsID(e.lo, 1)
	p.expiresAt(state.Time)
	return false
}

// idState returns the state of the id of a charge of a key.
func idState(now limiter.Tick, id *arith.Idempotency, k *arith.Key, charged uint64) arith.State {
	return arith.NewID(rememberedUntil(now, id), now, k.Cost, uint32(charged))
}

// fetchBoth makes the processor fetch the memory of a key and of an id at a time, which lie apart. The
// partition is locked.
func (t *Table) fetchBoth(p *partition, key, id uint64) {
	t.ring(p).fetch(id)
	if p.slots.homes > 0 {
		fetchPair(unsafe.Pointer(p.slots.at(p.slots.home(key))))
	}
}
