package table

import (
	"math/bits"

	"github.com/weirlimit/weir/limiter"
)

// Remembers reports whether the id of a charge is remembered at now for any of the keys that
// it costs something; false if it has none. It is safe for concurrent use.
func (t *Table) Remembers(now limiter.Tick, c *limiter.Charge) bool {
	for i := range c.Len() {
		if t.remembersKey(now, c, c.Key(i)) {
			return true
		}
	}
	return false
}

func (t *Table) remembersKey(now limiter.Tick, c *limiter.Charge, k *limiter.Key) bool {
	if c.ID == nil || k.Cost == 0 {
		return false
	}
	p := &t.parts[PartitionOf(k)]
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _, _, _, live := t.findID(now, c, k)
	return live
}

// ResetOnce is [Table.Reset] of keys that cost something, by a charge with an id of its own. It
// reports again, and deletes nothing, if the id is remembered for any of the keys. Otherwise the id
// is remembered for each, if there is room.
func (t *Table) ResetOnce(now limiter.Tick, c *limiter.Charge) (n int, again bool) {
	if t.Remembers(now, c) {
		return 0, true
	}
	t.locked(now, c, func() {
		charged, _ := t.remembered(now, c)
		if r, room := t.reserveOnce(c, charged, int64(bits.OnesCount16(charged))); room {
			t.remember(now, c, new(limiter.Decision), r.id)
		}
	})
	return t.Reset(now, c), false
}

// ForgetID forgets the id of a charge for its key i, if it is remembered by a charge that was
// made at the instant at. It reports whether it did. The charge stays. It is safe for
// concurrent use.
func (t *Table) ForgetID(now limiter.Tick, c *limiter.Charge, i int, at limiter.Tick) bool {
	k := c.Key(i)
	if c.ID == nil || k.Cost == 0 {
		return false
	}
	p := &t.parts[PartitionOf(k)]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	_, _, j, _, live := t.findID(now, c, k)
	if !live {
		return false
	}
	if s := &p.slots.at(j).state; s.Until != at || s.A != k.Cost {
		return false
	}
	t.remove(p, j)
	return true
}
