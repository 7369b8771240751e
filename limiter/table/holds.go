package table

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// The holds of a key lie beside its counters, as the words of one more counter. Before anything
// else looks at the counters of a key, the holds that are over are taken off it, each as of the
// instant at which it ended. So nobody sees a hold that is over, however late that is.

// holds is what a table knows of holds.
type holds struct {
	limit   *limiter.Limit // of the counters that keep holds
	live    atomic.Int64   // holds in the table, each once for every key
	expired atomic.Int64   // holds that ended unsettled
	over    atomic.Int64   // units that were charged beyond a limit
}

// arrive takes the holds of a key that are over off its counters. The partition is locked.
func (p *partition) arrive(k *arith.Key, now limiter.Tick) {
	if p.due > now {
		return
	}
	if b := p.ledgerOf(k); b.exists() {
		b.expire(now)
		loans{b}.renew(now)
	}
}

// arriveAll is arrive for all keys of a partition.
func (p *partition) arriveAll(now limiter.Tick) {
	if p.due > now {
		return
	}
	if p.ends <= now {
		p.due, p.ends, p.lending = never, never, p.lending[:0]
		for b := range p.ledgers() {
			b.expire(now)
			b.ends()
		}
	}
	p.lending.renew(p, now)
}

// ends records when the first of some holds ends, and whether something of their key is lent.
func (b ledger) ends() {
	if b.s.state.A == 0 {
		return
	}
	b.p.ends = min(b.p.ends, b.s.state.Time)
	if b.p.lending.note(b); len(b.p.lending) == 0 {
		b.p.due = b.p.ends
	}
}

// expire takes off the holds in a slot that are over at now, in the order of their ends. No
// slot moves.
func (b ledger) expire(now limiter.Tick) {
	if b.s.state.A > 0 && b.s.state.Time <= now {
		b.endHolds(now, 0)
	}
}

// endHolds is expire for the holds that are over, and for that of an id whatever its end is.
func (b ledger) endHolds(now limiter.Tick, id uint64) {
	words := b.words()
	over := func(h *arith.Hold) bool { return h.End <= now || h.ID == id }
	type ended struct {
		end limiter.Tick
		at  int // the index of its entry
	}
	var due []ended
	for i, h := range b.all() {
		if over(&h) {
			due = append(due, ended{min(h.End, now), i})
		}
	}
	slices.SortStableFunc(due, func(a, b ended) int { return cmp.Compare(a.end, b.end) })
	for _, e := range due {
		h := arith.HoldAt(words, e.at)
		h.End = e.end
		if h.First {
			b.p.table.ids.holds.live.Add(-1)
			if !b.p.table.copies[b.p.number].on { // the owner counts it
				b.p.table.ids.holds.expired.Add(1)
			}
		}
		b.endID(&h, now)
		if h.Lent {
			loans{b}.charge(e.at, e.end)
		}
		if !h.Keep {
			b.giveBack(e.at, e.end, h.Cost)
		}
	}
	b.each(func(h arith.Hold) (arith.Hold, bool) { return h, !over(&h) })
	b.countAllSlots()
	b.p.expiresAt(b.s.state.Until)
}

// giveBack gives n units of entry i in a slot of holds back to the limit that it charged, and returns the slot
// of that limit; nil if there is none.
func (b ledger) giveBack(i int, now limiter.Tick, n uint64) *slot {
	words := b.words()
	h := arith.HoldAt(words, i)
	if h.Limit == 0 {
		return nil
	}
	s, l := b.beside(h.Limit)
	if s == nil {
		return nil
	}
	arith.GiveBack(l, &s.state, b.p.table.words(s), &b.s.state, words, i, now, b.p.clock, n)
	b.p.expiresAt(s.state.EmptyAt(l, b.p.table.words(s)))
	return s
}

// noteCharge tells the holds of a key of a charge of n units to one of its counters, before it is made; with n = 0,
// before the counter is raised otherwise. lo is the low half of the key's hash.
func (p *partition) noteCharge(place, lo uint64, l *limiter.Limit, c *arith.Counts, now limiter.Tick, n uint64) {
	if p.due == never || !arith.Affects(l, c, now, n) { // without holds there is nothing to tell
		return
	}
	if i, found := p.slots.find(place, lo^arith.NameID(p.table.ids.holds.limit)); found {
		s := p.slots.at(i)
		arith.NoteCharge(l, c, &s.state, p.table.words(s), now, n)
	}
}

// beside returns the counter of the key of some holds whose limit counts by id, see
// [arith.CountsID]; nil if there is none.
func (b ledger) beside(id uint64) (*slot, *limiter.Limit) {
	key := b.s.lo ^ arith.NameID(b.p.table.ids.holds.limit)
	i, found := b.p.slots.findKey(b.s.place)
	if !found {
		return nil, nil
	}
	for s := b.p.slots.at(i); s.limit != 0 && s.place == b.s.place; s = b.p.slots.at(i) {
		if l := b.p.table.registry.limit(s.limit); l.Algorithm() < arith.Remembered && s.lo^arith.NameID(l) == key &&
			arith.CountsID(l) == id {
			return s, l
		}
		i++
	}
	return nil, nil
}

