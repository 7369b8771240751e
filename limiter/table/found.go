package table

import (
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// The common case of a decision: a check of one key whose counters exist. It is decided limit by
// limit, in functions that are short enough to keep what they need in registers.

// opened is one counter that decideFound decides.
type opened struct {
	slot   *slot
	counts arith.Counts
	used   uint64 // before the decision charges
}

// decideFound decides the common case: a check of one key, at a place of partition p, with at most four
// counters, all of which have slots under these limits. In any other case it changes nothing
// and reports false.
func (t *Table) decideFound(p *partition, place uint64, now limiter.Tick, c *arith.Charge, d *limiter.Decision) bool {
	key := c.Key(0)
	limits := key.Rule.Limits
	if len(limits) > inlineCounters {
		return false
	}
	var found [inlineCounters]opened
	if !p.slots.locate(place, key, limits, &found) {
		return false
	}
	for i, l := range limits {
		if have := t.registry.limit(found[i].slot.limit); have != l && !have.Equal(l) {
			return false
		}
	}
	for i := range limits {
		if s := found[i&(inlineCounters-1)].slot; s.from != 0 {
			p.asked(s)
		}
	}
	d.Grow(len(limits))
	outs := d.Limits()[:len(limits)]
	grows := false
	for i, l := range limits {
		begin(&outs[i], key, 0, l)
		if t.open(now, l, &found[i], &outs[i]) {
			grows = true
		}
	}
	arith.Combine(d, c.Peek)
	if grows && !t.reserveFound(p, now, c, d, &found) {
		return false
	}
	if d.Allowed && !d.ShadowDenied {
		cost := key.Cost
		if c.Peek {
			cost = 0
		}
		if cost > 0 && p.due != never {
			for i, l := range limits {
				p.noteCharge(place, key.Hash.Lo, l, &found[i].counts, now, cost)
			}
		}
		for i, l := range limits {
			t.admit(now, cost, l, &found[i], &outs[i])
		}
		if cost > 0 {
			arith.NoteAllCharged(d, now)
		}
		arith.Conclude(d)
		if p.ops++; p.ops%SampleOf == 0 {
			t.sample(c, p, 0)
		}
		return true
	}
	for i, l := range limits {
		k, out := &found[i], &outs[i]
		words, charged := t.words(k.slot), uint64(0)
		charge, block := arith.ToCharge(d, i)
		if charge {
			charged = out.Cost
			p.noteCharge(place, key.Hash.Lo, l, &k.counts, now, charged)
			k.counts.Charge(l, words, now, charged)
			arith.NoteCharged(d, i, now)
		}
		k.slot.state = k.counts.State(l)
		if block {
			arith.BeginBlock(d, i, l, &k.slot.state, now)
			k.counts = k.slot.state.Open(l)
		}
		k.counts.Report(l, words, now, k.used, charged, !d.Allowed, out)
	}
	arith.Conclude(d)
	t.count(c, d)
	return true
}

// locate finds the slots of a key's counters, and reports false if one has none.
func (t *slots) locate(place uint64, key *arith.Key, limits []*limiter.Limit, found *[inlineCounters]opened) bool {
	if len(limits) == 1 {
		if found[0].slot = t.findNear(place, identity(key, limits[0])); found[0].slot != nil {
			return true
		}
	}
	first, ok := t.findKey(place)
	if !ok {
		return false
	}
	at := min(first, t.size-len(limits))
	for i, l := range limits {
		lo := identity(key, l)
		s := t.at(at + i) // the n-th inserted entry is usually the n-th
		if s.place != place || s.lo != lo || s.limit == 0 {
			if s = t.inRun(first, place, lo); s == nil {
				return false
			}
		}
		found[i&(inlineCounters-1)].slot = s
	}
	return true
}

// open opens a counter and asks its limit. It reports whether a charge needs more words.
func (t *Table) open(now limiter.Tick, l *limiter.Limit, k *opened, out *limiter.LimitDecision) (grows bool) {
	k.counts = k.slot.state.Open(l)
	if !arith.KeepsWords(l) {
		k.used = k.counts.Probe(l, nil, now, out)
		return false
	}
	words := t.words(k.slot)
	k.used = k.counts.Probe(l, words, now, out)
	k.slot.state = k.counts.State(l)
	return k.counts.Words(l, now, max(out.Cost, 1)) > len(words)
}

// admit charges a counter of a check that all limits admit.
func (t *Table) admit(now limiter.Tick, cost uint64, l *limiter.Limit, k *opened, out *limiter.LimitDecision) {
	var words []uint64
	if arith.KeepsWords(l) {
		words = t.words(k.slot)
	}
	if cost > 0 {
		k.counts.Charge(l, words, now, cost)
		k.slot.class |= charged
	}
	k.slot.state = k.counts.State(l)
	k.counts.Report(l, words, now, k.used, cost, false, out)
}
