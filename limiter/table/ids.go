package table

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// An id is remembered as a counter of its own for each key that was charged: the high half of
// its hash is that of the key, changed by the id, and the low half is the key's. So it is in
// the partition of the key, is copied, moved and merged like any counter, recovers when its
// time is over, and counts towards the bounds of the table. Only its memory is of its own: see
// [idRing].

// ids is what a table knows of ids, and of receipts that were used.
type ids struct {
	_         [32]byte               // so that each ring is in one cache line
	rings     [2 * Partitions]idRing // by partition; apart from those, since larger ones make checks without ids slower
	once      once
	limit     *limiter.Limit // of the counters that remember ids
	forgotten atomic.Int64   // ids that were not remembered for want of room
	holds     holds
}

// IDOf returns the hash of the counter that remembers an id for a key. Its low half is the
// key's, so both are in one partition.
func IDOf(k *arith.Key, id uint64) arith.Hash {
	return arith.Hash{Hi: k.Hash.Hi ^ id, Lo: k.Hash.Lo}
}

// placeOfID returns the place of the counter that remembers an id for a key, and the low half of
// its identity.
func (t *Table) placeOfID(k *arith.Key, id uint64) (place, lo uint64) {
	h := IDOf(k, id)
	return t.order.of(h.Hi), h.Lo ^ arith.NameID(t.ids.limit)
}

// findID returns the position of the id of a charge for a key, -1 if it is unknown, and whether it is
// remembered at now.
func (t *Table) findID(now limiter.Tick, c *arith.Charge, k *arith.Key) (p *partition, pos int, live bool) {
	p = &t.parts[PartitionOf(k)]
	pos = t.ring(p).find(t.placeOfID(k, c.ID.ID))
	return p, pos, pos >= 0 && t.ring(p).at(pos).Time > now
}

// remembered returns the keys that a charge costs something, and those of them for which its
// id is remembered, as bits. The partitions are locked.
func (t *Table) remembered(now limiter.Tick, c *arith.Charge) (charged, known uint16) {
	for i := range c.Len() {
		k := c.Key(i)
		if k.Cost == 0 {
			continue
		}
		charged |= 1 << i
		if _, _, live := t.findID(now, c, k); live {
			known |= 1 << i
		}
	}
	return charged, known
}

// decideOnce is decide for a charge with an id.
func (t *Table) decideOnce(now limiter.Tick, c *arith.Charge, d *limiter.Decision, final bool) outcome {
	if c.Len() == 1 && t.decideNew(now, c, d) {
		return decided
	}
	for i := range c.Len() {
		place, _ := t.placeOfID(c.Key(i), c.ID.ID)
		t.fetchBoth(&t.parts[PartitionOf(c.Key(i))], t.order.of(c.Key(i).Hash.Hi), place)
	}
	charged, known := t.remembered(now, c)
	id := c.ID
	switch {
	case known != 0 && t.spent(c, known):
		return spent
	case charged != 0 && known == charged:
		t.repeat(now, c, d)
		return decided
	case known != 0:
		return t.decideRest(now, c, d, final, known)
	}
	n := int64(bits.OnesCount16(charged))
	if c.Peek {
		n = 0
	}
	for i := 0; i < c.Len() && id.Hold > 0 && n > 0; i++ {
		if charged&(1<<i) != 0 { // its id may be known for another key
			t.parts[PartitionOf(c.Key(i))].endStray(c.Key(i), id.ID, now)
		}
	}
	r, room := t.reserveOnce(c, charged, n)
	if !room && !final {
		return noRoom
	}
	wait := t.room.wait(now)
	if !room && r.bound == BoundHolds {
		wait = max(1, t.holdEnds(now, c)-now)
		if id.Lent {
			wait = max(wait, limiter.Second) // one of its key ends then, at the earliest worth asking
		}
	}
	c.ID = nil // so that decide decides as for any charge
	defer func() { c.ID = id }()
	if !room && id.Hold > 0 && (t.room.overflow == OverflowDeny || id.Lent) {
		return t.denyHold(now, c, d, r.bound, wait)
	}
	result := t.decide(now, c, d, final)
	c.ID = id
	switch {
	case !room && result == decided && d.Allowed:
		t.ids.forgotten.Add(n)
	case !room:
	case result == decided && d.Allowed && n > 0:
		t.remember(now, c, d, r.id)
		r.ids = 0
		if id.Hold > 0 {
			t.hold(now, c, d, &r)
		}
		t.room.unreserveOnce(r)
	default:
		t.room.unreserveOnce(r)
	}
	return result
}

