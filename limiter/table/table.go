package table

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/limiter"
)

// Partitions is the number of partitions in each class. A prime, and the same
// in every node.
const Partitions = 1021

// Overflow says how a new key is decided when the table holds MaxKeys.
type Overflow uint8

// The ways to decide. The zero value is the default.
const (
	// OverflowDeny denies it (default): no limit can be escaped by making the
	// table full.
	OverflowDeny Overflow = iota
	// OverflowAllow admits it, uncounted: a flood of keys does not keep new
	// callers out.
	OverflowAllow
)

// String returns the mode's name in flags.
func (o Overflow) String() string {
	if o == OverflowAllow {
		return "allow"
	}
	return "deny"
}

// DefaultMaxKeys is used where [Config.MaxKeys] is 0: about 800 MB when full.
const DefaultMaxKeys = 10_000_000

// Config configures a table. The zero value is good.
type Config struct {
	// MaxKeys bounds the counters held, one for each key and limit; 0 means
	// [DefaultMaxKeys]. A counter takes 48 bytes and a half to spare, and a
	// sliding_window or sliding_log its words besides, once it was charged in a
	// second sub-window or at a second instant. At the bound new keys are decided
	// by Overflow; a counter that has not recovered is never dropped. Counters
	// that are imported are taken up to three times as many, and count.
	MaxKeys int
	// Overflow decides new keys at the bound.
	Overflow Overflow
}

// ErrTooManyLimits is returned by Decide when 65535 different limits have live
// counters, which only limits that come with requests can bring about. Nothing
// was decided; it passes as counters recover.
var ErrTooManyLimits = errors.New("the table holds counters of 65535 different limits, its bound: send fewer different limits with requests")

// Table holds the counters of many keys. It is safe for concurrent use.
type Table struct {
	parts    [2 * Partitions]partition
	layouts  [2 * Partitions]atomic.Pointer[layout] // of parts, for hints
	registry *registry
	slab     slab
	arena    arena
	overflow Overflow
	maxKeys  int64

	copies [2 * Partitions]copied // by partition, under its lock
	copied atomic.Int64           // slots taken in partitions that are copies

	keys       atomic.Int64 // slots taken, recovered ones too until swept
	expiry     atomic.Int64 // no counter recovers before: see reclaim
	overflowed atomic.Int64 // checks that met the bound
	collect    sync.Mutex
	reclaiming sync.Mutex
	hand       int // the partition where the next reclaim begins
	counters   sync.Pool
}

// partition is one lock and what it protects. It fills two cache lines, the
// first of which is all that most checks need.
type partition struct {
	mu     sync.Mutex
	clock  limiter.Tick // the latest instant seen
	ops    uint32       // checks, for sampling
	number uint16       // of the partition
	slots  slots
	hot    *topKeys
	denied *topKeys
	expiry atomic.Int64 // no counter here recovers before
	reset  limiter.Tick // receipts from before are void
}

// New returns an empty table.
func New(c Config) *Table {
	if c.MaxKeys <= 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	t := &Table{registry: newRegistry(), overflow: c.Overflow, maxKeys: int64(c.MaxKeys)}
	t.counters.New = func() any { return new([]counter) }
	t.expiry.Store(int64(never))
	for i := range t.parts {
		t.parts[i].expiry.Store(int64(never))
		t.parts[i].number, t.parts[i].slots.arena = uint16(i), &t.arena
	}
	return t
}

// PartitionOf returns the partition of a key, 0 <= n < 2*Partitions; those of
// the class Closed come second.
func PartitionOf(k *limiter.Key) int {
	return PartitionOfHash(k.Hash.Lo, k.Rule.Class() == limiter.Closed)
}

// PartitionOfHash returns the same of the low half of a key's hash.
func PartitionOfHash(lo uint64, closed bool) int {
	n, _ := bits.Mul64(lo, Partitions)
	if closed {
		return int(n) + Partitions
	}
	return int(n)
}

// identity returns the low half of the identity of a key's counter for l.
func identity(k *limiter.Key, l *limiter.Limit) uint64 { return k.Hash.Lo ^ l.NameID() }

