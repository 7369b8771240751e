package table

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Before has the counters of a key as they were before a charge that may be taken back, and as they were after it. A
// counter to which nothing else has happened since becomes what it was: neither the instant of a bucket's last charge
// nor a limit's number that a request has chosen stays behind. It does not have a counter that was made for the charge,
// one of a log, or one on concurrency, since taking back leaves nothing of theirs. The caller must prevent concurrent
// decisions about the key.
type Before struct {
	table    *Table
	at       limiter.Tick
	held     bool // the charge may convert a counter, and the key has holds
	known    bool // the charge's id was remembered for the key
	counters []counterBefore
	few      [2]counterBefore // memory for them: most keys have no more limits
}

// counterBefore is what a counter was.
type counterBefore struct {
	lo           uint64         // of its slot
	limit        *limiter.Limit // nil: the counter is not restored
	state, after arith.State
	number       uint16  // of its limit after the charge
	was          inForce // when that limit was in force
	same         bool    // it is what it was after the charge
}

// NewBefore notes the counters of key i of a charge before that is made, at the instant at. It returns nil if nothing
// can stay behind: the charge has no id, and the key neither a bucket nor a number that the request has chosen.
func NewBefore(t *Table, at limiter.Tick, of *arith.Charge, i int) *Before {
	k := of.Key(i)
	chooses := k.Rule.ChosenBy() != limiter.ChosenByNone || originOf(k.Rule) == ofRequest
	if of.ID == nil && !chooses && !slices.ContainsFunc(k.Rule.Limits, arith.Accrues) {
		return nil
	}
	b := &Before{table: t, at: at}
	if b.counters = b.few[:min(len(k.Rule.Limits), len(b.few))]; len(k.Rule.Limits) > len(b.few) {
		b.counters = make([]counterBefore, len(k.Rule.Limits))
	}
	for i, l := range k.Rule.Limits {
		b.counters[i].lo = identity(k, l)
	}
	b.each(k, func(i int, c *counterBefore, p *partition, s *slot) {
		had := t.registry.limit(s.limit)
		if s.words != 0 || had.Algorithm() == limiter.Concurrency {
			return
		}
		if c.limit, c.state = had, s.state; had != k.Rule.Limits[i] { // the charge may convert it
			l := p.ledgerOf(k)
			b.held = b.held || l.exists() && l.s.state.A > 0
			c.was = t.registry.left.of(had, k.Rule, s.place)
		}
	})
	if of.ID != nil {
		of := arith.Charge{ID: of.ID}
		of.Add(*k)
		b.known = t.Remembers(at, &of)
	}
	return b
}

// Known reports whether the id of the charge was remembered for the key before it. b may be nil.
func (b *Before) Known() bool { return b != nil && b.known }

// each calls f for each counter of the key that exists, with the index of its limit.
func (b *Before) each(k *arith.Key, f func(i int, c *counterBefore, p *partition, s *slot)) {
	p, place := &b.table.parts[PartitionOf(k)], b.table.order.of(k.Hash.Hi)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range b.counters {
		if at, found := p.slots.find(place, b.counters[i].lo); found {
			f(i, &b.counters[i], p, p.slots.at(at))
		}
	}
}

// Charged notes the counters after the charge. b may be nil.
func (b *Before) Charged(k *arith.Key) {
	if b == nil {
		return
	}
	b.each(k, func(_ int, c *counterBefore, _ *partition, s *slot) { c.after, c.number = s.state, s.limit })
}

// Compare finds out which counters are what they were after the charge. It must be called before that is taken back.
func (b *Before) Compare(k *arith.Key) {
	b.each(k, func(_ int, c *counterBefore, p *partition, s *slot) {
		c.same = c.limit != nil && s.words == 0 && s.limit == c.number && s.state == c.after &&
			!p.void.has(s.place, b.at, 0)
	})
}

// Restore makes these counters what they were before the charge, which has been taken back from the limits of k that
// have a bit in charged.
func (b *Before) Restore(k *arith.Key, charged uint64) {
	b.each(k, func(i int, c *counterBefore, p *partition, s *slot) {
		if !c.same || charged&(1<<i) == 0 {
			return
		}
		if now := b.table.registry.limit(s.limit); !now.Equal(c.limit) {
			if b.held && arith.CountsID(now) != arith.CountsID(c.limit) {
				return // what other holds have charged follows the counter, and cannot go back
			}
			number := b.table.registry.id(c.limit, k.Rule, cmp.Or(k.By, k.Hash.Tenant()))
			if number == 0 {
				return
			}
			b.table.registry.release(p.relabel(s, number), 1)
			b.table.registry.left.restore(c.limit, k.Rule, s.place, c.was)
		}
		s.state = c.state
		p.expiresAt(0)
	})
}
