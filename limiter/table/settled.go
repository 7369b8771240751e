package table

import (
	"math"
	"math/bits"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Remembers reports whether the id of a charge is remembered at now for any of the keys that
// it costs something; false if it has none. It is safe for concurrent use.
func (t *Table) Remembers(now limiter.Tick, c *arith.Charge) bool {
	for i := range c.Len() {
		k := c.Key(i)
		if c.ID == nil || k.Cost == 0 {
			continue
		}
		p := &t.parts[PartitionOf(k)]
		p.mu.Lock()
		_, _, live := t.findID(now, c, k)
		p.mu.Unlock()
		if live {
			return true
		}
	}
	return false
}

// ResetOnce is [Table.Reset] of keys that cost something, by a charge with an id of its own, which is
// remembered for each of them, if there is room. Keys for which it is remembered already are left
// as they are. It returns how many counters there were, and the keys that were reset.
func (t *Table) ResetOnce(now limiter.Tick, c *arith.Charge) (n int, made *arith.Charge) {
	made = &arith.Charge{ID: c.ID}
	t.locked(now, c, func() {
		_, known := t.remembered(now, c)
		for i := range c.Len() {
			if known&(1<<i) == 0 {
				made.Add(*c.Key(i))
			}
		}
		charged, _ := t.remembered(now, made)
		if r, room := t.reserveOnce(made, charged, int64(bits.OnesCount16(charged))); room {
			t.remember(now, made, new(limiter.Decision), r.id)
		}
	})
	return t.Reset(now, made), made
}

// ForgetID forgets the id of a charge for its key i, if it is remembered by a charge that was
// made at the instant at. It reports whether it did. The charge stays. It is safe for
// concurrent use.
func (t *Table) ForgetID(now limiter.Tick, c *arith.Charge, i int, at limiter.Tick) bool {
	return t.change(now, c, c.Key(i), func(e *entry) bool {
		is := e.charged(at, c.Key(i))
		if is {
			e.in.p.removeID(e.pos)
		}
		return is
	})
}

// trusted returns how many units of a key may be charged beyond its limits because of what a holder says: each limit
// then counts at most twice its capacity.
func (t *Table) trusted(now limiter.Tick, k *arith.Key) (n uint64) {
	p, place := &t.parts[PartitionOf(k)], t.order.of(k.Hash.Hi)
	n = math.MaxUint64
	for _, l := range k.Rule.Limits {
		if l.Algorithm() == limiter.Concurrency {
			continue
		}
		used := uint64(0)
		if at, found := p.slots.find(place, identity(k, l)); found {
			s := p.slots.at(at)
			seen := p.look(s, l, k, now)
			if seen == nil {
				return 0
			}
			used = s.state.Probe(seen, t.words(s), now, new(limiter.LimitDecision))
		}
		n = min(n, 2*l.Capacity()-min(used, 2*l.Capacity()))
	}
	return n
}

// UndoSettled takes back what a settlement has charged at an instant for ids that were not known, to keys of
// one partition, and forgets these ids.
func (t *Table) UndoSettled(only int, now limiter.Tick, c *arith.Charge, at limiter.Tick) {
	for i := range c.Len() {
		k := c.Key(i)
		settled := isIn(k, only) && t.change(now, c, k, func(e *entry) bool {
			is := e.charged(at, k) && arith.IDParts(e.state()) == arith.SettledID
			if is {
				e.forget()
			}
			return is
		})
		if !settled {
			continue
		}
		t.eachOf(now, k, 0, func(p *partition, _ int, _ *arith.Key, l *limiter.Limit, s *slot) bool {
			if !p.void.has(s.place, at, 0) {
				l = p.become(s, l, k, now)
				arith.Undo(l, &s.state, t.words(s), now, p.clock, at, k.Cost)
				p.expiresAt(0)
			}
			return true
		})
	}
}
