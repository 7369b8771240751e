package table

import (
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Partitions is the number of partitions in each class: a prime, and the same in every
// node.
const Partitions = 1021

// Overflow is how a check with a new key is decided when the table is full.
type Overflow uint8

// The modes of overflow. The zero value is the default.
const (
	// OverflowDeny denies it (default), so no limit can be evaded by filling the table.
	OverflowDeny Overflow = iota
	// OverflowAllow admits it without counting, so a flood of keys does not lock out
	// new callers.
	OverflowAllow
)

// String returns the mode's name in flags.
func (o Overflow) String() string {
	if o == OverflowAllow {
		return "allow"
	}
	return "deny"
}

// DefaultMaxKeys is the default of [Config.MaxKeys]: about 800 MB when full.
const DefaultMaxKeys = 10_000_000

// DefaultMaxBytes returns the default of [Config.MaxBytes]: 256 bytes for each of
// maxKeys, and at least 64 MiB. That is enough for maxKeys counters of sliding_window
// with 10 sub-windows.
func DefaultMaxBytes(maxKeys int) int64 {
	if maxKeys <= 0 {
		maxKeys = DefaultMaxKeys
	}
	return max(64<<20, 256*int64(maxKeys))
}

// Config configures a table. The zero value is usable.
type Config struct {
	// MaxKeys bounds the counters, one for each key and limit; 0 means
	// [DefaultMaxKeys]. A counter takes 48 bytes, about 80 with the spare room of its
	// partition, and a remembered id about 60. A sliding_window or sliding_log takes
	// words in addition, once it was charged in a second sub-window or at a second
	// instant. At the bound Overflow
	// decides checks with new keys. A counter that has not recovered is never evicted.
	// Imported counters are accepted up to three times the bound, and count towards it.
	MaxKeys int
	// MaxBytes bounds the memory of counters, including the words of logs and
	// sub-windows; 0 means [DefaultMaxBytes] of MaxKeys, a negative number no bound. At
	// the bound Overflow decides checks with new keys, and a log or ring of sub-windows
	// that would have to grow denies. Copies of other nodes' counters do not count
	// towards it, but all counters together are bounded by three times as much.
	// Concurrent charges may exceed the bound by what each adds.
	MaxBytes int64
	// Overflow decides checks with new keys at the bounds.
	Overflow Overflow
	// Order is the source of the random order of counters in memory; nil, the default,
	// is the system's source of random numbers. Simulations pass another to be
	// repeatable. Anyone who knows the order can slow down searches.
	Order rand.Source
	// Tenants says how much of the table each tenant may take; nil is a zero one.
	Tenants *Tenants
}

// maxPerKey bounds the counters of one key. They are adjacent, and a search for one of
// them passes the others. Overflow decides checks with further counters. A rule has 16
// limits at most, so so many counters can come only from limits in requests, or from
// many reloads that each rename all limits.
const maxPerKey = 256

// ErrTooManyLimits is returned by Decide when 4096 different limits from requests, 2048 of
// them with counters that may live for more than an hour, or 65535 limits in
// all, have live counters, or when a tenant or an identity has its share of those of requests, see
// [Tenants]. Nothing was decided. Numbers become free as counters recover, which is checked once a second. There may be
// 16384 limits in time zones, or with numbers, that requests choose; beyond them, the rule's default decides.
var ErrTooManyLimits = errors.New("the table holds counters of too many different limits: at most 4096 that come " +
	"with requests, 2048 of them with windows, bursts or blocks of more than an hour, and 65535 in all; one tenant or " +
	"identity has at most three times as many as are left: send fewer different limits with requests")

// Table holds the counters of many keys. It is safe for concurrent use.
type Table struct {
	parts    [2 * Partitions]partition
	layouts  [2 * Partitions]atomic.Pointer[layout] // of parts, for prefetching
	ids      ids
	order    order
	registry *registry
	copies   [2 * Partitions]copied // by partition, under its lock
	room     room
	collect  struct {
		sync.Mutex
		at limiter.Tick // when limits were last collected
	}
	reclaiming reclaiming
	counters   sync.Pool
}

// partition is one lock and the data that it guards. What most checks need stands first, so
// that it is in few cache lines.
type partition struct {
	mu     sync.Mutex
	clock  limiter.Tick // the latest instant seen
	ops    uint32       // checks, for sampling
	number uint16       // its index
	due    limiter.Tick // nothing is to be done for holds before this instant; never if there are none
	slots  slots
	hot    *topKeys
	denied *topKeys
	expiry atomic.Int64 // no counter here recovers before this instant
	void   *void        // which receipts are void; nil: none

	extended extended     // holds that were extended lately
	ends     limiter.Tick // no hold here ends before this instant
	lending  lendings
	table    *Table // of which it is one
	came     uint64 // how many ids ever came to its ring
}

// ring returns the ids of a partition.
func (t *Table) ring(p *partition) *idRing { return &t.ids.rings[p.number] }

// used returns how many counters a partition has, with its ids.
func (p *partition) used() int { return p.slots.used + p.table.ring(p).used() }

// unbounded is a bound in bytes that is never reached and can be multiplied by
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
	t := new(Table)
	t.room.overflow, t.room.maxKeys, t.room.maxBytes = c.Overflow, int64(c.MaxKeys), min(c.MaxBytes, unbounded)
	t.collect.at = -never
	t.ids.limit, t.ids.holds.limit = arith.RememberedLimit(), arith.HoldsLimit()
	if c.Order == nil {
		c.Order = systemRandom{}
	}
	t.order = newOrder(c.Order)
	if t.room.usages.shares = c.Tenants; c.Tenants == nil {
		t.room.usages.shares = new(Tenants)
	}
	t.registry = newRegistry(t.room.usages.shares)
	t.room.registry = t.registry
	t.counters.New = func() any { return new([]counter) }
	t.room.expiry.Store(int64(never))
	for i := range t.parts {
		t.parts[i].expiry.Store(int64(never))
		t.parts[i].number, t.parts[i].due, t.parts[i].slots.arena = uint16(i), never, &t.room.arena
		t.parts[i].ends, t.parts[i].table = never, t
	}
	return t
}

