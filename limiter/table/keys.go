package table

import (
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// each calls f for every counter of a charge that has a slot, under the lock of its
// partition. n is the index of the limit in the charge. If f returns false the slot is
// removed.
func (t *Table) each(now limiter.Tick, c *arith.Charge, f visit) (seen int) {
	n := 0
	for i := range c.Len() {
		k := c.Key(i)
		seen += t.eachOf(now, k, n, f)
		n += len(k.Rule.Limits)
	}
	return seen
}

// visit is called for the counter of the n-th limit of a charge.
type visit = func(p *partition, n int, k *arith.Key, l *limiter.Limit, s *slot) bool

// eachOf is each for one key, whose limits are numbered from n.
func (t *Table) eachOf(now limiter.Tick, k *arith.Key, n int, f visit) (seen int) {
	p := &t.parts[PartitionOf(k)]
	p.mu.Lock()
	whole := false
	defer func() { p.leave(whole) }()
	p.advance(now)
	p.arrive(k, now)
	place := t.order.of(k.Hash.Hi)
	for i, l := range k.Rule.Limits {
		j, found := p.slots.find(place, identity(k, l))
		if !found {
			continue
		}
		seen++
		s := p.slots.at(j)
		if !f(p, n+i, k, l, s) {
			p.belongsSlot(s, -1)
			p.sent(s, -1)
			p.discard(s)
			p.slots.remove(j)
			t.room.keys.Add(-1)
			p.tally()
		}
	}
	whole = true
	return seen
}

// Reset deletes the counters of a charge, with their blocks, but for what is lent. It returns how many there
// were that had not recovered or have something lent. Cost and Peek are ignored.
func (t *Table) Reset(now limiter.Tick, c *arith.Charge) (n int) {
	t.each(now, c, func(p *partition, _ int, k *arith.Key, _ *limiter.Limit, s *slot) bool {
		if p.void == nil {
			p.void = new(void)
		}
		l := t.registry.limit(s.limit)
		used := s.state.EmptyAt(l, t.words(s)) > p.clock
		strip(p.ledgerOf(k), arith.CountsID(l))
		strip(p.ledgerOf(k), arith.SlotsID(l)) // of the time in which it was on concurrency
		p.void.reset(t.order.of(k.Hash.Hi), resetOf{p.clock + 1, t.registry.left.resets.Add(1)})
		lent := loans{p.ledgerOf(k)}.stay(s, l, now)
		if used || lent {
			n++
		}
		return lent
	})
	return n
}

// Refund takes back the cost of a charge whose decision had the receipt r, from the
// limits that were charged, as far as it still counts. A receipt with another cost or
// other limits is void, and so is one from before a Reset of the key. Where more than
// maxResets keys of a partition were reset, the resets that are forgotten count for all
// its keys. A receipt with a number, see [limiter.Receipt], is void if it is used again or
// too old. A key with cost 0 is skipped. Refund returns how many of the counters
// exist.
//
// If the charge has an ID that is remembered, it is taken back only from the keys for which the
// id is remembered by the very charge that the receipt names, and the id is forgotten there.
//
// A receipt under a limit that was replaced since by one that counts otherwise, and is back,
// is void: what it names may have been forgotten meanwhile. So may be some receipts under other
// limits, if a limit is replaced. A receipt under the limit that replaced it is void if it is from before a counter
// first counted so.
//
// The epoch of the receipt is that of this table's decision, or 0: then a receipt of the very instant of a reset is
// void.
func (t *Table) Refund(now limiter.Tick, c *arith.Charge, r limiter.Receipt) int {
	return t.takeBack(now, c, r, false, EveryPartition)
}

// EveryPartition stands for all partitions.
const EveryPartition = -1

// UndoIn is Refund for a decider that takes back a charge of its own, which no caller knows, from the keys of one
// partition, or [EveryPartition]. It does not void receipts because of limits that were replaced: charges that nobody
// was told of would stay, and between the check and its end there is no more than a round trip. It ignores the epoch.
func (t *Table) UndoIn(partition int, now limiter.Tick, c *arith.Charge, r limiter.Receipt) int {
	return t.takeBack(now, c, r, true, partition)
}

// takeBack takes back the charges of the keys in one partition, or in every.
func (t *Table) takeBack(now limiter.Tick, c *arith.Charge, r limiter.Receipt, own bool, only int) int {
	f := arith.Fields(&r)
	if own {
		f.Epoch = 0
	}
	if f.Parts != nil || !c.Fits(r) || !t.ids.once.take(r, now) { // with parts it is not of this table alone
		return 0
	}
	if c.ID != nil && !f.IsCredit() {
		r = t.forgetIDs(now, c, r, only)
	}
	return t.each(now, c, func(p *partition, n int, k *arith.Key, l *limiter.Limit, s *slot) bool {
		void := func() bool {
			return p.void.has(s.place, f.Time, f.Epoch) || !own && t.registry.left.has(l, k.Rule, s.place, p.number, f.Time)
		}
		if !own && t.registry.stays(s.limit, l, &s.state, chosen(k.Rule), now) {
			return true // it was charged under another number since, so what the receipt names is void
		}
		if k.Cost > 0 && f.Has(n) && isIn(k, only) {
			of := p.become(s, l, k, now)
			if void() || of != l && !(own && arith.Accrues(l)) {
				return true
			}
			if own {
				arith.Undo(of, &s.state, t.words(s), now, p.clock, f.Time, k.Cost)
			} else {
				s.state.Refund(l, t.words(s), now, p.clock, f.Time, k.Cost)
			}
			p.expiresAt(0)
		}
		return true
	})
}

// isIn reports whether a key is of a partition.
func isIn(k *arith.Key, partition int) bool {
	return partition == EveryPartition || PartitionOf(k) == partition
}

// SetName sets the name of a key, without that of a limit, after a decision requested
// it by [arith.Charge.Unnamed].
func (t *Table) SetName(k *arith.Key, name []byte) {
	p := &t.parts[PartitionOf(k)]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hot != nil {
		p.hot.setName(k.Hash.Hi, k.Hash.Lo, name)
	}
	if p.denied != nil {
		p.denied.setName(k.Hash.Hi, k.Hash.Lo, name)
	}
}
