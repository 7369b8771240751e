package table

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/limiter"
)

// registry numbers the limits that slots refer to. Limits that decide alike
// share a number, but for those of rules that have a share of the table. A number is
// read without a lock.
//
// Slots that refer to a limit that came from outside, or is of a rule with a share,
// are counted: such a number leaves with its last slot. Those of other rules are few,
// and are free again when [registry.retain] finds them unused.
type registry struct {
	mu     sync.Mutex
	byKey  map[limitKey]uint16
	free   []uint16
	shares map[string]*share
	limits atomic.Pointer[[]atomic.Pointer[limiter.Limit]]
	counts [(maxLimits + 1) / countsPage]atomic.Pointer[[countsPage]atomic.Pointer[count]]

	requests, foreign int // numbers that were made for them and are counted

	// recent spares most look-ups the lock.
	recent [256]atomic.Pointer[numbered]
}

// limitKey is what has one number.
type limitKey struct {
	params any
	share  string // the rule with a share, or none
}

type numbered struct {
	limit *limiter.Limit
	id    uint16
	count *count
}

// count is how many slots refer to a number, those included that are about to.
type count struct {
	slots  atomic.Int64
	share  *share // nil: none
	key    limitKey
	origin origin
}

// share is what the counters of one rule take, where the rule has a bound of its own.
type share struct {
	keys  atomic.Int64 // counters
	bytes atomic.Int64 // of their words
	ids   int          // numbers that belong to it; under the registry's lock
}

// origin is where a limit comes from.
type origin uint8

const (
	ofRule    origin = iota // a rule
	ofRequest               // a request
	ofPeer                  // an import
)

const (
	// maxLimits bounds the limits that are in use at one time, over all rules and
	// requests.
	maxLimits = 1<<16 - 1
	// maxRequestLimits bounds those that came with requests that were decided here,
	// and maxForeignLimits those that came with requests or imports, so that the rest
	// is left to rules.
	maxRequestLimits = 4096
	maxForeignLimits = 1 << 15

	countsPage = 256
)

func newRegistry() *registry {
	r := &registry{byKey: make(map[limitKey]uint16), shares: make(map[string]*share)}
	first := make([]atomic.Pointer[limiter.Limit], 64)
	r.limits.Store(&first)
	return r
}

// originOf returns where the limits of a rule come from; nil is a rule that is not
// known, as for imports.
func originOf(rule *limiter.Rule) origin {
	switch {
	case rule == nil:
		return ofPeer
	case rule.Name == limiter.RequestRule:
		return ofRequest
	}
	return ofRule
}

// limit returns the limit of a number that is in use.
func (r *registry) limit(id uint16) *limiter.Limit { return (*r.limits.Load())[id].Load() }

// prefer makes l the representative of its equals, so that a slot is known by a
// pointer compare.
func (r *registry) prefer(id uint16, l *limiter.Limit) { (*r.limits.Load())[id].Store(l) }

// count returns the count of a number that is in use, nil if it is not counted.
func (r *registry) count(id uint16) *count {
	page := r.counts[id/countsPage].Load()
	if page == nil {
		return nil
	}
	return page[id%countsPage].Load()
}

// id returns the number of l as a limit of rule, a new one if need be, and 0 when none
// is left for its like. If the number is counted, one slot more refers to it: the
// caller makes one, or calls release.
func (r *registry) id(l *limiter.Limit, rule *limiter.Rule) uint16 {
	at := &r.recent[uint8(l.NameID()^uint64(l.Window())^uint64(l.Limit()))]
	shared := rule != nil && rule.MaxShare > 0
	if n := at.Load(); n != nil && n.limit == l && !shared && n.count.hold() {
		return n.id
	}
	id, c := r.lookup(l, rule, shared)
	if id != 0 && !shared {
		at.Store(&numbered{l, id, c})
	}
	return id
}

// hold counts a slot, where there is one already: a number whose last slot has gone may
// be another limit's by now. It is always true of a number that is not counted.
func (c *count) hold() bool {
	if c == nil {
		return true
	}
	for {
		n := c.slots.Load()
		if n == 0 {
			return false
		}
		if c.slots.CompareAndSwap(n, n+1) {
			c.share.add(1, 0)
			return true
		}
	}
}

func (s *share) add(keys, bytes int64) {
	if s != nil {
		s.keys.Add(keys)
		s.bytes.Add(bytes)
	}
}

// release counts n slots less that refer to a number.
func (r *registry) release(id uint16, n int64) {
	c := r.count(id)
	if c == nil {
		return
	}
	c.share.add(-n, 0)
	if c.slots.Add(-n) == 0 {
		r.leave(id, c)
	}
}