// The ids of one key are at most an idsOfKey-th of MaxKeys: else those of a few keys would take the
// room of all others. They lie in one partition, so the counters of that are compared: usually it
// has a thousandth of all. Holds find room there up to twice as many. See crowdPart for how ended ones make room.
const (
	idsOfKey = 16
	fewOfKey = 64 // also in a small table
	forHolds = 2
)

// crowdedByIDs reports whether the partition of a key of a charge has no room for ids of one key.
func (t *Table) crowdedByIDs(c *arith.Charge) bool {
	most := max(t.room.maxKeys/idsOfKey, fewOfKey)
	if c.ID.Hold > 0 {
		most *= forHolds
	}
	for i := range c.Len() {
		if k := c.Key(i); k.Cost > 0 && int64(t.parts[PartitionOf(k)].used()) >= most {
			return true
		}
	}
	return false
}

// reserveIDs counts n new counters for the id of a charge, and reports whether there is room
// for them, or else what left none: ids take at most half of the counters of a table, copies not counted.
func (t *Table) reserveIDs(c *arith.Charge, n int64) (number uint16, bound Bound, room bool) {
	if n == 0 {
		return 0, 0, true
	}
	for i := range n {
		if number = t.registry.id(t.ids.limit, nil, 0); number == 0 {
			return 0, BoundTable, false
		}
		if i > 0 {
			continue
		}
		if held := t.registry.count(number).slots.Load() + n - 1; 2*held > t.room.maxKeys+t.room.copied.Load() {
			t.registry.release(number, 1)
			return 0, BoundTable, false
		}
	}
	need := int64(0)
	for i := range c.Len() {
		need += t.ids.rings[PartitionOf(c.Key(i))].growth(int(n))
	}
	full := t.room.keys.Add(n)-t.room.copied.Load() > t.room.maxKeys || need > t.room.left()
	asks := asked{keys: n, noted: n, ids: n, held: t.registry.count(number).slots.Load()}
	switch {
	case t.room.beyondTenant(c.Key(0).Hash.Lo, asks):
		bound = BoundTenant
	case !full:
		return number, 0, true
	}
	t.room.unreserveIDs(number, n)
	return 0, bound, false
}

// remember remembers the id of a charge that was made, for each key that it costs something. It has
// been counted.
func (t *Table) remember(now limiter.Tick, c *arith.Charge, d *limiter.Decision, number uint16) {
	n := 0
	for i := range c.Len() {
		k := c.Key(i)
		if k.Cost > 0 {
			p, pos, _ := t.findID(now, c, k)
			switch {
			case pos >= 0: // its time was over, or two keys are equal
				p.removeID(pos)
			case t.ring(p).full() && p.popID(now):
				t.room.unreserveIDs(number, 1)
			}
			place, lo := t.placeOfID(k, c.ID.ID)
			p.addID(place, lo, idState(now, c.ID, k, chargedOf(&d.Receipt, n, k)), number, now)
			c.ID.Came |= 1 << i
		}
		n += len(k.Rule.Limits)
	}
}

// rememberedUntil returns when the id of a charge is forgotten: that of a hold with the hold,
// unless the charge is kept then.
func rememberedUntil(now limiter.Tick, id *arith.Idempotency) limiter.Tick {
	switch {
	case id.Hold == 0:
		return now + limiter.Span(id.Life)
	case id.Keep:
		return now + limiter.Span(id.Hold) + limiter.Span(id.Life)
	default:
		return now + limiter.Span(id.Hold)
	}
}

