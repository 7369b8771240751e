package table

import (
	"math"
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// importAll imports entries into a locked partition, all or none. gone is how many
// counters the caller will remove.
func (p *partition) importAll(entries []Entry, gone int64, now limiter.Tick, mode ImportMode) outcome {
	var inline [limiter.MaxLimits]uint16
	ids, fresh, result := p.reserveImport(entries, inline[:0], gone, now, mode)
	if result != decided {
		for _, id := range ids {
			p.table.registry.release(id, 1)
		}
		return result
	}
	held := p.heldHere(mode)
	for i := range entries {
		e := &entries[i]
		switch {
		case !e.isID(p.table.ids.limit):
		case mode == Merge && p.settledAlone(e, held):
			p.table.registry.release(ids[i], 1)
		case p.importID(e, ids[i], now, mode):
			fresh--
		}
	}
	if mode == Merge {
		p.settleMerged(now) // before the larger of two counters has what the other table has settled
	}
	var by rises
	if mode == Merge && slices.ContainsFunc(entries, func(e Entry) bool { return e.Limit.Algorithm() == arith.Holds }) {
		by = make(rises)
	}
	for _, holds := range []bool{false, true} { // holds look at the counters beside them
		for i := range entries {
			e := &entries[i]
			if holds == (e.Limit.Algorithm() == arith.Holds) && !e.isID(p.table.ids.limit) &&
				p.importOne(e, ids[i], now, mode, by) {
				fresh--
			}
		}
	}
	p.table.room.keys.Add(-fresh) // two entries were equal, or one counted nothing
	if mode == Merge {
		p.countHeld(entries)
	}
	return decided
}

// reserveImport numbers the limits of entries, and counts the new keys if there is room
// for all. Whatever the outcome, the caller must release the numbers.
func (p *partition) reserveImport(entries []Entry, ids []uint16, gone int64, now limiter.Tick,
	mode ImportMode) (_ []uint16, fresh int64, _ outcome) {
	bytes, blocks, freshIDs := int64(0), 0, int64(0)
	for i := range entries {
		e := &entries[i]
		isID := e.isID(p.table.ids.limit)
		l := e.Limit
		if isID {
			l = p.table.ids.limit
		}
		id := p.table.registry.id(l, nil, 0)
		if id == 0 {
			return ids, 0, noLimit
		}
		ids = append(ids, id)
		place, words := p.table.order.of(e.Hi), len(e.Words)
		if isID {
			if p.table.ring(p).find(place, e.Lo) < 0 {
				freshIDs++
				if len(p.table.ring(p).all(place, nil)) >= maxImportedPerKey {
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
			bytes += blockBytesFor(arith.MergeMost(e.Limit, words, len(p.table.words(p.slots.at(at)))))
			blocks++
		}
		if words > 0 {
			bytes += blockBytesFor(words)
			blocks++
		}
	}
	if len(entries) > 0 && p.table.room.beyondSource(entries[0].From, fresh+freshIDs, wordsOf(entries)) {
		return ids, 0, noRoom
	}
	bytes += p.slots.growth(int(fresh)) + p.table.ring(p).growth(int(freshIDs))
	fresh += freshIDs
	if room := &p.table.room; bytes > 0 && (room.memory()+bytes > replicaFactor*room.maxBytes ||
		room.slab.numbers() < blocks) {
		return ids, 0, noRoom
	}
	if p.table.room.keys.Add(fresh)-gone > replicaFactor*p.table.room.maxKeys {
		p.table.room.keys.Add(-fresh)
		return ids, 0, noRoom
	}
	p.roomForIDs(int(freshIDs), now)
	return ids, fresh, decided
}

// isID reports whether an entry is an id, for which a limit stands.
func (e *Entry) isID(ids *limiter.Limit) bool {
	return e.Limit.Algorithm() == arith.Remembered && arith.NameID(e.Limit) == arith.NameID(ids)
}

// importID imports an id, for which the limit with a number was counted, and reports whether it was added.
func (p *partition) importID(e *Entry, number uint16, now limiter.Tick, mode ImportMode) bool {
	l, state := p.table.ids.limit, e.State
	state.Import(l, nil, now)
	place := p.table.order.of(e.Hi)
	pos, counts := p.table.ring(p).find(place, e.Lo), state.Time > now
	switch {
	case counts && pos < 0:
		if p.addID(place, e.Lo, state, number, now); e.From != 0 {
			p.sentIDs(e.From, 1)
		}
		return true
	case counts && mode == Merge:
		have := p.table.ring(p).at(pos)
		have.Roll(l, nil, now)
		have.Merge(l, nil, &state, nil, now)
	case counts:
		*p.table.ring(p).at(pos) = state
	case pos >= 0 && mode == Replace:
		p.removeID(pos)
	}
	p.table.registry.release(number, 1)
	if counts {
		p.expiresAt(p.table.ring(p).at(pos).Time)
	}
	return false
}

// putID puts an id that a node has sent into the ring, or its state to where it is there. If there is no room, it
// changes nothing and reports false. What else has this high half of a hash is left alone: there is nothing, but for
// one chance in 2^64.
func (p *partition) putID(place, lo uint64, state arith.State, from uint8, now limiter.Tick) bool {
	g := p.table.ring(p)
	if pos := g.find(place, lo); pos >= 0 {
		*g.at(pos) = state
		p.expiresAt(state.Time)
		return true
	}
	if p.replaceOldest(place, lo, state, from, now) {
		return true
	}
	room := &p.table.room
	if g.full() || room.beyondSource(from, 1, 0) || room.keys.Load() >= replicaFactor*room.maxKeys {
		return false
	}
	number := p.table.registry.id(p.table.ids.limit, nil, 0)
	if number == 0 {
		return false
	}
	room.keys.Add(1)
	p.addID(place, lo, state, number, now)
	if from != 0 {
		p.sentIDs(from, 1)
	}
	p.tally()
	return true
}

// importOne imports one entry, whose limit has the number id, and reports whether it
// added a slot.
func (p *partition) importOne(e *Entry, id uint16, now limiter.Tick, mode ImportMode, by rises) bool {
	l := e.Limit
	in := slot{place: p.table.order.of(e.Hi), lo: e.Lo, state: e.State, limit: id, from: e.From}
	if i, found := p.slots.find(in.place, e.Lo); found {
		in.from = p.slots.at(i).from // it takes no more room than it does
	}
	if len(e.Words) > 0 {
		ref, class, _ := p.table.room.slab.get(len(e.Words), math.MaxInt64)
		p.give(&in, ref, class)
		copy(p.table.words(&in), e.Words)
	}
	in.state.Import(l, p.table.words(&in), now)
	if e.From != 0 {
		arith.Believe(l, &in.state, now, mode == Merge)
	}
	if l.Algorithm() == arith.Holds {
		if mode == Merge {
			defer loans{p.ledger(&in)}.come(p.ledger(&in).strange(now, by), now)
		} else {
			b := p.ledger(&in)
			for _, h := range b.all() {
				b.endID(&h, now)
			}
		}
		p.table.countHolds(&in, l, 1)
		defer func() { // once it is there: a sweep on the way looks at what is
			if i, found := p.slots.find(in.place, in.lo); found {
				p.ledger(p.slots.at(i)).ends()
			}
		}()
	}
	at := in.state.EmptyAt(l, p.table.words(&in))
	i, found := p.slots.find(in.place, e.Lo)
	switch {
	case at <= now:
		p.discard(&in)
		if found && mode == Replace {
			p.remove(i, now)
		}
		return false
	case !found:
		by.note(l, &in, new(arith.State), &in.state, now)
		p.insert(in, now)
		return true
	}
	have := p.slots.at(i)
	if mode == Merge {
		p.merge(have, &in, l, now, by)
		p.discard(&in)
		return false
	}
	p.table.countHolds(have, p.table.registry.limit(have.limit), -1)
	p.ledger(have).replaced(p.ledger(&in), now)
	have.state = arith.State{}
	p.free(have)
	if p.table.registry.limit(have.limit).Equal(l) {
		have.limit = p.relabel(&in, have.limit) // it stays in its share
	}
	p.discard(have)
	*have = in
	p.expiresAt(at)
	return false
}

// merge merges in, a slot outside the table, into a slot of the table. Both have the
// same key; the limit is that of in.
func (p *partition) merge(into, in *slot, l *limiter.Limit, now limiter.Tick, by rises) {
	p.table.countHolds(into, p.table.registry.limit(into.limit), -1)
	defer p.table.countHolds(into, l, 1)
	if p.table.registry.stays(into.limit, l, &into.state, false, now) {
		have := p.table.registry.limit(into.limit)
		if charge, _ := in.state.Adopt(have, l, nil, now); charge > 0 { // the larger bucket holds both
			in.state.Overdraw(have, nil, now, charge)
		}
		l = have
	} else {
		p.adopt(into, l, nil, 0, now) // it numbers no limit, since in has a number
	}
	words := p.table.words(into)
	into.state.Roll(l, words, now)
	words, _ = p.room(l, into, words, into.state.MergeWords(l, &in.state), math.MaxInt64)
	p.noteCharge(into.place, into.lo^arith.NameID(l), l, new(into.state.Open(l)), now, 0)
	before := into.state
	into.state.Merge(l, words, &in.state, p.table.words(in), now) // the result recovers no sooner
	by.note(l, into, &before, &into.state, now)
}

// keep counts the counters of a key that are not among entries, and removes them if
// remove is set.
func (p *partition) keep(hi uint64, entries []Entry, now limiter.Tick, remove bool) (others int64) {
	place := p.table.order.of(hi)
	var one [1]int
	for _, pos := range p.table.ring(p).all(place, one[:0]) {
		if has(entries, p.table.ring(p).ring[pos].lo) {
			continue
		}
		if others++; remove {
			p.removeID(pos)
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
			p.remove(i, now)
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

// remove deletes the counter in slot i, which a copy has no more.
func (p *partition) remove(i int, now limiter.Tick) {
	p.ledger(p.slots.at(i)).replaced(ledger{p: p}, now)
	p.belongsSlot(p.slots.at(i), -1)
	p.sent(p.slots.at(i), -1)
	p.discard(p.slots.at(i))
	p.slots.remove(i)
	p.table.room.keys.Add(-1)
}