// leave forgets a number whose last slot has gone, unless it has a new one, or is
// another limit's by now.
func (r *registry) leave(id uint16, c *count) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.slots.Load() == 0 && r.count(id) == c {
		r.forget(c.key, id)
	}
}

func (r *registry) lookup(l *limiter.Limit, rule *limiter.Rule, shared bool) (uint16, *count) {
	key, origin := limitKey{params: l.Params()}, originOf(rule)
	if shared {
		key.share = rule.Name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, ok := r.byKey[key]; ok {
		c := r.count(id)
		if c != nil {
			c.slots.Add(1) // under the lock, also where there is none
			c.share.add(1, 0)
		}
		return id, c
	}
	id := r.unused(origin)
	if id == 0 {
		return 0, nil
	}
	r.grow(int(id))
	r.byKey[key] = id
	r.prefer(id, l)
	if origin == ofRule && !shared {
		return id, nil
	}
	c := &count{key: key, origin: origin}
	c.slots.Store(1)
	if shared {
		if c.share = r.shares[key.share]; c.share == nil {
			c.share = new(share)
			r.shares[key.share] = c.share
		}
		c.share.ids++
		c.share.add(1, 0)
	}
	r.note(c, 1)
	page := &r.counts[id/countsPage]
	if page.Load() == nil {
		page.Store(new([countsPage]atomic.Pointer[count]))
	}
	page.Load()[id%countsPage].Store(c)
	return id, c
}

// note counts the numbers that were made for limits from outside.
func (r *registry) note(c *count, n int) {
	if c.share != nil || c.origin == ofRule {
		return
	}
	if r.foreign += n; c.origin == ofRequest {
		r.requests += n
	}
}

// unused returns a number that is not in use, 0 if there is none for limits of that
// origin.
func (r *registry) unused(o origin) uint16 {
	switch n := len(r.free); {
	case o == ofRequest && r.requests >= maxRequestLimits, o != ofRule && r.foreign >= maxForeignLimits:
		return 0
	case n > 0:
		id := r.free[n-1]
		r.free = r.free[:n-1]
		return id
	case len(r.byKey) == maxLimits:
		return 0
	default:
		return uint16(len(r.byKey) + 1) // none is free: all up to here are taken
	}
}

// forget frees a number. The lock is held.
func (r *registry) forget(key limitKey, id uint16) {
	delete(r.byKey, key)
	r.free = append(r.free, id)
	c := r.count(id)
	if c == nil {
		return
	}
	r.counts[id/countsPage].Load()[id%countsPage].Store(nil)
	r.note(c, -1)
	if s := c.share; s != nil {
		if s.ids--; s.ids == 0 {
			delete(r.shares, key.share)
		}
	}
}

// grow makes room for number id. A prefer that runs at the same time may be
// lost, which costs the next check a comparison.
func (r *registry) grow(id int) {
	have := *r.limits.Load()
	if id < len(have) {
		return
	}
	more := make([]atomic.Pointer[limiter.Limit], 2*len(have))
	for i := range have {
		more[i].Store(have[i].Load())
	}
	r.limits.Store(&more)
}

// exhausted reports whether no number is left for a limit of a rule.
func (r *registry) exhausted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byKey) == maxLimits
}

// retain forgets all limits that are not counted but those whose number is in used. No
// slot may refer to any other, and no limit may be numbered meanwhile.
func (r *registry) retain(used map[uint16]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.recent {
		r.recent[i].Store(nil)
	}
	for key, id := range r.byKey {
		if !used[id] && r.count(id) == nil {
			r.forget(key, id)
		}
	}
}

// taken returns what the counters of a rule with a share take.
func (r *registry) taken(rule string) (keys, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.shares[rule]; s != nil {
		return s.keys.Load(), s.bytes.Load()
	}
	return 0, 0
}

// all returns what the counters of all rules with a share take.
func (r *registry) all() []Share {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Share, 0, len(r.shares))
	for name, s := range r.shares {
		out = append(out, Share{Rule: name, Keys: s.keys.Load(), Bytes: s.bytes.Load()})
	}
	slices.SortFunc(out, func(a, b Share) int { return cmp.Compare(a.Rule, b.Rule) })
	return out
}

// shareOf returns the part of a whole that the counters of a rule may take at most.
func shareOf(rule *limiter.Rule, whole int64) int64 {
	if rule.MaxShare == 0 {
		return math.MaxInt64
	}
	return max(1, whole/limiter.WholeShare*int64(rule.MaxShare)+whole%limiter.WholeShare*int64(rule.MaxShare)/limiter.WholeShare)
}
