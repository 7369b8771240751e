package table

import (
	"math"
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
func (b ledger) steady(words []uint64) {
	for i := range len(words) / arith.HoldWords {
		h := arith.HoldAt(words, i)
		if h.Limit == 0 {
			continue
		}
		if s, l := b.beside(h.Limit); s != nil {
			h.At = arith.Steady(l, &s.state, h.At)
			h.Put(words, i)
		}
	}
}

// idOf returns the id of a hold; nil if it is not remembered at now.
func (b ledger) idOf(id uint64, now limiter.Tick) *arith.State {
	g, at := b.p.table.ring(b.p), b.idAt(id)
	if pos := g.find(at.place, at.lo); pos >= 0 && g.at(pos).Time > now {
		return g.at(pos)
	}
	return nil
}

// idAt returns where the id of a hold is remembered.
func (b ledger) idAt(id uint64) idAt {
	t := b.p.table
	key := b.s.lo ^ arith.NameID(t.ids.holds.limit)
	return idAt{t.order.of(t.order.hash(b.s.place) ^ id), key ^ arith.NameID(t.ids.limit)}
}

// endID lets the id of a hold be forgotten when the hold ends, unless it stands for a cost then. An
// id is an entry of its own, which moves to another node when it changes, and a hold whenever its key
// does. Each time both end a little later or earlier by the clock there.
func (b ledger) endID(h *arith.Hold, now limiter.Tick) {
	id := b.idOf(h.ID, now)
	if id == nil || h.Keep || arith.IDParts(id) == arith.SettledID {
		return
	}
	id.Time = h.End
	b.p.expiresAt(max(h.End, arith.IDCharged(id)))
}

// replaced lets the ids of holds be forgotten that the next copy of a slot has no more: what was not settled or kept
// has ended where it came from. Here it would last longer, by as much as its copy was late. An id with another time
// than the hold has been made anew since. A slot of another counter has no holds.
func (b ledger) replaced(next ledger, now limiter.Tick) {
	if b.p.table.registry.limit(b.s.limit).Algorithm() != arith.Holds {
		return
	}
	at := 0 // of the next one in the copy, which has the same order
	for _, h := range b.all() {
		if next.exists() && at < int(next.s.state.A) && arith.HoldIs(next.words(), at, h.ID) {
			at++
			continue
		}
		if id := b.idOf(h.ID, now); id != nil && id.Time == h.End && !next.has(h.ID) {
			h.End = now
			b.endID(&h, now)
		}
	}
}

// endStray ends the hold that a key has of an id which is over or was never known: so is the hold. Its
// end comes with the key, and that comes late where the member stood still. It reports whether there
// was one.
func (p *partition) endStray(k *arith.Key, id uint64, now limiter.Tick) bool {
	if p.due == never { // the partition has no holds
		return false
	}
	b := p.ledgerOf(k)
	has := b.has(id)
	if has {
		b.endHolds(now, id)
	}
	return has
}

// strange prepares holds of another table, in a slot outside this one, to be merged. Those that are known
// here are what they are here, and end when the later of both does. Those that were settled here are left
// out, too. The others give nothing back, except to limits on concurrency, see countHeld. The other table may
// come twice: then all of them are known. The larger of two counters may be the one without their units. Those that
// it has are counted; who settles the hold is charged what was used beyond them. What is lent is returned, too: it is
// to be charged.
func (b ledger) strange(now limiter.Tick, by rises) (lent []arith.Hold) {
	known := b.lastUntil(now)
	b.each(func(h arith.Hold) (arith.Hold, bool) {
		if known[h.ID] {
			return h, false
		}
		if id := b.idOf(h.ID, now); id != nil && isOver(id, &h) {
			return h, false
		}
		switch {
		case h.Lent && h.Limit != 0:
			h.ChargedAt(now)
			lent = append(lent, h)
		case !h.Spared() && b.concurrency(&h) == nil:
			at := idAt{b.s.place, h.Charged()}
			by[at] -= h.Merge(by[at])
		}
		return h, true
	})
	return lent
}

// lastUntil lets the holds of a key last until the ends that another table has of them, and returns which
// it has. Their ids, which were merged before, stand for what the holds have charged here.
func (b ledger) lastUntil(now limiter.Tick) map[uint64]bool {
	known := make(map[uint64]bool)
	i, found := b.p.slots.find(b.s.place, b.s.lo)
	if !found {
		return known
	}
	ours := b.p.ledger(b.p.slots.at(i))
	ours.each(func(h arith.Hold) (arith.Hold, bool) {
		if end := b.hold(h.ID).standing().end; end != 0 {
			known[h.ID], h.End = true, max(h.End, end)
		}
		return h, true
	})
	ours.ends()
	b.p.expiresAt(ours.s.state.Until)
	for id := range known {
		of := ours.idOf(id, now)
		if estimate := ours.hold(id).estimate(); of != nil && estimate > 0 && !of.Settled() {
			arith.SetIDCost(of, estimate)
		}
	}
	return known
}

// estimate returns what the hold of an id has charged to each limit and still gives back; 0 if it gives
// nothing back.
func (x hold) estimate() (sum uint64) {
	limit := uint64(0)
	for _, h := range x.in.of(x.id) {
		if h.Limit != 0 && (limit == 0 || h.Limit == limit) {
			limit, sum = h.Limit, sum+h.Cost
		}
	}
	return sum
}

// counted is how much of what an id stands for is counted here for sure, by the [arith.CountsID] of the limit.
type counted struct {
	units  uint64            // of a limit that is not among these
	limits map[uint64]uint64 // see [hold.counted]
}

func (c counted) of(limit uint64) uint64 {
	if n, ok := c.limits[limit]; ok {
		return n
	}
	return c.units
}

// mostLacking returns how much of the cost of a key the counter lacks that lacks most.
func (c counted) mostLacking(k *arith.Key) (n uint64) {
	for _, l := range k.Rule.Limits {
		n = max(n, k.Cost-min(k.Cost, c.of(arith.CountsID(l))))
	}
	return n
}

// countedOf returns how much of what an id stands for, cost units, is counted here for sure: all of it, unless
// its hold came from another table. The counter of one limit may have of that what another one's lacks. A limit that
// the hold does not know is taken for the one that has least.
func (x hold) countedOf(cost uint64, has standing) counted {
	if !has.strange {
		return counted{units: cost}
	}
	out := counted{math.MaxUint64, x.counted()}
	for _, sum := range out.limits {
		out.units = min(out.units, sum)
	}
	if len(out.limits) == 0 {
		out.units = 0
	}
	return out
}

// counted returns how much of what a hold has charged to each limit is counted here, by limit.
func (x hold) counted() map[uint64]uint64 {
	sums := make(map[uint64]uint64)
	for _, h := range x.in.of(x.id) {
		if limit := h.Charged(); limit != 0 {
			sums[limit] += h.Counted()
		}
	}
	return sums
}

// countHeld counts what holds have charged to the limits on concurrency of a partition that others
// were merged into. The larger of two counters has the units of one table, and the merger has the
// holds of both.
func (p *partition) countHeld(entries []Entry) {
	if p.due == never && !slices.ContainsFunc(entries, func(e Entry) bool {
		return e.Limit.Algorithm() == limiter.Concurrency
	}) {
		return
	}
	for i := range p.slots.size {
		s := p.slots.at(i)
		l := p.table.registry.limit(s.limit)
		if s.limit == 0 || l.Algorithm() != limiter.Concurrency {
			continue
		}
		var holds slot
		if at, found := p.slots.find(s.place, s.lo^arith.NameID(l)^arith.NameID(p.table.ids.holds.limit)); found {
			holds = *p.slots.at(at)
		}
		arith.CountHeld(l, &s.state, &holds.state, p.table.words(&holds))
		p.expiresAt(s.state.EmptyAt(l, nil))
	}
}

// rises are by how many units a merger raised counters: of the key at a place by the [arith.CountsID] of the limit.
type rises map[idAt]uint64

// note adds what counts of a limit now and did not before.
func (r rises) note(l *limiter.Limit, s *slot, before, after *arith.State, now limiter.Tick) {
	if n := arith.Rise(l, before, after, now); r != nil && n > 0 {
		r[idAt{s.place, arith.CountsID(l)}] = n
	}
}

// idAt names an id that is remembered.
type idAt struct{ place, lo uint64 }

// heldHere returns the ids of the holds of a closed partition that another table is to be merged into.
// It returns nil of any other partition.
func (p *partition) heldHere(mode ImportMode) map[idAt]bool {
	if mode != Merge || p.number < Partitions || p.due == never { // never: the partition has no holds
		return nil
	}
	held := make(map[idAt]bool)
	for b := range p.ledgers() {
		for _, h := range b.all() {
			if h.Limit != 0 {
				held[b.idAt(h.ID)] = true
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
func (p *partition) settledAlone(e *Entry, held map[idAt]bool) bool {
	return p.number >= Partitions && arith.IDParts(&e.State) == arith.SettledID &&
		!held[idAt{p.table.order.of(e.Hi), e.Lo}]
}

// settleMerged settles the holds of a partition whose ids were settled in the table that is
// merged into this one: what that gave back or charged is given back or charged here. So it must come before the
// counters, the larger of which may be that of the other table, which has been settled already.
func (p *partition) settleMerged(now limiter.Tick) {
	if p.due == never { // the partition has no holds
		return
	}
	for b := range p.ledgers() {
		for id := b.settledElsewhere(now); id != 0; id = b.settledElsewhere(now) {
			h := b.hold(id)
			estimate, actual := h.estimate(), arith.IDCost(b.idOf(id, now))
			switch {
			case estimate > actual:
				h.giveBackLast(now, counted{units: estimate}, actual)
			case actual > estimate:
				h.overdraw(now, actual)
			}
			h.drop()
		}
	}
}

// isOver reports whether the id of a hold was settled. That of a spared hold has no parts before, either.
func isOver(id *arith.State, h *arith.Hold) bool {
	return id.Settled() && (!h.Spared() || arith.IDParts(id) == arith.SettledID)
}

// settledElsewhere returns the id of the first hold that is settled by the counter of its id; 0 if there is none.
func (b ledger) settledElsewhere(now limiter.Tick) uint64 {
	for _, h := range b.all() {
		if id := b.idOf(h.ID, now); id != nil && isOver(id, &h) {
			return h.ID
		}
	}
	return 0
}

// CancelHold takes back what a hold has charged to those limits of key i of a charge that have a
// bit in charged, and with forget ends it and forgets its id. It does nothing, and reports
// false, unless the id is remembered by the charge that was made at the instant at, and has a
// hold. It is safe for concurrent use.
func (t *Table) CancelHold(now limiter.Tick, c *arith.Charge, i int, at limiter.Tick, charged uint64,
	forget bool) bool {
	k := c.Key(i)
	return t.change(now, c, k, func(e *entry) bool {
		if !e.held() || !e.charged(at, k) {
			return false
		}
		back := make(map[uint64]bool)
		for n, l := range k.Rule.Limits {
			if charged&(1<<n) != 0 {
				back[arith.CountsID(l)] = true
			}
		}
		gone := func(h *arith.Hold) bool { return h.ID == e.id && h.Limit != 0 && back[h.Limit] }
		for i, h := range e.in.of(e.id) {
			if gone(&h) {
				e.in.giveBack(i, now, h.Cost)
			}
		}
		e.in.each(func(h arith.Hold) (arith.Hold, bool) {
			if !gone(&h) {
				return h, true
			}
			if h.First { // it stays, as one that has charged nothing: a settlement charges a rule in shadow nothing either
				h.Spare()
				return h, true
			}
			return h, false
		})
		if forget {
			e.forget()
		}
		e.in.countAllSlots()
		return true
	})
}