// chargedOf returns which limits of a key a receipt names, as bits. n is the index of the
// first of them in the decision.
func chargedOf(r *limiter.Receipt, n int, k *arith.Key) uint64 {
	return arith.Fields(r).Charged >> n & (1<<len(k.Rule.Limits) - 1)
}

// repeat answers a charge whose id is remembered, and changes nothing. The receipt is that of
// the charge that was made, if it had the same costs and was one charge.
func (t *Table) repeat(now limiter.Tick, c *arith.Charge, d *limiter.Decision) {
	t.look(now, c, d)
	made := arith.Fields(&d.Receipt)
	n, same := 0, true
	for i := range c.Len() {
		k := c.Key(i)
		if k.Cost > 0 {
			p, pos, _ := t.findID(now, c, k)
			s := t.ring(p).at(pos)
			same = same && arith.IDCost(s) == k.Cost && (made.Time == 0 || made.Time == arith.IDCharged(s))
			made.Time = arith.IDCharged(s)
			made.Charged |= uint64(arith.IDParts(s)&^arith.SettledID) << n
		}
		n += len(k.Rule.Limits)
	}
	if !same || made.Charged == 0 {
		d.Receipt = limiter.Receipt{}
	}
	arith.Conclude(d)
}

// look fills in what each limit of a charge says now, as if it admitted it.
func (t *Table) look(now limiter.Tick, c *arith.Charge, d *limiter.Decision) {
	total := 0
	for i := range c.Len() {
		total += len(c.Key(i).Rule.Limits)
	}
	d.Grow(total)
	n := 0
	for i := range c.Len() {
		k := c.Key(i)
		p, place := &t.parts[PartitionOf(k)], t.order.of(k.Hash.Hi)
		for _, l := range k.Rule.Limits {
			out := d.Limit(n)
			n++
			begin(out, k, i, l)
			var none slot
			none.place, none.lo = place, identity(k, l)
			p.countSlots(&none, l)
			s, words, seen := &none, []uint64(nil), l
			if at, found := p.slots.find(place, identity(k, l)); found {
				had := p.slots.at(at).limit
				if of := p.look(p.slots.at(at), l, k, now); of != nil {
					s, seen = p.slots.at(at), of
					words = t.words(s)
					convert(c, i, had, s)
				}
			}
			used := s.state.Probe(seen, words, now, out)
			out.Allowed, out.Never = true, false
			s.state.Report(seen, words, now, used, 0, false, out)
		}
	}
	arith.Repeat(d)
}

// decideRest decides a charge whose id is remembered for some of its keys, such as after others
// were lost with the member that held them: the others alone are charged.
func (t *Table) decideRest(now limiter.Tick, c *arith.Charge, d *limiter.Decision, final bool, known uint16) outcome {
	var (
		rest  = arith.Charge{ID: c.ID, Peek: c.Peek}
		index [limiter.MaxKeys]int // in c, of each key of rest
		first [limiter.MaxKeys]int // the first limit of each key of rest, in c
		n     int
	)
	for i := range c.Len() {
		k := c.Key(i)
		if known&(1<<i) == 0 {
			index[rest.Len()], first[rest.Len()] = i, n
			rest.Add(*k)
		}
		n += len(k.Rule.Limits)
	}
	result := t.decideOnce(now, &rest, d, final)
	c.ID.Came = 0 // it has those of rest
	if result != decided {
		return result
	}
	for i := range rest.Len() {
		c.Unnamed |= rest.Unnamed >> i & 1 << index[i]
		c.Converted |= rest.Converted >> i & 1 << index[i]
	}
	if !d.Allowed {
		for i := range d.Len() {
			d.Limit(i).Key = index[d.Limit(i).Key]
		}
		return decided
	}
	made, shadow, n := d.Receipt, d.ShadowDenied, 0
	var would []limiter.LimitDecision // deny, of rules in shadow
	for j := range d.Len() {
		if l := *d.Limit(j); !l.Allowed {
			l.Key = index[l.Key]
			would = append(would, l)
		}
	}
	t.look(now, c, d)
	for j := range d.Len() {
		l := d.Limit(j)
		if len(would) > 0 && l.Key == would[0].Key && l.Limit == would[0].Limit {
			*l, would = would[0], would[1:]
		}
	}
	d.Repeated, d.ShadowDenied = false, shadow
	d.Receipt = arith.NewReceipt(arith.ReceiptFields{Time: arith.Fields(&made).Time})
	for i := range rest.Len() {
		arith.Fields(&d.Receipt).Charged |= chargedOf(&made, n, rest.Key(i)) << first[i]
		n += len(rest.Key(i).Rule.Limits)
	}
	arith.Conclude(d)
	return decided
}