// follow lets what was charged to the counter in a slot come back to it as one of l, if it can, see [arith.Follow].
func follow(b ledger, s *slot, l, old *limiter.Limit, now limiter.Tick) bool {
	if !b.exists() {
		return false
	}
	s.state.Roll(old, b.p.table.words(s), now)
	return arith.Follow(l, old, &s.state, &b.s.state, b.words(), now)
}

// strip prevents that anything is given back to a counter: it was reset, or its limit counts otherwise from now on. id
// is the [arith.CountsID] of the limit.
func strip(b ledger, id uint64) {
	if !b.exists() {
		return
	}
	b.each(func(h arith.Hold) (arith.Hold, bool) {
		if h.Limit == id && !h.Lent {
			h.Detach()
		}
		return h, true
	})
}

// reserved is the room that a charge with an id has reserved.
type reserved struct {
	id, hold   uint16 // numbers of the limits
	ids, holds int64  // counters
	bound      Bound  // what left no room
}

// reserveOnce reserves room for the id of a charge, and for its hold if it has one, for n
// keys. A charge that finds none has reserved nothing.
func (t *Table) reserveOnce(c *arith.Charge, charged uint16, n int64) (r reserved, room bool) {
	if n > 0 && t.crowdedByIDs(c) {
		return reserved{bound: BoundHolds}, false
	}
	if r.id, r.bound, room = t.reserveIDs(c, n); !room {
		return reserved{bound: r.bound}, false
	}
	r.ids = n
	if c.ID.Hold > 0 && n > 0 && !t.reserveHolds(c, charged, &r) {
		t.room.unreserveOnce(r)
		return reserved{bound: r.bound}, false
	}
	return r, true
}

// reserveHolds reserves room for the holds of the keys that are charged: a counter for each, and
// the words.
func (t *Table) reserveHolds(c *arith.Charge, charged uint16, r *reserved) bool {
	fresh := int64(0)
	for i := range c.Len() {
		if charged&(1<<i) == 0 {
			continue
		}
		k, have, words := c.Key(i), 0, 0
		fresh++ // also for a key that has a counter of holds: an empty one may be swept meanwhile
		if b := t.parts[PartitionOf(k)].ledgerOf(k); b.exists() {
			have, words = int(b.s.state.A), len(b.words())
		}
		more := max(1, len(k.Rule.Limits))
		if c.ID != nil && c.ID.Rate > 0 {
			more += (loans{}).windows(k)
		}
		if c.ID != nil && c.ID.Lent && (loans{t.parts[PartitionOf(k)].ledgerOf(k)}).count()+more > MaxLoans {
			r.bound = BoundHolds
			return false
		}
		need := (have + more) * arith.HoldWords
		if have+more > limiter.MaxHoldEntries {
			r.bound = BoundHolds
			return false
		}
		if need > words && !t.room.slab.fits(need, t.room.left()) {
			return false
		}
	}
	number := uint16(0)
	for i := range fresh {
		last := number
		if number = t.registry.id(t.ids.holds.limit, nil, 0); number == 0 {
			t.registry.release(last, i)
			return false
		}
	}
	r.hold, r.holds = number, fresh // unreserveOnce takes them back
	t.room.keys.Add(fresh)
	held := t.registry.count(number).slots.Load()
	if r.ids > 0 {
		held += t.registry.count(r.id).slots.Load()
	}
	more := r.ids + fresh
	if t.room.beyondTenant(c.Key(0).Hash.Lo, asked{keys: more, noted: more, ids: more, held: held}) {
		r.bound = BoundTenant
		return false
	}
	return 2*held <= t.room.maxKeys+t.room.copied.Load() && t.room.keys.Load()-t.room.copied.Load() <= t.room.maxKeys &&
		(t.growthOfHolds(c, r.ids, fresh, (*slots).growthBound) <= t.room.left() ||
			t.growthOfHolds(c, r.ids, fresh, (*slots).growth) <= t.room.left())
}

// growthOfHolds returns the memory that the ids and the holds of a charge need.
func (t *Table) growthOfHolds(c *arith.Charge, ids, holds int64, growth func(*slots, int) int64) (need int64) {
	for i := range c.Len() {
		p := &t.parts[PartitionOf(c.Key(i))]
		need += t.ring(p).growth(int(ids)) + growth(&p.slots, int(holds))
	}
	return need
}

// hold notes what an allowed charge has charged to the keys that it costs something. It moves
// slots.
func (t *Table) hold(now limiter.Tick, c *arith.Charge, d *limiter.Decision, r *reserved) {
	n := 0
	for i := range c.Len() {
		k := c.Key(i)
		if k.Cost > 0 {
			t.holdKey(now, c.ID, k, chargedOf(&d.Receipt, n, k), r)
			t.refused(now, c.ID.ID, k, d, n)
		}
		n += len(k.Rule.Limits)
	}
}