// advance returns now, or the latest instant seen if that is later.
func (p *partition) advance(now limiter.Tick) limiter.Tick {
	p.clock = max(p.clock, now)
	return p.clock
}

// words returns the words of a slot, nil if it has none.
func (t *Table) words(s *slot) []uint64 {
	if s.words == 0 {
		return nil
	}
	return t.slab.block(s.words, s.class)
}

// reserve makes room in the slab for a charge of n units at now, beside the
// words that the slot has.
func (t *Table) reserve(l *limiter.Limit, s *slot, words []uint64, now limiter.Tick, n uint32) []uint64 {
	return t.room(l, s, words, l.Words(&s.state, now, n))
}

// room makes sure that a slot has need words, beside those that it has.
func (t *Table) room(l *limiter.Limit, s *slot, words []uint64, need int) []uint64 {
	if need <= len(words) {
		return words
	}
	ref, class := t.slab.get(need)
	more := t.slab.block(ref, class)
	l.Move(more, words, &s.state)
	t.free(s)
	s.words, s.class = ref, class
	return more
}

// free gives the words of a slot back.
func (t *Table) free(s *slot) {
	if s.words != 0 {
		t.slab.put(s.words, s.class)
		s.words = 0
	}
}

// adopt makes a slot one of l, if it is one of an equal or a changed limit.
func (t *Table) adopt(p *partition, s *slot, l *limiter.Limit, now limiter.Tick) bool {
	old := t.registry.limit(s.limit)
	if old.Equal(l) {
		t.registry.prefer(s.limit, l)
		return true
	}
	id := t.registry.id(l)
	if id == 0 {
		return false
	}
	charge, fresh := l.Adopt(old, &s.state, t.words(s), now)
	s.limit = id
	if fresh {
		t.free(s)
		l.Roll(&s.state, nil, now)
		if charge > 0 {
			l.Charge(&s.state, t.reserve(l, s, nil, now, charge), now, charge)
		}
	}
	t.expiresAt(p, 0) // it may recover sooner than before
	return true
}

// insert adds an entry, making room for it. Its key is counted already.
func (t *Table) insert(p *partition, e slot, now limiter.Tick) {
	swept := p.slots.full()
	if swept {
		t.sweep(p, now)
	}
	for {
		i, found := p.slots.find(e.hi, e.lo)
		if found {
			// Two keys of one check were the same: see Charge.Add.
			t.free(&e)
			t.keys.Add(-1)
			return
		}
		if p.slots.insert(i, e) {
			break
		}
		if !swept {
			t.sweep(p, now)
			swept = true
			continue
		}
		p.slots.grow()
		t.publish(p)
	}
	t.expiresAt(p, t.registry.limit(e.limit).EmptyAt(&e.state, t.words(&e)))
}

// sweep drops the counters of a partition that have recovered, and gives it the
// room that the others need. It returns how many it dropped.
func (t *Table) sweep(p *partition, now limiter.Tick) int {
	first, before := never, p.slots.used
	p.slots.rebuild(func(s *slot) bool {
		at := t.registry.limit(s.limit).EmptyAt(&s.state, t.words(s))
		if at <= now {
			t.free(s)
			return false
		}
		first = min(first, at)
		return true
	})
	p.expiry.Store(int64(first))
	t.keys.Add(int64(p.slots.used - before))
	t.publish(p)
	t.tally(p)
	return before - p.slots.used
}

// expiresAt notes that a counter of p recovers at the given instant.
func (t *Table) expiresAt(p *partition, at limiter.Tick) {
	if int64(at) < p.expiry.Load() {
		p.expiry.Store(int64(at))
	}
	t.lowerExpiry(at)
}