// PartitionOf returns the partition of a key, 0 <= n < 2*Partitions. Those of the class
// Closed are the second half.
func PartitionOf(k *arith.Key) int {
	return PartitionOfHash(k.Hash.Lo, k.Rule.Class() == limiter.Closed)
}

// PartitionOfHash does the same for the low half of a key's hash.
func PartitionOfHash(lo uint64, closed bool) int {
	n, _ := bits.Mul64(lo, Partitions)
	if closed {
		return int(n) + Partitions
	}
	return int(n)
}

// identity returns the low half of the identity of the counter for a key and a limit.
func identity(k *arith.Key, l *limiter.Limit) uint64 { return k.Hash.Lo ^ arith.NameID(l) }

// advance records an instant. Counters get the instants of their own checks; the latest
// of all is used for operations on the whole partition, such as resets.
func (p *partition) advance(now limiter.Tick) { p.clock = max(p.clock, now) }

// words returns the words of a slot, nil if it has none.
func (t *Table) words(s *slot) []uint64 {
	if s.words == 0 {
		return nil
	}
	return t.room.slab.block(s.words, s.sizeClass())
}

// room ensures that a slot, which has the given words, has need words. If that would
// take more than left bytes of new memory, it changes nothing and reports false.
func (p *partition) room(l *limiter.Limit, s *slot, words []uint64, need int, left int64) ([]uint64, bool) {
	if need <= len(words) {
		return words, true
	}
	ref, class, ok := p.table.room.slab.get(need, left)
	if !ok {
		return words, false
	}
	more := p.table.room.slab.block(ref, class)
	s.state.Move(l, more, words)
	p.free(s)
	p.give(s, ref, class)
	return more, true
}

