package table

import (
	"math"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// importAll imports entries into a locked partition, all or none. gone is how many
// counters the caller will remove.
func (t *Table) importAll(p *partition, entries []Entry, gone int64, now limiter.Tick, mode ImportMode) outcome {
	var inline [limiter.MaxLimits]uint16
	ids, fresh, result := t.reserveImport(p, entries, inline[:0], gone, now, mode)
	if result != decided {
		for _, id := range ids {
			t.registry.release(id, 1)
		}
		return result
	}
	held := t.heldHere(p, mode)
	for i := range entries {
		e := &entries[i]
		switch {
		case !t.isID(e):
		case mode == Merge && t.settledAlone(p, e, held):
			t.registry.release(ids[i], 1)
		case t.importID(p, e, ids[i], now, mode):
			fresh--
		}
	}
	if mode == Merge {
		t.settleMerged(p, now) // before the larger of two counters has what the other table has settled
	}
	for _, holds := range []bool{false, true} { // holds look at the counters beside them
		for i := range entries {
			e := &entries[i]
			if holds == (e.Limit.Algorithm() == arith.Holds) && !t.isID(e) && t.importOne(p, e, ids[i], now, mode) {
				fresh--
			}
		}
	}
	t.keys.Add(-fresh) // two entries were equal, or one counted nothing
	if mode == Merge {
		t.countHeld(p, entries)
	}
	return decided
}

// reserveImport numbers the limits of entries, and counts the new keys if there is room
// for all. Whatever the outcome, the caller must release the numbers.
func (t *Table) reserveImport(p *partition, entries []Entry, ids []uint16, gone int64, now limiter.Tick,
	mode ImportMode) (_ []uint16, fresh int64, _ outcome) {
	bytes, blocks, freshIDs := int64(0), 0, int64(0)
	for i := range entries {
		e := &entries[i]
		isID := t.isID(e)
		l := e.Limit
		if isID {
			l = t.ids.limit
		}
		id := t.registry.id(l, nil, 0)
		if id == 0 {
			return ids, 0, noLimit
		}
		ids = append(ids, id)
		place, words := t.order.of(e.Hi), len(e.Words)
		if isID {
			if t.ring(p).find(place, e.Lo) < 0 {
				freshIDs++
				if len(t.ring(p).all(place, nil)) >= maxImportedPerKey {
					return ids, 0, crowded
				}
			}
			continue
		}
		at, found := p.slots.find(place, e.Lo)
		switch {
		case !found && p.slots.crowded(at, maxImportedPerKey, place):
			return ids, 0, crowded
		case !found:
			fresh++
		case mode == Merge && arith.KeepsWords(e.Limit):
			// One block for the merger, beside that of the entry.
			bytes += blockBytesFor(arith.MergeMost(e.Limit, words, len(t.words(p.slots.at(at)))))
			blocks++
		}
		if words > 0 {
			bytes += blockBytesFor(words)
			blocks++
		}
	}
	if t.beyondSource(entries, fresh+freshIDs, wordsOf(entries)) {
		return ids, 0, noRoom
	}
	bytes += p.slots.growth(int(fresh)) + t.ring(p).growth(int(freshIDs))
	fresh += freshIDs
	if bytes > 0 && (t.memory()+bytes > replicaFactor*t.maxBytes || t.slab.numbers() < blocks) {
		return ids, 0, noRoom
	}
	if t.keys.Add(fresh)-gone > replicaFactor*t.maxKeys {
		t.keys.Add(-fresh)
		return ids, 0, noRoom
	}
	t.roomForIDs(p, int(freshIDs), now)
	return ids, fresh, decided
}

// isID reports whether an entry is an id.
func (t *Table) isID(e *Entry) bool {
	return e.Limit.Algorithm() == arith.Remembered && arith.NameID(e.Limit) == arith.NameID(t.ids.limit)
}

// importID imports an id, for which the limit with a number was counted, and reports whether it was added.
func (t *Table) importID(p *partition, e *Entry, number uint16, now limiter.Tick, mode ImportMode) bool {
	l, state := t.ids.limit, e.State
	state.Import(l, nil, now)
	place := t.order.of(e.Hi)
	pos, counts := t.ring(p).find(place, e.Lo), state.Time > now
	switch {
	case counts && pos < 0:
		if t.addID(p, place, e.Lo, state, number, now); e.From != 0 {
			t.sentIDs(p, e.From, 1)
		}
		return true
	case counts && mode == Merge:
		have := t.ring(p).at(pos)
		have.Roll(l, nil, now)
		have.Merge(l, nil, &state, nil, now)
	case counts:
		*t.ring(p).at(pos) = state
	case pos >= 0 && mode == Replace:
		t.removeID(p, pos)
	}
	t.registry.release(number, 1)
	if counts {
		t.expiresAt(p, t.ring(p).at(pos).Time)
	}
	return false
}

// overwriteID is ReplaceKey for an id whose ring has room. In any other case it changes nothing and reports false.
// What else has this high half of a hash is left alone: there is nothing, but for one chance in 2^64.
func (t *Table) overwriteID(p *partition, e *Entry, now limiter.Tick) bool {
	l, state, place, g := t.ids.limit, e.State, t.order.of(e.Hi), t.ring(p)
	state.Import(l, nil, now)
	if state.Time <= now {
		return false
	}
	if pos := g.find(place, e.Lo); pos >= 0 {
		*g.at(pos) = state
		t.expiresAt(p, state.Time)
		return true
	}
	one := [1]Entry{*e}
	if g.full() || t.beyondSource(one[:], 1, 0) || t.keys.Load() >= replicaFactor*t.maxKeys {
		return false
	}
	number := t.registry.id(l, nil, 0)
	if number == 0 {
		return false
	}
	t.keys.Add(1)
	t.addID(p, place, e.Lo, state, number, now)
	if e.From != 0 {
		t.sentIDs(p, e.From, 1)
	}
	t.tally(p)
	return true
}

// importOne imports one entry, whose limit has the number id, and reports whether it
// added a slot.
func (t *Table) importOne(p *partition, e *Entry, id uint16, now limiter.Tick, mode ImportMode) bool {
	l := e.Limit
	in := slot{place: t.order.of(e.Hi), lo: e.Lo, state: e.State, limit: id, from: e.From}
	if i, found := p.slots.find(in.place, e.Lo); found {
		in.from = p.slots.at(i).from // it takes no more room than it does
	}
	if len(e.Words) > 0 {
		ref, class, _ := t.slab.get(len(e.Words), math.MaxInt64)
		t.give(p, &in, ref, class)
		copy(t.words(&in), e.Words)
	}
	in.state.Import(l, t.words(&in), now)
	if e.From != 0 {
		arith.Believe(l, &in.state, now, mode == Merge)
	}
	if l.Algorithm() == arith.Holds {
		if mode == Merge {
			t.strange(p, &in, now)
		} else {
			t.endIDs(p, &in, now)
		}
		t.countHolds(&in, l, 1)
		t.ends(p, &in)
	}
	at := in.state.EmptyAt(l, t.words(&in))
	i, found := p.slots.find(in.place, e.Lo)
	switch {
	case at <= now:
		t.discard(p, &in)
		if found && mode == Replace {
			t.remove(p, i)
		}
		return false
	case !found:
		t.insert(p, in, now)
		return true
	}
	have := p.slots.at(i)
	if mode == Merge {
		t.merge(p, have, &in, l, now)
		t.discard(p, &in)
		return false
	}
	t.countHolds(have, t.registry.limit(have.limit), -1)
	have.state = arith.State{}
	t.free(p, have)
	if t.registry.limit(have.limit).Equal(l) {
		have.limit = t.relabel(p, &in, have.limit) // it stays in its share
	}
	t.discard(p, have)
	*have = in
	t.expiresAt(p, at)
	return false
}

// merge merges in, a slot outside the table, into a slot of the table. Both have the
// same key; the limit is that of in.
func (t *Table) merge(p *partition, into, in *slot, l *limiter.Limit, now limiter.Tick) {
	t.countHolds(into, t.registry.limit(into.limit), -1)
	defer t.countHolds(into, l, 1)
	t.adopt(p, into, l, nil, 0, now) // it numbers no limit, since in has a number
	words := t.words(into)
	into.state.Roll(l, words, now)
	words, _ = t.room(p, l, into, words, into.state.MergeWords(l, &in.state), math.MaxInt64)
	t.noteCharge(p, into.place, into.lo^arith.NameID(l), l, new(into.state.Open(l)), now, 0)
	into.state.Merge(l, words, &in.state, t.words(in), now) // the result recovers no sooner
}

// keep counts the counters of a key that are not among entries, and removes them if
// remove is set.
func (t *Table) keep(p *partition, hi uint64, entries []Entry, remove bool) (others int64) {
	place := t.order.of(hi)
	var one [1]int
	for _, pos := range t.ring(p).all(place, one[:0]) {
		if has(entries, t.ring(p).ring[pos].lo) {
			continue
		}
		if others++; remove {
			t.removeID(p, pos)
		}
	}
	i, found := p.slots.findKey(place)
	if !found {
		return others
	}
	for s := p.slots.at(i); s.limit != 0 && s.place == place; s = p.slots.at(i) {
		switch {
		case has(entries, s.lo):
			i++
		case remove:
			t.remove(p, i)
			others++
		default:
			i++
			others++
		}
	}
	return others
}

func has(entries []Entry, lo uint64) bool {
	for i := range entries {
		if entries[i].Lo == lo {
			return true
		}
	}
	return false
}

// remove deletes the counter in slot i.
func (t *Table) remove(p *partition, i int) {
	t.belongsSlot(p, p.slots.at(i), -1)
	t.sent(p, p.slots.at(i), -1)
	t.discard(p, p.slots.at(i))
	p.slots.remove(i)
	t.keys.Add(-1)
}
