package table

import (
	"fmt"
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Explain decides a charge as a peek, whatever its Peek is, and overwrites d with the
// decision. For each limit, in the order of [limiter.Decision.Limit], it returns what a
// check would find and why it would be allowed or denied. The caller fills in names and
// members.
//
// It changes nothing: no counter, even if its limit has changed, no list of top keys
// and no statistic. (In a full table, recovered counters may be dropped, which is
// equivalent.) It allocates, and lists at most 100 entries of a log.
func (t *Table) Explain(now limiter.Tick, c *arith.Charge, d *limiter.Decision) []limiter.LimitExplanation {
	out, full := t.explain(now, c, d, false)
	if full {
		t.reclaimFor(now, c)
		out, _ = t.explain(now, c, d, true)
	}
	return out
}

// explain explains a charge under the locks of its partitions. full reports that the
// table is full and the caller should make room and try again. With final the
// explanation is that of a full table, and full is false.
func (t *Table) explain(now limiter.Tick, c *arith.Charge, d *limiter.Decision,
	final bool) (out []limiter.LimitExplanation, full bool) {
	d.Clear()
	if c.Len() == 0 {
		return nil, false
	}
	d.Source = limiter.SourceOwner
	var locked [limiter.MaxKeys]int
	parts := partitions(c, locked[:0])
	for _, i := range parts {
		p := &t.parts[i]
		p.mu.Lock()
		p.advance(now)
	}
	defer func() {
		for _, i := range parts {
			t.parts[i].mu.Unlock()
		}
	}()
	for i := range c.Len() {
		t.parts[PartitionOf(c.Key(i))].arrive(c.Key(i), now)
	}
	counters := t.looked(now, c)
	d.Grow(len(counters))
	n := 0
	for i := range c.Len() {
		for _, l := range c.Key(i).Rule.Limits {
			k, at := &counters[n], d.Limit(n)
			begin(at, c.Key(i), i, l)
			k.used = k.slot().state.Probe(k.seen, k.words, now, at)
			n++
		}
	}
	arith.Combine(d, true)
	for !t.reserveWords(now, true, d, counters) {
		if !final {
			return nil, true
		}
		arith.Combine(d, true)
	}
	for t.room.reserveKeys(d, counters, true) != decided {
		if !final {
			return nil, true
		}
		t.room.overflowFresh(now, d, counters)
		arith.Combine(d, true)
	}
	for i := range counters {
		k, at := &counters[i], d.Limit(i)
		k.slot().state.Report(k.seen, k.words, now, k.used, 0, !d.Allowed, at)
		x := k.slot().state.Explain(k.seen, k.words, now, at)
		x.Now, x.Limit = now, at.Limit.String()
		switch {
		case at.Overflow && k.found != nil && !k.own:
			x.Arithmetic += "; but there is no memory for more of it"
		case at.Overflow && k.found != nil:
			x.Arithmetic += "; but the rule has used its max_share, so there is no memory for more of it"
		case at.Overflow && k.bound() == BoundKey:
			x.Arithmetic += "; but the limit is new for the key, which has too many limits"
		case at.Overflow && k.own:
			x.Arithmetic += "; but the key is new, and the rule has used its max_share"
		case at.Overflow:
			x.Arithmetic += "; but the key is new, and the table is full"
		}
		k.part.explainHolds(c.Key(at.Key), at.Limit, &x)
		out = append(out, x)
	}
	arith.Conclude(d)
	t.holdTimes(now, c, d, counters)
	if c.ID != nil {
		t.explainID(now, c, d, out)
	}
	return out, false
}

// looked finds the counters of a charge. A counter of another limit is replaced by a
// copy that its present limit has adopted.
func (t *Table) looked(now limiter.Tick, c *arith.Charge) []counter {
	var out []counter
	for i := range c.Len() {
		key := c.Key(i)
		p := &t.parts[PartitionOf(key)]
		for _, l := range key.Rule.Limits {
			k := counter{part: p, seen: l}
			if at, found := p.slots.find(t.order.of(key.Hash.Hi), identity(key, l)); found {
				k.found = p.slots.at(at)
				k.words = t.words(k.found)
				switch old := t.registry.limit(k.found.limit); {
				case old.Equal(l):
				case t.registry.stays(k.found.limit, l, &k.found.state, chosen(key.Rule), now):
					k.seen = arith.Seen(l, old)
				default:
					adopted := *k.found
					k.found, k.words = &adopted, adoptedWords(l, old, &adopted.state, slices.Clone(k.words), now)
					p.countSlots(&adopted, l)
				}
			} else {
				k.fresh.place, k.fresh.lo = t.order.of(key.Hash.Hi), identity(key, l)
				k.crowd = p.slots.crowded(at, maxPerKey, k.fresh.place)
				p.countSlots(&k.fresh, l)
			}
			out = append(out, k)
		}
	}
	return out
}

// adoptedWords converts a state of old into one of l, and returns its words.
func adoptedWords(l, old *limiter.Limit, s *arith.State, words []uint64, now limiter.Tick) []uint64 {
	charge, fresh := s.Adopt(l, old, words, now)
	if !fresh {
		return words
	}
	s.Roll(l, nil, now)
	if charge == 0 {
		return nil
	}
	s.Overdraw(l, nil, now, charge)
	return nil
}

// followed returns the holds of a key as they are once a counter of the key has become one of l; none if nothing of
// them comes back to it then.
func (b ledger) followed(s *slot, l, old *limiter.Limit, now limiter.Tick) (holds arith.State, words []uint64) {
	holds, words = b.s.state, b.words()
	if id := arith.CountsID(l); id != arith.CountsID(old) {
		counter := s.state
		words = slices.Clone(words)
		limits := func(counts uint64) *limiter.Limit { _, l := b.beside(counts); return l }
		holds.EachHold(words, limits, func(h arith.Hold) (arith.Hold, bool) {
			if h.Limit == id && !h.Lent {
				h.Detach()
			}
			return h, true
		})
		counter.Roll(old, slices.Clone(b.p.table.words(s)), now)
		if !arith.Follow(l, old, &counter, &holds, words, now) {
			return arith.State{}, nil
		}
	}
	return holds, words
}

// explainedHolds bounds the holds that an explanation lists.
const explainedHolds = 20

// explainHolds adds to the explanation of a limit what is held of it, and until when.
func (p *partition) explainHolds(k *arith.Key, l *limiter.Limit, out *limiter.LimitExplanation) {
	sum, n, id := uint64(0), 0, arith.CountsID(l)
	var each []limiter.Field
	for _, h := range p.ledgerOf(k).all() {
		if h.Limit != id {
			continue
		}
		sum, n = sum+h.Cost, n+1
		if len(each) < explainedHolds {
			then := "then given back"
			switch {
			case h.Sliced:
				then = fmt.Sprintf("assigned with %d a second", h.Rate)
			case h.Lent:
				then = "lent"
			case h.Keep:
				then = "then kept"
			}
			each = append(each, limiter.Field{Name: "hold", Value: fmt.Sprintf("%d until %s, %s", h.Cost, stamp(h.End), then)})
		}
	}
	if n > 0 {
		out.State = append(out.State, limiter.Field{Name: "held", Value: fmt.Sprintf("%d, in %d charges", sum, n)})
		out.State = append(out.State, each...)
	}
}

func stamp(t limiter.Tick) string { return t.Time().Format("2006-01-02T15:04:05.000000Z") }
