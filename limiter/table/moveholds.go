package table

import (
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// The holds of a key move with its counters. Two nodes that decided without knowing of each
// other may have charged a hold each, or one may have settled what the other holds. The larger
// of two counters need not have the units of both, so a hold that came from the other one gives
// nothing back. One that either has settled is settled.

// steady prepares the exported words of some holds for another node, see
// [arith.Steady].
func (t *Table) steady(p *partition, holds *slot, words []uint64) {
	for i := range len(words) / arith.HoldWords {
		h := arith.HoldAt(words, i)
		if h.Limit == 0 {
			continue
		}
		if s, l := t.beside(p, holds, h.Limit); s != nil {
			h.At = arith.Steady(l, &s.state, h.At)
			h.Put(words, i)
		}
	}
}

// idBeside returns the position of the id of a hold, -1 if it is unknown, and whether it is
// remembered at now.
func (t *Table) idBeside(p *partition, holds *slot, id uint64, now limiter.Tick) (pos int, live bool) {
	key := holds.lo ^ arith.NameID(t.ids.holds.limit)
	pos = t.ring(p).find(t.order.of(t.order.hash(holds.place)^id), key^arith.NameID(t.ids.limit))
	return pos, pos >= 0 && t.ring(p).at(pos).Time > now
}

// endID lets the id of a hold be forgotten when the hold ends, unless it stands for a cost then. An
// id is an entry of its own, which moves to another node when it changes, and a hold whenever its key
// does. Each time both end a little later or earlier by the clock there.
func (t *Table) endID(p *partition, holds *slot, h *arith.Hold, now limiter.Tick) {
	pos, live := t.idBeside(p, holds, h.ID, now)
	if !live || h.Keep || arith.IDParts(t.ring(p).at(pos)) == arith.SettledID {
		return
	}
	t.ring(p).at(pos).Time = h.End
	t.expiresAt(p, max(h.End, arith.IDCharged(t.ring(p).at(pos))))
}

// endIDs is endID for all holds in a slot.
func (t *Table) endIDs(p *partition, holds *slot, now limiter.Tick) {
	words := t.words(holds)
	for i := range int(holds.state.A) {
		h := arith.HoldAt(words, i)
		t.endID(p, holds, &h, now)
	}
}

// endStray ends the hold that a key has of an id which is over or was never known: so is the hold. Its
// end comes with the key, and that comes late where the member stood still. It reports whether there
// was one.
func (t *Table) endStray(p *partition, k *arith.Key, id uint64, now limiter.Tick) bool {
	if p.due == never { // the partition has no holds
		return false
	}
	s := t.findHolds(p, k)
	if s == nil || !s.state.HoldsID(t.words(s), id) {
		return false
	}
	t.endHolds(p, s, now, id)
	return true
}

// strange prepares holds of another table, in a slot outside this one, to be merged. Those that are known
// here are what they are here, and end when the later of both does. Those that were settled here are left
// out, too. The others give nothing back, except to limits on concurrency, see countHeld. The other table may
// come twice: then all of them are known. The larger of two counters may be the one without their units, so these count
// as lost: who settles such a hold is charged all that was used.
func (t *Table) strange(p *partition, in *slot, now limiter.Tick) {
	known := t.lastUntil(p, in, now)
	in.state.EachHold(t.words(in), func(h arith.Hold) (arith.Hold, bool) {
		if known[h.ID] {
			return h, false
		}
		if pos, live := t.idBeside(p, in, h.ID, now); live && isOver(t.ring(p).at(pos), &h) {
			return h, false
		}
		if !h.Spared() && t.concurrency(p, in, &h) == nil {
			h.Detach(false)
		}
		return h, true
	})
}

// lastUntil lets the holds of a key last until the ends that another table has of them, and returns which
// it has. Their ids, which were merged before, stand for what the holds have charged here.
func (t *Table) lastUntil(p *partition, others *slot, now limiter.Tick) map[uint64]bool {
	known := make(map[uint64]bool)
	i, found := p.slots.find(others.place, others.lo)
	if !found {
		return known
	}
	s, theirs := p.slots.at(i), t.words(others)
	s.state.EachHold(t.words(s), func(h arith.Hold) (arith.Hold, bool) {
		if end := arith.HoldEnd(&others.state, theirs, h.ID); end != 0 {
			known[h.ID], h.End = true, max(h.End, end)
		}
		return h, true
	})
	t.ends(p, s)
	t.expiresAt(p, s.state.Until)
	for id := range known {
		pos, live := t.idBeside(p, s, id, now)
		if estimate := estimateOf(&s.state, t.words(s), id); live && estimate > 0 && !t.ring(p).at(pos).Settled() {
			arith.SetIDCost(t.ring(p).at(pos), estimate)
		}
	}
	return known
}

// estimateOf returns what the hold of an id has charged to each limit and still gives back; 0 if it gives
// nothing back.
func estimateOf(s *arith.State, words []uint64, id uint64) (sum uint64) {
	limit := uint64(0)
	for i := range int(s.A) {
		h := arith.HoldAt(words, i)
		if h.ID != id || h.Limit == 0 || limit != 0 && h.Limit != limit {
			continue
		}
		limit, sum = h.Limit, sum+h.Cost
	}
	return sum
}

// countedOf returns how much of what an id stands for, cost units, is counted here for sure: all of it, unless
// its hold came from another table.
func (t *Table) countedOf(p *partition, s *slot, id, cost uint64) uint64 {
	words, sum, limit, strange := t.words(s), uint64(0), uint64(0), false
	for i := range int(s.state.A) {
		h := arith.HoldAt(words, i)
		if h.ID != id {
			continue
		}
		strange = strange || h.Uncounted()
		if h.Limit != 0 && (limit == 0 || h.Limit == limit) && t.concurrency(p, s, &h) == nil {
			limit, sum = h.Limit, sum+h.Cost
		}
	}
	if strange {
		return sum
	}
	return cost
}

// charges reports whether the hold of an id has charged a limit, even if it gives nothing back.
func charges(s *arith.State, words []uint64, id uint64) bool {
	for i := range int(s.A) {
		if h := arith.HoldAt(words, i); h.ID == id && !h.Spared() {
			return true
		}
	}
	return false
}

// countHeld counts what holds have charged to the limits on concurrency of a partition that others
// were merged into. The larger of two counters has the units of one table, and the merger has the
// holds of both.
func (t *Table) countHeld(p *partition, entries []Entry) {
	if p.due == never && !slices.ContainsFunc(entries, func(e Entry) bool {
		return e.Limit.Algorithm() == limiter.Concurrency
	}) {
		return
	}
	for i := range p.slots.size {
		s := p.slots.at(i)
		l := t.registry.limit(s.limit)
		if s.limit == 0 || l.Algorithm() != limiter.Concurrency {
			continue
		}
		var holds slot
		if at, found := p.slots.find(s.place, s.lo^arith.NameID(l)^arith.NameID(t.ids.holds.limit)); found {
			holds = *p.slots.at(at)
		}
		arith.CountHeld(l, &s.state, &holds.state, t.words(&holds))
		t.expiresAt(p, s.state.EmptyAt(l, nil))
	}
}

// idAt names an id that is remembered.
type idAt struct{ place, lo uint64 }

// heldHere returns the ids of the holds of a closed partition that another table is to be merged into.
// It returns nil of any other partition.
func (t *Table) heldHere(p *partition, mode ImportMode) map[idAt]bool {
	if mode != Merge || p.number < Partitions || p.due == never { // never: the partition has no holds
		return nil
	}
	held := make(map[idAt]bool)
	for i := range p.slots.size {
		s := p.slots.at(i)
		if s.limit == 0 || t.registry.limit(s.limit).Algorithm() != arith.Holds {
			continue
		}
		key, words := s.lo^arith.NameID(t.ids.holds.limit), t.words(s)
		for j := range int(s.state.A) {
			if h := arith.HoldAt(words, j); h.Limit != 0 {
				held[idAt{t.order.of(t.order.hash(s.place) ^ h.ID), key ^ arith.NameID(t.ids.limit)}] = true
			}
		}
	}
	return held
}

// settledAlone reports whether an entry of a table that is merged into a closed partition is an id that was
// settled there, and that has no hold here. Such an id is left out. What it was settled with need not be counted
// here: the larger of two counters may be the one without it. Nor was anyone told that it is settled, unless this
// table knows it: the owner of a closed partition answers no settlement without its heir, which took over. So the
// id is here what it was: unknown, charged for good or settled. In other partitions a policy may have answered,
// and the id stands for what the answer said.
func (t *Table) settledAlone(p *partition, e *Entry, held map[idAt]bool) bool {
	return p.number >= Partitions && arith.IDParts(&e.State) == arith.SettledID && !held[idAt{t.order.of(e.Hi), e.Lo}]
}

// settleMerged settles the holds of a partition whose ids were settled in the table that is
// merged into this one: what that gave back or charged is given back or charged here. So it must come before the
// counters, the larger of which may be that of the other table, which has been settled already.
func (t *Table) settleMerged(p *partition, now limiter.Tick) {
	if p.due == never { // the partition has no holds
		return
	}
	for i := range p.slots.size {
		s := p.slots.at(i)
		if s.limit == 0 || t.registry.limit(s.limit).Algorithm() != arith.Holds {
			continue
		}
		for {
			id, estimate, actual := t.settledElsewhere(p, s, now)
			if id == 0 {
				break
			}
			switch {
			case estimate > actual:
				t.giveBackLast(p, s, id, now, estimate-actual)
			case actual > estimate:
				t.overdrawHeld(p, s, id, now, actual-estimate)
			}
			t.dropHold(p, s, id)
		}
	}
}

// isOver reports whether the id of a hold was settled. That of a spared hold has no parts before, either.
func isOver(id *arith.State, h *arith.Hold) bool {
	return id.Settled() && (!h.Spared() || arith.IDParts(id) == arith.SettledID)
}

// settledElsewhere returns the id of the first of some holds that is settled by the counter of
// its id, with the estimate that its limits were charged and what was used; 0 if there is none.
func (t *Table) settledElsewhere(p *partition, s *slot, now limiter.Tick) (id uint64, estimate, actual uint64) {
	words := t.words(s)
	for i := range int(s.state.A) {
		h := arith.HoldAt(words, i)
		pos, live := t.idBeside(p, s, h.ID, now)
		if !live || !isOver(t.ring(p).at(pos), &h) {
			continue
		}
		return h.ID, estimateOf(&s.state, words, h.ID), arith.IDCost(t.ring(p).at(pos))
	}
	return 0, 0, 0
}

// CancelHold takes back what a hold has charged to those limits of key i of a charge that have a
// bit in charged, and with forget ends it and forgets its id. It does nothing, and reports
// false, unless the id is remembered by the charge that was made at the instant at, and has a
// hold. It is safe for concurrent use.
func (t *Table) CancelHold(now limiter.Tick, c *arith.Charge, i int, at limiter.Tick, charged uint64,
	forget bool) bool {
	k := c.Key(i)
	p := &t.parts[PartitionOf(k)]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	t.arrive(p, k, now)
	_, pos, live := t.findID(now, c, k)
	s := t.findHolds(p, k)
	if !live || s == nil || !s.state.HoldsID(t.words(s), c.ID.ID) {
		return false
	}
	if id := t.ring(p).at(pos); arith.IDCharged(id) != at || arith.IDCost(id) != k.Cost {
		return false
	}
	back, words := make(map[uint64]bool), t.words(s)
	for n, l := range k.Rule.Limits {
		if charged&(1<<n) != 0 {
			back[arith.CountsID(l)] = true
		}
	}
	gone := func(h *arith.Hold) bool { return h.ID == c.ID.ID && h.Limit != 0 && back[h.Limit] }
	for i := range int(s.state.A) {
		if h := arith.HoldAt(words, i); gone(&h) {
			t.giveBack(p, s, i, now, h.Cost)
		}
	}
	s.state.EachHold(words, func(h arith.Hold) (arith.Hold, bool) {
		if !gone(&h) {
			return h, true
		}
		if h.First { // it stays, and gives nothing back any more
			h.Detach(true)
			return h, true
		}
		return h, false
	})
	if forget {
		t.dropHold(p, s, c.ID.ID)
		t.removeID(p, pos)
	}
	t.countAllSlots(p, s)
	return true
}