// discard releases everything that belongs to a slot.
func (p *partition) discard(s *slot) {
	p.table.countHolds(s, p.table.registry.limit(s.limit), -1)
	p.free(s)
	p.table.registry.release(s.limit, 1)
}

// relabel gives a slot another limit number and returns the previous one.
func (p *partition) relabel(s *slot, id uint16) (had uint16) {
	had = s.limit
	if s.words != 0 {
		bytes := int64(classWords(s.sizeClass())) * wordBytes
		p.countWords(had, -bytes)
		p.countWords(id, bytes)
	}
	s.limit = id
	return had
}

// insert adds an entry and makes room for it. Its key has been counted already.
func (p *partition) insert(e slot, now limiter.Tick) {
	swept := p.slots.full()
	if swept {
		p.sweep(now)
	}
	for {
		i, found := p.slots.find(e.place, e.lo)
		if found {
			// Two keys of one check were equal: see Charge.Add.
			p.discard(&e)
			p.table.room.keys.Add(-1)
			return
		}
		if p.slots.insert(i, e) {
			p.belongsSlot(&e, 1)
			p.sent(&e, 1)
			break
		}
		if !swept {
			p.sweep(now)
			swept = true
			continue
		}
		p.slots.extend()
		p.publish()
	}
	p.expiresAt(e.state.EmptyAt(p.table.registry.limit(e.limit), p.table.words(&e)))
}

// Stats is the size of a table.
type Stats struct {
	// Keys is the number of counters. Those that have recovered count until they are
	// swept. Copies is how many of them are copies of other nodes' counters, which
	// [Config.MaxKeys] does not bound.
	Keys, Copies int
	// Bytes is the memory of counters and their words, CopyBytes that of copies. MaxBytes
	// is the bound for the others, 0 if there is none.
	Bytes, CopyBytes, MaxBytes int64
	// Overflowed is how many checks have met a bound, OverflowedBy how many have met each:
	// of several the widest.
	Overflowed   int64
	OverflowedBy [Bounds]int64
	// IDs is how many ids are remembered; each is one of Keys. Those whose time is over count
	// until they are swept. IDsForgotten is how many were not remembered for want of room.
	IDs, IDsForgotten int64
	// Holds is how many holds the table has, once for each key of their checks. HoldsExpired is
	// how many ended without having been settled, and Overdrawn how many units settlements
	// have charged beyond what a limit had left.
	Holds, HoldsExpired, Overdrawn int64
}

// Stats returns the size of the table. It is safe for concurrent use.
func (t *Table) Stats() Stats {
	s := Stats{Keys: int(t.room.keys.Load()), Bytes: t.room.memory(), MaxBytes: t.room.maxBytes}
	s.Copies, s.CopyBytes = min(s.Keys, int(t.room.copied.Load())), min(s.Bytes, t.room.copiedBytes.Load())
	s.OverflowedBy, s.Overflowed = t.room.full.overflowed()
	s.IDs, s.IDsForgotten = t.registry.held(t.ids.limit), t.ids.forgotten.Load()
	s.Holds, s.HoldsExpired, s.Overdrawn = t.ids.holds.live.Load(), t.ids.holds.expired.Load(), t.ids.holds.over.Load()
	if t.room.maxBytes == unbounded {
		s.MaxBytes = 0
	}
	return s
}

// Share is the usage of a rule with a [limiter.Rule.MaxShare].
type Share struct {
	// Rule is the rule's name.
	Rule string
	// Keys is the number of its counters, Bytes the memory of their words.
	Keys, Bytes int64
}

// Shares returns the usage of rules with a share, ordered by name. Rules without
// counters are omitted. Imported counters count towards no share.
func (t *Table) Shares() []Share { return t.registry.all() }
