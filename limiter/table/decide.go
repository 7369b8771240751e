package table

import (
	"unsafe"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// counter is one counter during a decision: a slot of the table, or a zero one that is
// inserted if it is charged.
type counter struct {
	part   *partition
	found  *slot // nil: it has no slot, and fresh is used
	words  []uint64
	seen   *limiter.Limit // decides about the state: its limit, or what [arith.Seen] makes of it
	fresh  slot
	added  bool   // fresh was charged and is to be inserted
	by     uint16 // who asks, see [arith.Key]
	crowd  bool   // its key has maxPerKey counters
	full   bool   // it overflows regardless of the table: its key has too many counters, or its rule has used up its share
	tenant bool   // it overflows since its tenant has used up its share
	own    bool   // it has overflowed for that reason, or its log for its rule's share

	used    uint64 // before the decision charges
	charged uint64
}

func (k *counter) slot() *slot {
	if k.found != nil {
		return k.found
	}
	return &k.fresh
}

const inlineCounters = 4

// outcome is the result of one attempt at a decision.
type outcome uint8

const (
	decided outcome = iota
	noRoom          // new keys, but the table is full
	noLimit         // the registry is full
	crowded         // a key of an import has more counters than a table accepts
	spent           // the id is of a hold that is over, and a limit on concurrency needs one
)

// Decide decides a check and overwrites d. Either all limits of all keys admit it and
// are charged, or none is charged, except as count_rejected says. If two keys of one
// check are the same counter, each is asked before either is charged.
//
// If the charge has an ID, it is remembered for each key that is charged. Another charge with
// it, until its Life is over, is Repeated: it is allowed with the first one's receipt, and
// changes nothing. If it is remembered for some keys only, the others alone are charged. A denial
// is not remembered. If there is no room for an id, the charge is made and not remembered.
//
// A rule whose number or time zone the request has chosen counts by its default where there is no room for another
// limit: the charge has that rule then.
//
// For up to four counters, Decide does not allocate once d has been used. The error is
// [ErrTooManyLimits] or nil. d.Rule is set for denials only; otherwise the caller sets
// it.
func (t *Table) Decide(now limiter.Tick, c *arith.Charge, d *limiter.Decision) error {
	d.Clear()
	if c.Len() == 0 {
		return nil
	}
	d.Source = limiter.SourceOwner
	c.Unnamed = 0
	if c.ID != nil {
		c.ID.Came = 0
	}
	result := t.attempt(now, c, d, false)
	if result == decided {
		return nil
	}
	return t.decideFull(now, c, d, result)
}

// decideFull decides a check that met a bound.
func (t *Table) decideFull(now limiter.Tick, c *arith.Charge, d *limiter.Decision, result outcome) error {
	final, collected, rounds := false, false, 0
	for result != decided {
		switch {
		case result == spent:
			d.Clear()
			return ErrSpent
		case result == noRoom:
			// What recovers after this comes too late for this check. A tenant may need more room than
			// others, since what it has counts, too.
			rounds++
			final = t.reclaimFor(now, c) == 0 || rounds == reclaimRounds
		case !collected && t.collectLimits(now):
			collected = true
		case !unchosen(c):
			d.Clear()
			return ErrTooManyLimits
		}
		result = t.attempt(now, c, d, final)
	}
	return nil
}

// unchosen puts the rules for requests that choose nothing in place of those that the request of a charge has chosen by
// a number or a time zone, and reports whether there were such. So a request cannot choose what leaves it undecided.
func unchosen(c *arith.Charge) (changed bool) {
	for i := range c.Len() {
		k := c.Key(i)
		if k.Rule == nil || originOf(k.Rule) != ofZone {
			continue
		}
		plain, _ := k.Rule.In("")
		if part := k.Rule.Ceiling(); part > 0 {
			plain = plain.UpTo(part)
		}
		if k.Rule.LeadsOn() {
			plain = plain.Onward()
		}
		k.Rule, changed = plain, true
	}
	return changed
}

// attempt decides a check under the locks of its partitions. A panic releases them and
// empties the partitions: state that was left half changed would be wrong, or panic again
// with each check. With final, new keys overflow if there is no room for them.
func (t *Table) attempt(now limiter.Tick, c *arith.Charge, d *limiter.Decision, final bool) outcome {
	if c.Len() == 1 {
		n := PartitionOf(c.Key(0))
		p := &t.parts[n]
		if c.ID != nil {
			fetch(unsafe.Pointer(&t.ids.rings[n])) // it arrives while the lock is taken
		}
		p.mu.Lock()
		whole := false
		defer func() {
			if !whole {
				p.leave(false)
			}
		}()
		p.advance(now)
		if p.due <= now {
			p.arrive(c.Key(0), now)
		}
		result := t.decide(now, c, d, final)
		if p.due != never && result == decided {
			t.holdTimes(now, c, d, nil)
		}
		if p.void != nil {
			t.epoch(now, c, d)
		}
		whole = true
		p.mu.Unlock()
		return result
	}
	return t.attemptSeveral(now, c, d, final)
}

// attemptSeveral is attempt for a check with several keys.
func (t *Table) attemptSeveral(now limiter.Tick, c *arith.Charge, d *limiter.Decision, final bool) (result outcome) {
	t.locked(now, c, func() {
		if result = t.decide(now, c, d, final); result == decided {
			t.holdTimes(now, c, d, nil)
			t.epoch(now, c, d)
		}
	})
	return result
}

// locked calls f under the locks of the partitions of a charge, once the holds of its keys
// that are over have been taken off. A panic empties these partitions.
func (t *Table) locked(now limiter.Tick, c *arith.Charge, f func()) {
	var locked [limiter.MaxKeys]int
	parts := partitions(c, locked[:0])
	for _, i := range parts {
		p := &t.parts[i]
		p.mu.Lock()
		p.advance(now)
	}
	whole := false
	defer func() {
		if whole {
			for _, i := range parts {
				t.parts[i].mu.Unlock()
			}
			return
		}
		for _, i := range parts {
			defer t.parts[i].leave(false) // each, whatever panics
		}
	}()
	for i := range c.Len() {
		t.parts[PartitionOf(c.Key(i))].arrive(c.Key(i), now)
	}
	f()
	whole = true
}

// leave unlocks a partition, and empties it if what was done to it was not done wholly,
// because of a panic.
func (p *partition) leave(whole bool) {
	if whole {
		p.mu.Unlock()
		return
	}
	defer p.mu.Unlock() // even if forget panics, too
	p.forget()
}

// decide decides a check whose partitions are locked.
func (t *Table) decide(now limiter.Tick, c *arith.Charge, d *limiter.Decision, final bool) outcome {
	if c.ID != nil && c.ID.Rate > 0 {
		return loans{t.parts[PartitionOf(c.Key(0))].ledgerOf(c.Key(0))}.decide(now, c, d, final)
	}
	if c.ID != nil {
		return t.decideOnce(now, c, d, final)
	}
	if c.Len() == 1 {
		k := c.Key(0)
		if t.decideFound(&t.parts[PartitionOf(k)], t.order.of(k.Hash.Hi), now, c, d) {
			return decided
		}
	}
	n := 0
	for i := range c.Len() {
		n += len(c.Key(i).Rule.Limits)
	}
	var inline [inlineCounters]counter
	counters := inline[:min(n, inlineCounters)]
	if n > inlineCounters {
		pooled := t.counters.Get().(*[]counter)
		defer t.counters.Put(pooled)
		*pooled = append((*pooled)[:0], make([]counter, n)...)
		counters = *pooled
	}
	d.Grow(n)
	if !t.probe(now, c, d, counters) {
		return noLimit
	}
	arith.Combine(d, c.Peek)
	overflowed := false
	for !t.reserveWords(now, c.Peek, d, counters) {
		if !final {
			return noRoom
		}
		overflowed = true
		arith.Combine(d, c.Peek)
	}
	reserve := func() outcome { return t.room.reserveKeys(d, counters, c.Peek) }
	for result := reserve(); result != decided; result = reserve() {
		if result == noLimit || !final {
			return result
		}
		overflowed = true
		t.room.overflowFresh(now, d, counters)
		arith.Combine(d, c.Peek)
	}
	if overflowed {
		t.room.noteFull(now, d, counters)
	}
	t.charge(now, c, d, counters)
	for i := range counters {
		k := &counters[i]
		out := d.Limit(i)
		k.slot().state.Report(k.seen, k.words, now, k.used, k.charged, !d.Allowed, out)
	}
	insertFresh(now, counters)
	arith.Conclude(d)
	t.count(c, d)
	return decided
}

// begin sets the fields of out that identify the limit. Probe and Report overwrite the
// others.
func begin(out *limiter.LimitDecision, key *arith.Key, i int, l *limiter.Limit) {
	out.Rule, out.Limit, out.Key, out.KeyIndex, out.Cost = key.Rule, l, i, key.Index, key.Cost
	out.Owner, out.InForce = "", 0
}

// probe finds the counters and asks each limit. It reports false if a limit cannot get
// a number.
func (t *Table) probe(now limiter.Tick, c *arith.Charge, d *limiter.Decision, counters []counter) bool {
	n := 0
	for i := range c.Len() {
		key := c.Key(i)
		p, place := &t.parts[PartitionOf(key)], t.order.of(key.Hash.Hi)
		for _, l := range key.Rule.Limits {
			k, out := &counters[n], d.Limit(n)
			n++
			begin(out, key, i, l)
			k.part, k.seen = p, l
			lo := identity(key, l)
			if at, found := p.slots.find(place, lo); found {
				k.found = p.slots.at(at)
				if had := k.found.limit; t.registry.limit(had) != l {
					if k.seen = p.look(k.found, l, key, now); k.seen == nil {
						return false
					}
					convert(c, i, had, k.found)
				}
				if k.words = t.words(k.found); k.found.from != 0 {
					p.asked(k.found)
				}
			} else {
				k.fresh.place, k.fresh.lo, k.by = place, lo, key.Who()
				k.crowd = p.slots.crowded(at, maxPerKey, place)
				p.countSlots(&k.fresh, l)
			}
			k.used = k.slot().state.Probe(k.seen, k.words, now, out)
		}
	}
	return true
}

// charge makes the charges and blocks of the decision. New keys have been counted
// already.
func (t *Table) charge(now limiter.Tick, c *arith.Charge, d *limiter.Decision, counters []counter) {
	for i := range counters {
		charge, block := arith.ToCharge(d, i)
		if !charge && !block {
			continue
		}
		k, out := &counters[i], d.Limit(i)
		s, l := k.slot(), out.Limit
		if k.added = k.found == nil; !k.added && !charge {
			l = k.part.table.registry.limit(s.limit) // a block changes no number
		} else if !k.added {
			had := s.limit
			if l = k.part.become(s, l, c.Key(out.Key), now); l == out.Limit {
				k.seen = l
			}
			convert(c, out.Key, had, s)
		}
		if charge {
			if k.part.due != never {
				k.part.noteCharge(s.place, s.lo^arith.NameID(l), l, new(s.state.Open(l)), now, out.Cost)
			}
			s.state.Charge(l, k.words, now, out.Cost)
			s.class |= charged
			k.charged = out.Cost
			arith.NoteCharged(d, i, now)
		}
		if block {
			arith.BeginBlock(d, i, l, &s.state, now)
		}
	}
}

// insertFresh adds the new keys that were charged. It moves slots, so it invalidates
// all pointers to slots.
func insertFresh(now limiter.Tick, counters []counter) {
	for i := range counters {
		if k := &counters[i]; k.added {
			k.part.insert(k.fresh, now)
		}
	}
}

// count updates the lists of top keys, and marks in the charge the keys whose names are
// missing there.
func (t *Table) count(c *arith.Charge, d *limiter.Decision) {
	for i := range c.Len() {
		p := &t.parts[PartitionOf(c.Key(i))]
		if p.ops++; p.ops%SampleOf == 0 {
			t.sample(c, p, i)
		}
	}
	if d.Allowed && !d.ShadowDenied || c.Peek || leadsOn(d) {
		return
	}
	for i := range d.Len() {
		out := d.Limit(i)
		if out.Allowed {
			continue
		}
		key := c.Key(out.Key)
		p := &t.parts[PartitionOf(key)]
		if p.denied == nil {
			p.denied = &topKeys{}
		}
		if p.denied.add(key.Hash.Hi, identity(key, out.Limit), out.Limit, 1) {
			c.Unnamed |= 1 << out.Key
		}
	}
}

// Uncount takes the denial of a check out of the lists of top keys, since the check waits and will be decided again. It
// is safe for concurrent use.
func (t *Table) Uncount(c *arith.Charge, d *limiter.Decision) {
	if c.Peek || leadsOn(d) {
		return // it is not in these lists
	}
	for i := range d.Len() {
		out := d.Limit(i)
		key := c.Key(out.Key)
		p := &t.parts[PartitionOf(key)]
		p.mu.Lock()
		if !out.Allowed && p.denied != nil {
			p.denied.remove(key.Hash.Hi, identity(key, out.Limit))
		}
		p.mu.Unlock()
	}
}

// leadsOn reports whether a limit denied whose denials are no answers.
func leadsOn(d *limiter.Decision) bool {
	for i := range d.Len() {
		if out := d.Limit(i); !out.Allowed && out.Rule.LeadsOn() {
			return true
		}
	}
	return false
}

// Sample counts the key of a check that was decided elsewhere, and stands for [SampleOf] of them, in the list of hot
// keys of its partition. It is safe for concurrent use.
func (t *Table) Sample(c *arith.Charge) {
	p := &t.parts[PartitionOf(c.Key(0))]
	p.mu.Lock()
	defer p.mu.Unlock()
	t.sample(c, p, 0)
}

// sample adds key i of a charge to the list of hot keys of its partition.
func (t *Table) sample(c *arith.Charge, p *partition, i int) {
	if p.hot == nil {
		p.hot = &topKeys{}
	}
	if key := c.Key(i); p.hot.add(key.Hash.Hi, key.Hash.Lo, nil, SampleOf) {
		c.Unnamed |= 1 << i
	}
}