// holdKey notes what a hold has charged to the limits of a key that charged has bits for. The
// hold begins with its first entry.
func (t *Table) holdKey(now limiter.Tick, id *arith.Idempotency, k *arith.Key, charged uint64, r *reserved) {
	p := &t.parts[PartitionOf(k)]
	b := p.ledgerOf(k)
	if !b.exists() {
		e := slot{place: t.order.of(k.Hash.Hi), lo: identity(k, t.ids.holds.limit), limit: r.hold}
		r.holds--
		p.insert(e, now)
		b = p.ledgerOf(k)
	}
	s := b.s
	need := (int(s.state.A) + max(1, len(k.Rule.Limits))) * arith.HoldWords
	words, ok := p.room(t.ids.holds.limit, s, b.words(), need, math.MaxInt64)
	if !ok {
		return // the slab has no number left: the charge is final
	}
	h := arith.Hold{ID: id.ID, End: now + limiter.Span(id.Hold), At: now, Cost: k.Cost, Keep: id.Keep, Lent: id.Lent,
		Sliced: id.Rate > 0}
	h.First = !b.has(id.ID)
	if h.First {
		h.Shape = id.Shape
		t.ids.holds.live.Add(1)
	}
	if charged == 0 {
		spare := h
		spare.Spare()
		s.state.AddHold(words, spare)
	}
	for j, l := range k.Rule.Limits {
		if charged&(1<<j) != 0 {
			at, found := p.slots.find(s.place, identity(k, l))
			if h.Limit = arith.CountsID(l); found {
				h.Limit = arith.CountsID(t.registry.limit(p.slots.at(at).limit)) // perhaps still that of before, see arith.Stays
			}
			s.state.AddHold(words, h)
			h.First = false
			if found && arith.ByHit(l) {
				arith.NoteHold(l, &p.slots.at(at).state, &s.state, words)
			}
		}
	}
	b.ends()
	p.expiresAt(s.state.Until)
	b.hold(id.ID).occupy(k.Cost, h.End)
}

// refused notes which limits of a key charged a hold though they had no room for it, as those of a shadow rule
// may. They are those of a decision from n on.
func (t *Table) refused(now limiter.Tick, id uint64, k *arith.Key, d *limiter.Decision, n int) {
	for j, l := range k.Rule.Limits {
		if d.Limit(n+j).Allowed || l.CountRejected() != limiter.CountAll {
			continue
		}
		p := &t.parts[PartitionOf(k)]
		b := p.ledgerOf(k)
		at, found := p.slots.find(b.s.place, identity(k, l))
		if !found {
			continue
		}
		s := p.slots.at(at)
		of := t.registry.limit(s.limit)
		for i, h := range b.of(id) {
			if h.Limit == arith.CountsID(of) && h.At == now {
				h.Refused(of, &s.state, now)
				h.Put(b.words(), i)
			}
		}
	}
}

// drop removes a hold, and gives back nothing.
func (x hold) drop() {
	x.in.each(func(h arith.Hold) (arith.Hold, bool) {
		if h.ID == x.id && h.First {
			x.in.p.table.ids.holds.live.Add(-1)
		}
		return h, h.ID != x.id
	})
	x.in.p.expiresAt(x.in.s.state.Until)
}

// denyHold decides a check whose hold finds no room: it is denied, whatever the limits say, and
// charges nothing. There may be room after the wait.
func (t *Table) denyHold(now limiter.Tick, c *arith.Charge, d *limiter.Decision, bound Bound,
	wait limiter.Tick) outcome {
	peek := c.Peek
	c.Peek = true
	result := t.decide(now, c, d, true)
	c.Peek = peek
	if result != decided || !d.Allowed {
		return result
	}
	for i := range d.Len() {
		l := d.Limit(i)
		l.Overflow, l.Allowed, l.Remaining, l.RetryAfter = true, false, 0, wait.Duration()
	}
	arith.Combine(d, true)
	arith.Conclude(d)
	t.room.recordFull(now, bound, d.Limit(0), c.Key(0).Hash.Lo)
	return decided
}

// holdEnds returns the earliest instant at which a bound on the holds or ids of one key may leave room for a
// charge.
func (t *Table) holdEnds(now limiter.Tick, c *arith.Charge) (at limiter.Tick) {
	for i := range c.Len() {
		k := c.Key(i)
		if b := t.parts[PartitionOf(k)].ledgerOf(k); b.exists() && k.Cost > 0 {
			at = max(at, arith.EntriesEnd(&b.s.state, b.words(), limiter.MaxHoldEntries-max(1, len(k.Rule.Limits))))
		}
	}
	if t.crowdedByIDs(c) {
		first := never
		for i := range c.Len() {
			g := t.ring(&t.parts[PartitionOf(c.Key(i))])
			for _, e := range g.ring {
				if e.state.Time > now {
					first = min(first, e.state.Time)
				}
			}
		}
		if first != never {
			at = max(at, first)
		}
	}
	return at
}

// countHolds adds the holds of a slot to those of the table, or takes them off.
func (t *Table) countHolds(s *slot, l *limiter.Limit, sign int) {
	if l.Algorithm() == arith.Holds {
		t.ids.holds.live.Add(int64(sign * s.state.CountHolds(t.words(s))))
	}
}