// forgetIDs forgets the id of a charge that is taken back, for the keys where the receipt is of
// the charge by which it is remembered, and its hold, which gives back what it has charged. It returns the receipt
// with those limits that are still to be given back: without those of keys where the id is remembered by another charge
// (that of the receipt is not made any more, or was made by a later check), and of those where it was that of a hold
// which is over, since what that has charged was given back when it ended. Keys of other partitions than the given one
// are left alone.
func (t *Table) forgetIDs(now limiter.Tick, c *arith.Charge, r limiter.Receipt, only int) limiter.Receipt {
	f := arith.Fields(&r)
	n := 0
	for i := range c.Len() {
		k := c.Key(i)
		if charged := chargedOf(&r, n, k); k.Cost > 0 && isIn(k, only) {
			rest := uint64(0)
			known := t.change(now, c, k, func(e *entry) bool {
				if e.charged(f.Time, k) && uint64(arith.IDParts(e.state())) == charged {
					e.letGo()
					rest = charged &^ e.giveBackAll(k, now)
					e.forget()
				}
				return true
			})
			if !known && c.ID.Hold == 0 {
				rest = charged
			}
			f.Charged &^= (charged &^ rest) << n
		}
		n += len(k.Rule.Limits)
	}
	return r
}

// explainID adds to an explanation that the id of its charge is remembered. Keys for which it is deny nothing.
func (t *Table) explainID(now limiter.Tick, c *arith.Charge, d *limiter.Decision, out []limiter.LimitExplanation) {
	charged, known := t.remembered(now, c)
	if known == 0 {
		return
	}
	for i := range out {
		l := d.Limit(i)
		if known&(1<<l.Key) == 0 {
			continue
		}
		p, pos, _ := t.findID(now, c, c.Key(l.Key))
		until := t.ring(p).at(pos).Time
		out[i].State = append(out[i].State, limiter.Field{Name: "id remembered until", Value: stamp(until)})
		arith.Admit(l)
	}
	d.Rule = "" // that of a denial
	if arith.Combine(d, true); known == charged {
		arith.Repeat(d)
	}
	arith.Conclude(d)
}

// NoIDs is a number after which no id has come to any partition, see [Table.ExportIDs].
const NoIDs = math.MaxUint64

// ExportIDs is Export for the ids that came to a partition after so many, in the order in which they came, perhaps with
// some that came before. It returns how many came in all; visit may be nil.
func (t *Table) ExportIDs(part int, after uint64, now limiter.Tick, visit func(ID)) (came uint64) {
	p, err := t.partition(part)
	if err != nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if visit == nil || p.came <= after {
		return p.came
	}
	p.advance(now)
	p.arriveAll(now)
	g := t.ring(p)
	for i := g.n - uint32(min(p.came-after, uint64(g.n))); i < g.n; i++ {
		e := &g.ring[g.position(g.numberOf(i))]
		if out := (ID{t.order.hash(e.place), e.lo, e.state}); arith.ExportID(&out.State, now) { // also if it was taken out
			visit(out)
		}
	}
	return p.came
}
