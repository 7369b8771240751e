package table

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// registry numbers the limits that slots refer to. Limits that decide alike share a
// number, except those of rules with a share of the table. A number is looked up
// without a lock.
//
// Slots whose limit came from outside (a request or another node), belongs to a rule with
// a share, or has the time zone of a request, are counted: such a number becomes free with
// its last slot. The limits of other rules are few; [registry.retain] frees their unused
// numbers.
type registry struct {
	mu     sync.Mutex
	byKey  map[limitKey]uint16
	free   []uint16
	shares map[string]*share
	limits atomic.Pointer[[]atomic.Pointer[limiter.Limit]]
	counts [(maxLimits + 1) / countsPage]atomic.Pointer[[countsPage]atomic.Pointer[count]]

	requests, long, foreign, zoned int // counted numbers of each kind; requests includes long
	tenants                        *Tenants
	of                             map[uint16]*numbers // by who made them; guarded by mu

	// recent avoids the lock for most look-ups.
	recent [256]atomic.Pointer[numbered]

	left left
}

// limitKey identifies the limits that share a number.
type limitKey struct {
	params any
	share  string // the name of the rule with a share; empty for others
}

type numbered struct {
	limit *limiter.Limit
	id    uint16
	count *count
}

// count is how many slots refer to a number, including those about to.
type count struct {
	slots  atomic.Int64
	share  *share // nil: the rule has no share
	key    limitKey
	origin origin
	by     uint16      // who made it: a label, see [arith.Key]
	long   bool        // the limit is of a request, and its counters may live longer than longLife
	own    atomic.Bool // a rule or a request has the limit here, not only what a peer has sent
}

// share is the usage of one rule with a bound of its own.
type share struct {
	keys  atomic.Int64 // counters
	bytes atomic.Int64 // of their words
	ids   int          // numbers that belong to it; guarded by the registry's lock
}

// numbers are the limits of requests, and those in time zones of requests, that one tenant or identity has made. Others
// may use them, too.
type numbers struct{ requests, long, zoned int }

// origin is where a limit comes from.
type origin uint8

const (
	ofRule    origin = iota // a rule
	ofRequest               // a request
	ofPeer                  // an import
	ofZone                  // a rule, with a time zone that a request names
)

const (
	// maxLimits bounds the limits in use at one time, of all rules and requests.
	maxLimits = 1<<16 - 1
	// maxRequestLimits bounds the limits of requests decided here. maxForeignLimits
	// bounds the limits of requests and imports together, so that the remaining numbers
	// are available to rules.
	maxRequestLimits = 4096
	maxForeignLimits = 1 << 15
	// maxLongLimits bounds those limits of requests whose counters may live longer than
	// longLife. Whoever sends many limits with windows of months keeps out such limits
	// until then, and others for an hour or so.
	maxLongLimits = maxRequestLimits / 2
	longLife      = time.Hour
	// maxZoneLimits bounds the limits of rules with time zones or numbers that requests name, so that whatever these
	// name, numbers are left for rules.
	maxZoneLimits = 1 << 14

	countsPage = 256
)

func newRegistry(tenants *Tenants) *registry {
	r := &registry{byKey: make(map[limitKey]uint16), shares: make(map[string]*share), of: make(map[uint16]*numbers),
		tenants: tenants}
	first := make([]atomic.Pointer[limiter.Limit], 64)
	r.limits.Store(&first)
	return r
}

// originOf returns the origin of a rule's limits. nil is an unknown rule, as in
// imports.
func originOf(rule *limiter.Rule) origin {
	switch {
	case rule == nil:
		return ofPeer
	case rule.Name == limiter.RequestRule:
		return ofRequest
	case rule.Choice() != "" && rule.ChosenBy() != limiter.ChosenByName: // names are of the file
		return ofZone
	}
	return ofRule
}

// limit returns the limit with a number that is in use.
func (r *registry) limit(id uint16) *limiter.Limit { return (*r.limits.Load())[id].Load() }

// stays reports whether a state of the limit with a number [arith.Stays] one while l decides. One of a limit that only
// peers have sent does not: they may have invented it, and it would deny for as long as it says.
func (r *registry) stays(id uint16, l *limiter.Limit, s *arith.State, chosen bool, now limiter.Tick) bool {
	c := r.count(id)
	return (c == nil || c.own.Load()) && arith.Stays(l, r.limit(id), s, chosen, now)
}

// prefer makes l the stored one among equal limits, so that slots of l are recognized
// by comparing pointers.
func (r *registry) prefer(id uint16, l *limiter.Limit) { (*r.limits.Load())[id].Store(l) }

// count returns the count of a number that is in use, nil if it is not counted.
func (r *registry) count(id uint16) *count {
	page := r.counts[id/countsPage].Load()
	if page == nil {
		return nil
	}
	return page[id%countsPage].Load()
}

// id returns the number of l as a limit of rule. It assigns a new one if needed, and
// returns 0 if none is left for this origin, or for who asks. If the number is counted, id adds a slot
// to the count: the caller must create the slot or call release.
func (r *registry) id(l *limiter.Limit, rule *limiter.Rule, by uint16) uint16 {
	at := &r.recent[uint8(arith.NameID(l)^uint64(limiter.Span(l.Window()))^l.Limit())]
	shared := rule != nil && rule.MaxShare > 0
	if n := at.Load(); n != nil && n.limit == l && !shared && n.count.hold() {
		return n.id
	}
	id, c := r.lookup(l, rule, by, shared)
	if id != 0 && !shared {
		at.Store(&numbered{l, id, c})
	}
	return id
}