// reclaim drops counters that have recovered, wherever they are. It must be called without a partition's lock. It
// looks only where an entry can have recovered, so at the bound, with nothing
// to drop, it costs one comparison.
func (t *Table) reclaim(now limiter.Tick) {
	if int64(now) < t.expiry.Load() {
		return
	}
	t.reclaiming.Lock()
	defer t.reclaiming.Unlock()
	// What is noted from here on counts as news; what was noted before is found
	// in the partitions.
	t.expiry.Store(int64(never))
	first, dropped := never, 0
	for range t.parts {
		p := &t.parts[t.hand]
		if p.expiry.Load() <= int64(now) && dropped < reclaimEnough {
			p.mu.Lock()
			dropped += t.sweep(p, p.advance(now))
			p.mu.Unlock()
		}
		first = min(first, limiter.Tick(p.expiry.Load()))
		t.hand = (t.hand + 1) % len(t.parts)
	}
	t.lowerExpiry(first)
}

// reclaimEnough is how many dropped counters end a search for more.
const reclaimEnough = 1024

func (t *Table) lowerExpiry(at limiter.Tick) {
	for {
		have := t.expiry.Load()
		if int64(at) >= have || t.expiry.CompareAndSwap(have, int64(at)) {
			return
		}
	}
}

// collectLimits forgets the limits that no counter refers to that still counts
// at now.
func (t *Table) collectLimits(now limiter.Tick) {
	t.collect.Lock()
	defer t.collect.Unlock()
	used := make(map[uint16]bool)
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.slots.used > 0 {
			t.sweep(p, p.advance(now))
		}
		for j := range p.slots.size {
			if s := p.slots.at(j); s.limit != 0 {
				used[s.limit] = true
			}
		}
	}
	t.registry.retain(used)
}

// Stats tells the size of a table.
type Stats struct {
	// Keys is the number of counters held. Those that have recovered count until
	// they are swept.
	Keys int
	// Bytes is the memory of counters and their words.
	Bytes int64
	// Overflowed is how many checks met the bound of keys so far.
	Overflowed int64
}

// Stats returns the size of the table. It may be called at any time, from any
// goroutine; it takes each partition's lock once.
func (t *Table) Stats() Stats {
	s := Stats{Keys: int(t.keys.Load()), Bytes: t.slab.bytes(), Overflowed: t.overflowed.Load()}
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.Lock()
		s.Bytes += int64(p.slots.bytes())
		p.mu.Unlock()
	}
	return s
}

// check verifies the invariants of a partition, for tests.
func (t *Table) check(p *partition) error {
	if err := p.slots.check(); err != nil {
		return err
	}
	for i := range p.slots.size {
		s := p.slots.at(i)
		if s.limit == 0 {
			continue
		}
		l := t.registry.limit(s.limit)
		if at := l.EmptyAt(&s.state, t.words(s)); at > p.clock && int64(at) < p.expiry.Load() {
			return fmt.Errorf("slot %d recovers at %d, before the partition's bound %d", i, at, p.expiry.Load())
		}
	}
	return nil
}

// check verifies the order of the slots and that none is out of reach.
func (t *slots) check() error {
	used, last := 0, uint64(0)
	for i := range t.size {
		s := t.at(i)
		if s.limit == 0 {
			continue
		}
		used++
		if s.hi < last {
			return fmt.Errorf("slot %d is out of order", i)
		}
		last = s.hi
		if at, found := t.find(s.hi, s.lo); !found || at != i {
			return fmt.Errorf("slot %d is not found, or found at %d", i, at)
		}
		first, found := t.findKey(s.hi)
		if !found || t.inRun(first, 0, s.hi, s.lo) != s || first > 0 && t.at(first-1).hi == s.hi && t.at(first-1).limit != 0 {
			return fmt.Errorf("slot %d is not found by its key, or found from %d", i, first)
		}
		if near := t.findNear(s.hi, s.lo); near != s && (near != nil || i > t.home(s.hi)) {
			return fmt.Errorf("slot %d is not found behind its home", i)
		}
	}
	switch {
	case used != t.used:
		return fmt.Errorf("%d slots are taken, %d are counted", used, t.used)
	case t.size > 0 && t.at(t.size-1).limit != 0:
		return errors.New("the last slot is taken")
	}
	return nil
}
