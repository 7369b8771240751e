package table

import (
	"sync"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// reclaimRounds is how often one check makes room, as long as that helps.
const reclaimRounds = 64

// reclaimEnough is after how many dropped counters a search for more ends.
const reclaimEnough = 1024

// sweep drops the recovered counters of a partition, and resizes it for the others. It
// returns how many it dropped.
func (p *partition) sweep(now limiter.Tick) int {
	p.arriveAll(now)
	first, before := never, p.slots.used
	over, next := p.sweepIDs(now)
	gone, of := int64(0), uint16(0) // consecutive slots of one limit, which are common
	var l *limiter.Limit            // that of the slot before
	number := uint16(0)
	p.slots.rebuild(func(s *slot) bool {
		if s.limit != number {
			l, number = p.table.registry.limit(s.limit), s.limit
		}
		at := s.state.EmptyAt(l, p.table.words(s))
		if at <= now {
			p.belongsSlot(s, -1)
			p.sent(s, -1)
			p.free(s)
			if s.limit != of {
				p.table.registry.release(of, gone)
				gone, of = 0, s.limit
			}
			gone++
			return false
		}
		first = min(first, at)
		return true
	}, p.table.room.left() < int64(p.slots.bytes()))
	p.table.registry.release(of, gone)
	p.expiry.Store(int64(min(first, next)))
	p.table.room.keys.Add(int64(p.slots.used - before))
	p.publish()
	p.tally()
	return before - p.slots.used + over
}

// sweepOne is sweep for an unlocked partition.
func (p *partition) sweepOne(now limiter.Tick) int {
	p.mu.Lock()
	whole := false
	defer func() { p.leave(whole) }()
	n := p.sweep(now)
	whole = true
	return n
}

// expiresAt records that a counter of p recovers at the given instant.
func (p *partition) expiresAt(at limiter.Tick) {
	if int64(at) < p.expiry.Load() {
		p.expiry.Store(int64(at))
	}
	p.table.room.lowerExpiry(at)
}

// A partition is a crowd if it has more than twice what it has in a full table, and crowdLeast: one key may
// have as many ids. If one of them ended before each check that lacks room, each would sweep them all. So a
// crowd is swept once in an eighth as many such checks as it has counters. The others find no room there.
const (
	crowdLeast = 1024
	crowdPart  = 8
)

// reclaiming is what a table knows of its searches for room.
type reclaiming struct {
	sync.Mutex
	hand    int                    // the partition where the next search starts
	unswept [2 * Partitions]uint32 // by partition, under its lock: checks that lacked room since it was swept for one
}

// sweepNowAndThen is sweepOne for a check that lacks room.
func (p *partition) sweepNowAndThen(now limiter.Tick) int {
	p.mu.Lock()
	used, unswept := int64(p.used()), &p.table.reclaiming.unswept[p.number]
	*unswept++
	wait := used > crowdLeast+2*p.table.room.maxKeys/Partitions && int64(*unswept) < used/crowdPart
	if !wait {
		*unswept = 0
	}
	p.mu.Unlock()
	if wait {
		return 0
	}
	return p.sweepOne(now)
}

// reclaim drops recovered counters of any partition, by a function that sweeps one, and returns how many. The caller
// must hold no partition's lock. It searches only if an entry can have recovered, so at the bound,
// with nothing to drop, it costs one comparison.
func (t *Table) reclaim(now limiter.Tick, sweep func(*partition, limiter.Tick) int) (dropped int) {
	if int64(now) < t.room.expiry.Load() {
		return 0
	}
	t.reclaiming.Lock()
	defer t.reclaiming.Unlock()
	// Instants recorded from here on set expiry again. Earlier ones are found in the
	// partitions.
	t.room.expiry.Store(int64(never))
	first := never
	for range t.parts {
		p := &t.parts[t.reclaiming.hand]
		// advanced first, so that after a panic the search does not stop here again
		t.reclaiming.hand = (t.reclaiming.hand + 1) % len(t.parts)
		if p.expiry.Load() <= int64(now) && dropped < reclaimEnough {
			dropped += sweep(p, now)
		}
		first = min(first, limiter.Tick(p.expiry.Load()))
	}
	t.room.lowerExpiry(first)
	return dropped
}

// reclaimFor is reclaim, and then drops recovered counters next to the keys of a
// charge, where room is needed. It returns how many it dropped.
func (t *Table) reclaimFor(now limiter.Tick, c *arith.Charge) (dropped int) {
	dropped = t.reclaim(now, (*partition).sweepNowAndThen)
	for i := range c.Len() {
		p := &t.parts[PartitionOf(c.Key(i))]
		if p.expiry.Load() <= int64(now) {
			dropped += p.sweepNowAndThen(now)
		}
	}
	return dropped
}

// collectLimits frees the numbers of limits that no live counter needs. It runs at most
// once a second, and reports whether it ran.
func (t *Table) collectLimits(now limiter.Tick) bool {
	if !t.collect.TryLock() {
		return false
	}
	defer t.collect.Unlock()
	if now >= t.collect.at && now < t.collect.at+limiter.Second {
		return false
	}
	t.collect.at = now
	for i := range t.parts {
		p := &t.parts[i]
		if p.expiry.Load() > int64(now) {
			continue
		}
		p.sweepOne(now)
	}
	if t.registry.exhausted() {
		t.forgetUnused()
	}
	return true
}

// forgetUnused frees the uncounted numbers, those of rules' limits, that no counter
// uses.
func (t *Table) forgetUnused() {
	used := make(map[uint16]bool)
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.Lock()
		defer p.mu.Unlock()
		for j := range p.slots.size {
			if s := p.slots.at(j); s.limit != 0 {
				used[s.limit] = true
			}
		}
	}
	t.registry.retain(used)
}
