package table

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
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

// DefaultMaxBytes returns what is used where [Config.MaxBytes] is 0: 256 bytes for
// each of maxKeys, so that all of them may be sliding_window with 10 sub-windows, and
// 64 MiB at least.
func DefaultMaxBytes(maxKeys int) int64 {
	if maxKeys <= 0 {
		maxKeys = DefaultMaxKeys
	}
	return max(64<<20, 256*int64(maxKeys))
}

// Config configures a table. The zero value is good.
type Config struct {
	// MaxKeys bounds the counters held, one for each key and limit; 0 means
	// [DefaultMaxKeys]. A counter takes 48 bytes and a half to spare, and a
	// sliding_window or sliding_log its words besides, once it was charged in a
	// second sub-window or at a second instant. At the bound new keys are decided
	// by Overflow; a counter that has not recovered is never dropped. Counters
	// that are imported are taken up to three times as many, and count.
	MaxKeys int
	// MaxBytes bounds the memory of counters, with the words of logs and sub-windows;
	// 0 means [DefaultMaxBytes] of MaxKeys, a negative number no bound. At the bound new
	// keys are decided by Overflow, and a log or ring of sub-windows that would have to
	// grow denies. Memory of copies of other nodes' counters does not count, but all
	// together is at most three times as much. A charge that many goroutines make at the
	// same time may exceed it by what each adds.
	MaxBytes int64
	// Overflow decides new keys at the bound.
	Overflow Overflow
	// Order is where the order of counters in memory is drawn from; nil, the
	// default, is the system's source of random numbers. Another is for simulations,
	// which repeat: whoever knows the order can have searches take longer.
	Order rand.Source
}

// maxPerKey bounds the counters of one key, which lie together and are passed by
// every search for one of them. New ones beyond are decided by Overflow. A rule has 16
// limits at most, so only limits that come with requests can bring so many about, or
// many reloads that each rename all limits.
const maxPerKey = 256

// ErrTooManyLimits is returned by Decide when 4096 different limits that came with
// requests have live counters, or 65535 limits of any kind. Nothing was decided; it
// passes as counters recover, which is looked at once a second.
var ErrTooManyLimits = errors.New("the table holds counters of too many different limits: at most 4096 that come with requests, and 65535 in all: send fewer different limits with requests")