// hold adds a slot to the count unless the count is 0, because a number without slots
// may have been assigned to another limit. For a number that is not counted it always
// reports true.
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

// release subtracts n slots from the count of a number.
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

// leave frees a number whose last slot has gone, unless it has a new slot or was
// assigned to another limit meanwhile.
func (r *registry) leave(id uint16, c *count) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.slots.Load() == 0 && r.count(id) == c {
		r.forget(c.key, id)
	}
}

func (r *registry) lookup(l *limiter.Limit, rule *limiter.Rule, by uint16, shared bool) (uint16, *count) {
	key, origin := limitKey{params: l.C.P}, originOf(rule)
	if shared {
		key.share = rule.Name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, ok := r.byKey[key]; ok {
		c := r.count(id)
		if c != nil {
			c.slots.Add(1) // under the lock, even if it is 0
			c.share.add(1, 0)
			if origin != ofPeer {
				c.own.Store(true)
			}
		}
		return id, c
	}
	long := origin == ofRequest && !shared && isLong(l)
	id := r.unused(origin, by, long)
	if id == 0 {
		return 0, nil
	}
	r.grow(int(id))
	r.byKey[key] = id
	r.prefer(id, l)
	if origin == ofRule && !shared {
		return id, nil
	}
	c := &count{key: key, origin: origin, by: by, long: long}
	c.slots.Store(1)
	c.own.Store(origin != ofPeer)
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

// note adds n to the counts of numbers for limits from outside.
func (r *registry) note(c *count, n int) {
	switch {
	case c.origin == ofZone:
		r.zoned += n
		r.noteOwn(c.by, numbers{zoned: n})
		return
	case c.share != nil || c.origin == ofRule:
		return
	}
	if r.foreign += n; c.origin != ofRequest {
		return
	}
	r.requests += n
	more := numbers{requests: n}
	if c.long {
		r.long += n
		more.long = n
	}
	r.noteOwn(c.by, more)
}

// noteOwn adds to what one tenant or identity has made.
func (r *registry) noteOwn(by uint16, more numbers) {
	own := r.of[by]
	if own == nil {
		own = new(numbers)
		r.of[by] = own
	}
	own.requests, own.long, own.zoned = own.requests+more.requests, own.long+more.long, own.zoned+more.zoned
	if *own == (numbers{}) {
		delete(r.of, by)
	}
}

// isLong reports whether a counter of a limit may live longer than longLife: by its
// window, by what a bucket takes to leak, or by a block.
func isLong(l *limiter.Limit) bool {
	s := l.Spec()
	leaks := l.Window().Seconds() * float64(l.C.Full) / max(1, float64(l.Limit()))
	return max(l.Window(), s.Block) > longLife || leaks > longLife.Seconds()
}

// admits reports whether one may have a further limit of a request, or one in a time zone of a request.
func (r *registry) admits(o origin, by uint16, long bool) bool {
	own := numbers{}
	if have := r.of[by]; have != nil {
		own = *have
	}
	if o == ofZone {
		return r.zoned < maxZoneLimits && r.tenants.admits(by, own.zoned, r.zoned, maxZoneLimits)
	}
	return r.tenants.admits(by, own.requests, r.requests, maxRequestLimits) &&
		(!long || r.tenants.admits(by, own.long, r.long, maxLongLimits))
}

// unused returns a number that is not in use, 0 if there is none for limits of that
// origin and of who asks, whose counters may live long.
func (r *registry) unused(o origin, by uint16, long bool) uint16 {
	switch n := len(r.free); {
	case long && r.long >= maxLongLimits, o == ofRequest && r.requests >= maxRequestLimits,
		(o == ofRequest || o == ofPeer) && r.foreign >= maxForeignLimits,
		(o == ofRequest || o == ofZone) && !r.admits(o, by, long):
		return 0
	case n > 0:
		id := r.free[n-1]
		r.free = r.free[:n-1]
		return id
	case len(r.byKey) == maxLimits:
		return 0
	default:
		return uint16(len(r.byKey) + 1) // no number below is free
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

// grow makes room for number id. A concurrent prefer may be lost, which costs the next
// check one comparison.
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

// held returns how many slots refer to a limit that is counted.
func (r *registry) held(l *limiter.Limit) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.count(r.byKey[limitKey{params: l.C.P}]); c != nil {
		return c.slots.Load()
	}
	return 0
}

// exhausted reports whether no number is left for a rule's limit.
func (r *registry) exhausted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byKey) == maxLimits
}

// retain frees the numbers that are neither counted nor in used. No slot may refer to
// them, and no limit may be numbered meanwhile.
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

// taken returns the usage of a rule with a share.
func (r *registry) taken(rule string) (keys, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.shares[rule]; s != nil {
		return s.keys.Load(), s.bytes.Load()
	}
	return 0, 0
}

// all returns the usage of all rules with a share.
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

// shareOf returns how much of whole the counters of a rule may take.
func shareOf(rule *limiter.Rule, whole int64) int64 {
	if rule.MaxShare == 0 {
		return math.MaxInt64
	}
	return max(1,
		whole/limiter.WholeShare*int64(rule.MaxShare)+whole%limiter.WholeShare*int64(rule.MaxShare)/limiter.WholeShare)
}
