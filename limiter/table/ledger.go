package table

import (
	"iter"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// ledger is what a partition keeps of the charges of one key that can still change: the entries of its holds, in one
// slot beside its counters, and the ids by which these are known. Two ledgers of one key may be at hand: that of this
// table, and one that came from another.
type ledger struct {
	p *partition
	s *slot
}

// ledger returns the one whose entries are in a slot.
func (p *partition) ledger(s *slot) ledger { return ledger{p, s} }

// ledgerOf returns that of a key, which may not exist.
func (p *partition) ledgerOf(k *arith.Key) ledger {
	return p.ledgerAt(p.table.order.of(k.Hash.Hi), k.Hash.Lo)
}

// ledgerAt is ledgerOf for the key at a place, with the low half of its hash.
func (p *partition) ledgerAt(place, lo uint64) ledger {
	i, found := p.slots.find(place, lo^arith.NameID(p.table.ids.holds.limit))
	if !found {
		return ledger{p: p}
	}
	return p.ledger(p.slots.at(i))
}

// ledgers are those of all keys that have one.
func (p *partition) ledgers() iter.Seq[ledger] {
	return func(yield func(ledger) bool) {
		for i := range p.slots.size {
			s := p.slots.at(i)
			if s.limit != 0 && p.table.registry.limit(s.limit).Algorithm() == arith.Holds && !yield(p.ledger(s)) {
				return
			}
		}
	}
}

// exists reports whether the key has entries, or had some.
func (b ledger) exists() bool { return b.s != nil }

// words are those of the entries.
func (b ledger) words() []uint64 { return b.p.table.words(b.s) }

// has reports whether an id has a hold. There may be no ledger.
func (b ledger) has(id uint64) bool { return b.exists() && b.s.state.HoldsID(b.words(), id) }

// all are the entries, with their numbers, in the order in which they were made. There may be no ledger.
func (b ledger) all() iter.Seq2[int, arith.Hold] {
	return func(yield func(int, arith.Hold) bool) {
		if !b.exists() {
			return
		}
		words := b.words()
		for i := range int(b.s.state.A) {
			if !yield(i, arith.HoldAt(words, i)) {
				return
			}
		}
	}
}

// of are those of the hold of an id.
func (b ledger) of(id uint64) iter.Seq2[int, arith.Hold] {
	return func(yield func(int, arith.Hold) bool) {
		if !b.exists() {
			return
		}
		words := b.words()
		for i := range int(b.s.state.A) {
			if arith.HoldIs(words, i, id) && !yield(i, arith.HoldAt(words, i)) {
				return
			}
		}
	}
}

// each calls f for each entry, see [arith.State.EachHold].
func (b ledger) each(f func(arith.Hold) (_ arith.Hold, stays bool)) {
	limits := func(counts uint64) *limiter.Limit { _, l := b.beside(counts); return l }
	b.s.state.EachHold(b.words(), limits, f)
}

// hold is the hold that the entries of one id are. There may be none.
type hold struct {
	in ledger
	id uint64
}

func (b ledger) hold(id uint64) hold { return hold{b, id} }

// standing is what all entries of a hold say together.
type standing struct {
	held    bool // there are such
	lent    bool // it is a lease
	sliced  bool // it is a slice
	charged bool // it has charged a limit, even if it gives nothing back
	strange bool // some of it may not be counted here
	shape   arith.Shape
	end     limiter.Tick // 0 if there are none
}

// standing returns that of a hold. There may be no ledger.
func (x hold) standing() (s standing) {
	for _, h := range x.in.of(x.id) {
		if !s.held {
			s.end = h.End // as that of all others
		}
		s.held, s.lent, s.sliced = true, s.lent || h.Lent, s.sliced || h.Sliced
		s.charged, s.strange = s.charged || !h.Spared(), s.strange || h.Uncounted()
		s.shape = max(s.shape, h.Shape)
	}
	return s
}

// entry is what is known of the charge that a key got by an id: the id, which stands for the charge as long as it is
// remembered, and beside it a hold while the charge can still change.
type entry struct {
	hold
	pos int // of the id, in the ring of the partition
}

// entry returns that of a charge's ID for a key, and whether it is known at now. The partition is locked.
func (t *Table) entry(now limiter.Tick, c *arith.Charge, k *arith.Key) (e entry, known bool) {
	p, pos, known := t.findID(now, c, k)
	if !known {
		return entry{}, false
	}
	return entry{p.ledgerOf(k).hold(c.ID.ID), pos}, true
}

// state is that of the id.
func (e *entry) state() *arith.State { return e.in.p.table.ring(e.in.p).at(e.pos) }

// cost returns the units for which the id is remembered.
func (e *entry) cost() uint64 { return arith.IDCost(e.state()) }

// held reports whether the charge has a hold.
func (e *entry) held() bool { return e.in.has(e.id) }

// charged reports whether the charge was made at an instant, for the cost of a key.
func (e *entry) charged(at limiter.Tick, k *arith.Key) bool {
	return arith.IDCharged(e.state()) == at && e.cost() == k.Cost
}

// forget forgets the charge and the id. Nothing is given back.
func (e *entry) forget() {
	if e.held() {
		e.drop()
	}
	e.in.p.removeID(e.pos)
}

// change calls f with the entry of a charge's ID for a key, if it is known, with the partition locked. It returns
// what f returns, else false. It is safe for concurrent use.
func (t *Table) change(now limiter.Tick, c *arith.Charge, k *arith.Key, f func(e *entry) bool) bool {
	if c.ID == nil || k.Cost == 0 {
		return false
	}
	p := &t.parts[PartitionOf(k)]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	p.arrive(k, now)
	e, known := t.entry(now, c, k)
	return known && f(&e)
}