// Table holds the counters of many keys. It is safe for concurrent use.
type Table struct {
	parts    [2 * Partitions]partition
	layouts  [2 * Partitions]atomic.Pointer[layout] // of parts, for hints
	order    order
	registry *registry
	overflow Overflow
	maxKeys  int64
	maxBytes int64
	slab     slab
	arena    arena

	copies [2 * Partitions]copied // by partition, under its lock
	copied atomic.Int64           // slots taken in partitions that are copies
	lent   atomic.Int64           // bytes of those partitions

	keys       atomic.Int64 // slots taken, recovered ones too until swept
	expiry     atomic.Int64 // no counter recovers before: see reclaim
	overflowed atomic.Int64 // checks that met the bound
	collect    sync.Mutex
	collected  limiter.Tick // when limits were collected last; under collect
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

// unbounded is a bound of bytes that nothing reaches, and that can be multiplied by
// replicaFactor.
const unbounded = math.MaxInt64 / replicaFactor

// New returns an empty table.
func New(c Config) *Table {
	if c.MaxKeys <= 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	switch {
	case c.MaxBytes == 0:
		c.MaxBytes = DefaultMaxBytes(c.MaxKeys)
	case c.MaxBytes < 0:
		c.MaxBytes = unbounded
	}
	t := &Table{
		registry: newRegistry(), overflow: c.Overflow, maxKeys: int64(c.MaxKeys),
		maxBytes: min(c.MaxBytes, unbounded), collected: -never,
	}
	if c.Order == nil {
		c.Order = systemRandom{}
	}
	t.order = newOrder(c.Order)
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

// advance takes note of an instant. Counters are given the instants of their own
// checks; the latest of all is for what is of the partition as a whole, such as resets.
func (p *partition) advance(now limiter.Tick) { p.clock = max(p.clock, now) }

// words returns the words of a slot, nil if it has none.
func (t *Table) words(s *slot) []uint64 {
	if s.words == 0 {
		return nil
	}
	return t.slab.block(s.words, s.class)
}

// room makes sure that a slot has need words, with those that it has. It reports false,
// having changed nothing, where that would take more than left bytes of new memory.
func (t *Table) room(p *partition, l *limiter.Limit, s *slot, words []uint64, need int, left int64) ([]uint64, bool) {
	if need <= len(words) {
		return words, true
	}
	ref, class, ok := t.slab.get(need, left)
	if !ok {
		return words, false
	}
	more := t.slab.block(ref, class)
	l.Move(more, words, &s.state)
	t.free(p, s)
	t.give(p, s, ref, class)
	return more, true
}

// give gives a slot that has no words a block of them.
func (t *Table) give(p *partition, s *slot, ref uint32, class uint8) {
	s.words, s.class = ref, class
	t.countWords(p, s.limit, int64(classWords(class))*wordBytes)
}

// free gives the words of a slot back.
func (t *Table) free(p *partition, s *slot) {
	if s.words != 0 {
		t.slab.put(s.words, s.class)
		s.words = 0
		t.countWords(p, s.limit, -int64(classWords(s.class))*wordBytes)
	}
}

// countWords counts bytes of words of a limit's counters, or takes them back.
func (t *Table) countWords(p *partition, limit uint16, bytes int64) {
	t.copies[p.number].words += bytes
	if c := t.registry.count(limit); c != nil {
		c.share.add(0, bytes)
	}
}

// discard gives back all that belongs to a slot.
func (t *Table) discard(p *partition, s *slot) {
	t.free(p, s)
	t.registry.release(s.limit, 1)
}

// relabel gives a slot another number of a limit, and returns the one that it had.
func (t *Table) relabel(p *partition, s *slot, id uint16) (had uint16) {
	had = s.limit
	if s.words != 0 {
		bytes := int64(classWords(s.class)) * wordBytes
		t.countWords(p, had, -bytes)
		t.countWords(p, id, bytes)
	}
	s.limit = id
	return had
}

// adopt makes a slot one of l, if it is one of an equal or a changed limit. rule is
// l's, nil for an import.
func (t *Table) adopt(p *partition, s *slot, l *limiter.Limit, rule *limiter.Rule, now limiter.Tick) bool {
	old := t.registry.limit(s.limit)
	if old.Equal(l) {
		t.registry.prefer(s.limit, l)
		return true
	}
	id := t.registry.id(l, rule)
	if id == 0 {
		return false
	}
	charge, fresh := l.Adopt(old, &s.state, t.words(s), now)
	if fresh {
		t.free(p, s)
	}
	t.registry.release(t.relabel(p, s, id), 1)
	if fresh {
		l.Roll(&s.state, nil, now)
		if charge > 0 {
			l.Charge(&s.state, nil, now, charge) // at one instant, which needs no words
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
		i, found := p.slots.find(e.place, e.lo)
		if found {
			// Two keys of one check were the same: see Charge.Add.
			t.discard(p, &e)
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
		p.slots.extend()
		t.publish(p)
	}
	t.expiresAt(p, t.registry.limit(e.limit).EmptyAt(&e.state, t.words(&e)))
}

// left returns how many bytes of new memory checks may take.
func (t *Table) left() int64 { return t.maxBytes - t.memory() + t.lent.Load() }

// memory returns the memory of counters and their words.
func (t *Table) memory() int64 { return t.slab.bytes() + t.arena.held.Load() }

// Stats tells the size of a table.
type Stats struct {
	// Keys is the number of counters held. Those that have recovered count until
	// they are swept.
	Keys int
	// Bytes is the memory of counters and their words, MaxBytes the bound of what is no
	// copy of other nodes' counters, 0 if there is none.
	Bytes, MaxBytes int64
	// Overflowed is how many checks met the bound of keys so far.
	Overflowed int64
}

// Stats returns the size of the table. It may be called at any time, from any
// goroutine.
func (t *Table) Stats() Stats {
	s := Stats{Keys: int(t.keys.Load()), Bytes: t.memory(), MaxBytes: t.maxBytes, Overflowed: t.overflowed.Load()}
	if t.maxBytes == unbounded {
		s.MaxBytes = 0
	}
	return s
}

// Share is what the counters of a rule with a [limiter.Rule.MaxShare] take.
type Share struct {
	// Rule is the rule's name.
	Rule string
	// Keys is the number of its counters, Bytes the memory of their words.
	Keys, Bytes int64
}

// Shares returns what the counters of rules with a share take, in the order of their
// names. Rules that have none are left out. Counters that were imported are in no share.
func (t *Table) Shares() []Share { return t.registry.all() }

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
		if s.place < last {
			return fmt.Errorf("slot %d is out of order", i)
		}
		last = s.place
		if at, found := t.find(s.place, s.lo); !found || at != i {
			return fmt.Errorf("slot %d is not found, or found at %d", i, at)
		}
		first, found := t.findKey(s.place)
		if !found || t.inRun(first, 0, s.place, s.lo) != s || first > 0 && t.at(first-1).place == s.place && t.at(first-1).limit != 0 {
			return fmt.Errorf("slot %d is not found by its key, or found from %d", i, first)
		}
		if near := t.findNear(s.place, s.lo); near != s && (near != nil || i > t.home(s.place)) {
			return fmt.Errorf("slot %d is not found behind its home", i)
		}
	}
	switch {
	case used != t.used:
		return fmt.Errorf("%d slots are taken, %d are counted", used, t.used)
	case t.size > 0 && t.at(t.size-1).limit != 0:
		return errors.New("the last slot is taken")
	case t.size > blockSlots && t.size > t.even()+limitFor(t.even())+blockSlots:
		return fmt.Errorf("%d slots, of which %d are for entries that are spread evenly", t.size, t.even())
	}
	return nil
}
