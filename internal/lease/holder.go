package lease

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Holder is what owners have lent to one asker. A key that is often asked for is decided by it then, until its units or
// their time are over. The owner counts them as charged now, at each instant, until they are given back, and then what
// was used of them, see [arith.Idempotency]. So nothing is admitted twice, whatever becomes of the holder: what it does
// not give back the owner charges whole.
//
// A lease ends here before it ends at the owner: here it begins when it is asked for, and the owner waits for it to be
// given back. The zero value has none. It is safe for concurrent use.
type Holder struct {
	warm   [warmKeys]atomic.Uint32 // see Warm
	shards [shards]shard
	closed atomic.Bool // there are no more

	mu   sync.Mutex
	all  []*Lease // that were asked for and may be lent, in that order
	past past
	// lost are, by rule, units that were not used and that an owner may have charged all the same.
	lost map[string]uint64
}

// A key belongs to one set of one shard. A key that is asked for takes the place of one that was asked for less
// lately and has no lease; if all have one, it is decided by its owner.
const (
	shards = 16
	sets   = 128 // sets of a shard
	ways   = 4

	maxLimits = 4 // keys of rules with more limits are not lent
	// hotFor is the time in which a key must be asked for hotChecks times to be worth a lease: that costs the owner and
	// its heir as much as some ten checks in frames that they share with others.
	hotFor    = 100 * limiter.Millisecond
	hotChecks = 32

	warmKeys = 1 << 13
	warmMost = 2 * hotChecks // half of it is more than enough
)

type shard struct {
	mu       sync.Mutex
	sets     [][ways]leased // nil until the first key
	admitted uint64         // checks
}

// Instant is one instant by two clocks.
type Instant struct {
	Now limiter.Tick // by the one that lasts of time are measured with
	At  limiter.Tick // by the wall clock, which goes on while a machine is suspended
}

// Lease is units that an owner has lent, or was asked for.
type Lease struct {
	Key   arith.Key // its cost is the units
	ID    uint64    // by which it is given back
	Units uint64
	Until Instant // when its use ends, by whichever clock is first

	// The lock of its key's shard guards the others.
	from     limiter.Tick // when it was asked for
	used     uint64
	returned bool
	back     uint64 // units that were refunded since it was over
	refunded numbers
	owner    string
	limits   [maxLimits]standing

	// Holder.mu guards these.
	gone bool // it is not lent any more
	late []Late
}

// standing is where a limit stood when the units were lent.
type standing struct {
	remaining, inForce uint64
	resetAfter         limiter.Tick
}

func (h *Holder) shard(of arith.Hash) (s *shard, set int) {
	return &h.shards[of.Hi%shards], int(of.Hi / shards % sets)
}

// useFor is for how long a lease for a span is used, by the clock of the holder.
func useFor(span limiter.Tick) limiter.Tick { return span - span/1000 }

// Span returns for how long units of a charge may be lent to its asker; 0 if they may not: it is of one key without
// an id, and its rule lends.
func Span(c *arith.Charge) limiter.Tick {
	if !Single(c) {
		return 0
	}
	return arith.LeaseFor(c.Key(0).Rule)
}

// Single reports whether a charge is of one key without an id, by a rule that may lend. It takes less time than Span.
func Single(c *arith.Charge) bool {
	if c.Len() != 1 || c.Peek || c.ID != nil {
		return false
	}
	k := c.Key(0)
	return k.Rule != nil && k.Rule.Leases && k.Cost > 0 && len(k.Rule.Limits) <= maxLimits
}

// good reports whether a lease may be used for so many units.
func (l *Lease) good(t Instant, cost uint64) bool {
	return l != nil && !l.over(t) && l.used+cost <= l.Units
}

func (l *Lease) over(t Instant) bool { return l.returned || t.Now >= l.Until.Now || t.At >= l.Until.At }

// Wish is what a check leaves to be done.
type Wish struct {
	Units uint64 // to be asked for, see Ask; 0: none are
	Over  *Lease // to be given back; nil: none is
	Seen  uint32 // how many checks of the key there were lately
}

// Decide decides a check of a key that is warm and may be lent, and reports whether it did. others is how many others
// may ask for as much of it.
func (h *Holder) Decide(t Instant, k *arith.Key, others uint64, d *limiter.Decision) (done bool, w Wish) {
	if h.closed.Load() {
		return false, w
	}
	s, set := h.shard(k.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(set, k)
	if e == nil {
		if e = s.place(set, k, t.Now); e == nil {
			return false, w
		}
	}
	if e.heard && k.Cost > e.left && e.now == nil {
		return false, w // it is probably denied: no units are wanted for it
	}
	e.count(t.Now, k.Cost)
	w.Seen = e.checks
	if l := e.now; l != nil && (l.over(t) || l.used == l.Units || !l.good(t, k.Cost) && e.next.good(t, k.Cost)) {
		if !l.over(t) {
			e.grown = growth * l.Units
		}
		if !l.returned {
			l.returned, w.Over = true, l
		}
		e.now, e.next = e.next, nil
	}
	if done = e.now.good(t, k.Cost); done {
		e.now.used += k.Cost
		s.admitted++
		e.now.fill(t, k, d)
		low := e.now.Units-e.now.used < e.now.Units/4 || t.Now >= e.now.Until.Now-(e.now.Until.Now-e.now.from)/4
		if !low {
			return true, w
		}
	}
	if w.Units = e.wants(t, others); w.Units > 0 {
		e.asking = true
	}
	return done, w
}

// fill writes the decision of a check that a lease admits.
func (l *Lease) fill(t Instant, k *arith.Key, d *limiter.Decision) {
	d.Clear()
	d.Grow(len(k.Rule.Limits))
	passed := max(0, t.Now-l.from)
	for i, limit := range k.Rule.Limits {
		r, out := &l.limits[i], d.Limit(i)
		out.Rule, out.Limit, out.Key, out.KeyIndex, out.Owner = k.Rule, limit, 0, k.Index, l.owner
		out.Allowed, out.Never, out.Blocked, out.Overflow = true, false, false, false
		out.Cost, out.Remaining, out.InForce = k.Cost, r.remaining+l.Units-l.used, r.inForce
		out.ResetAfter, out.RetryAfter = max(0, r.resetAfter-passed).Duration(), 0
	}
	arith.Combine(d, false)
	d.Source = limiter.SourceLeased
	f := arith.Fields(&d.Receipt)
	f.Epoch, f.Time, f.Charged = l.ID, t.At, 1<<len(k.Rule.Limits)-1
	arith.Conclude(d)
}

// Heard records what is left of a key by an answer of its owner.
func (h *Holder) Heard(k *arith.Key, d *limiter.Decision) {
	left := ^uint64(0)
	for i := range d.Len() {
		left = min(left, d.Limit(i).Remaining)
	}
	s, set := h.shard(k.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(set, k); e != nil {
		e.left, e.heard = left, true
	}
}

// Ask notes a lease that is asked for at an instant, with an id that no other has. What becomes of it is told to
// Answered.
func (h *Holder) Ask(t Instant, k *arith.Key, units, id uint64, span limiter.Tick) *Lease {
	l := &Lease{Key: *k, ID: id, Units: units, from: t.Now, Until: Instant{t.Now + useFor(span), t.At + useFor(span)}}
	l.Key.Cost = units
	h.mu.Lock()
	h.all = append(h.all, l)
	h.mu.Unlock()
	return l
}

// Answered records the owner's decision of a lease that was asked for, and reports whether it is used: not if it is
// denied, nor if it was lent by another rule, too late, or nobody knows what was left, as of a repetition. One that is
// not used and may be lent is to be given back.
func (h *Holder) Answered(t Instant, l *Lease, span limiter.Tick, d *limiter.Decision) (used bool) {
	s, set := h.shard(l.Key.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(set, &l.Key)
	l.endWithWindow(d)
	used = e != nil && e.next == nil && d.Allowed && !d.Repeated && !d.Overridden &&
		d.Source == limiter.SourceOwner && d.Len() == len(l.Key.Rule.Limits) &&
		d.Limit(0).Rule == l.Key.Rule && !l.over(t) && !h.closed.Load()
	switch {
	case used:
		e.take(l, d)
	case e != nil:
		e.pause(t, span)
	}
	if e != nil {
		e.asking = false
	}
	return used
}

// endWithWindow ends a lease that was granted by a decision with the fixed windows in which it was, and with the steps
// of windows that slide and are nearly full. They end no earlier than counted from the instant at which it was asked
// for.
func (l *Lease) endWithWindow(d *limiter.Decision) {
	for i := range min(d.Len(), len(l.Key.Rule.Limits)) {
		limit, most := l.Key.Rule.Limits[i], l.Until.Now-l.from
		if limit.Algorithm() == limiter.FixedWindow {
			most = useFor(limiter.Span(d.Limit(i).ResetAfter))
		} else if rest := endOfStep(limit, d.Limit(i).Remaining, l.Until.At-most); rest > 0 {
			most = rest
		}
		if over := l.Until.Now - l.from - most; over > 0 {
			l.Until.Now, l.Until.At = l.Until.Now-over, l.Until.At-over
		}
	}
}

// take begins the use of a lease that the owner has granted by a decision.
func (e *leased) take(l *Lease, d *limiter.Decision) {
	l.owner = d.Limit(0).Owner
	e.left = ^uint64(0)
	for i := range d.Len() {
		r := d.Limit(i)
		e.left = min(e.left, r.Remaining)
		l.limits[i] = standing{remaining: r.Remaining, inForce: r.InForce, resetAfter: limiter.Span(r.ResetAfter)}
	}
	if e.now == nil {
		e.now = l
	} else {
		e.next = l
	}
}

// Used returns how many units of a lease were used. No more are once it is over.
func (h *Holder) Used(l *Lease) uint64 {
	s, _ := h.shard(l.Key.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.used
}

// Ended returns the leases whose time is over and that are to be given back, and reports whether others are used.
func (h *Holder) Ended(t Instant) (over []*Lease, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = slices.DeleteFunc(h.all, func(l *Lease) bool { return l.gone })
	for _, l := range h.all {
		s, set := h.shard(l.Key.Hash)
		s.mu.Lock()
		e := s.find(set, &l.Key)
		switch {
		case e == nil || e.now != l && e.next != l: // it is not used yet, or not any more
		case !l.over(t) && !h.closed.Load():
			more = true
		default:
			if l.returned = true; e.now == l {
				e.now, e.next = e.next, nil
			} else {
				e.next = nil
			}
			over = append(over, l)
		}
		s.mu.Unlock()
	}
	return over, more
}

// Admitted returns how many checks leases have admitted.
func (h *Holder) Admitted() (n uint64) {
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		n += s.admitted
		s.mu.Unlock()
	}
	return n
}

// Close ends the use of all leases: they are to be given back, see Ended.
func (h *Holder) Close() { h.closed.Store(true) }

// Closed reports whether Close was called.
func (h *Holder) Closed() bool { return h.closed.Load() }

// Returned forgets a lease. If the owner may not know what was used of it, it charges all. settled names that charge,
// with the time 0 if that is not known; Returned returns the refunds that waited for it.
func (h *Holder) Returned(l *Lease, known bool, settled limiter.Receipt) (late []Late) {
	unused := l.Units - h.Used(l)
	h.mu.Lock()
	defer h.mu.Unlock()
	l.gone = true
	if known {
		return h.past.add(l, settled)
	}
	if h.lost == nil {
		h.lost = make(map[string]uint64)
	}
	h.lost[l.Key.Rule.Name] += unused
	return nil
}

// Recall ends the use of the lease with an id, and returns it to be given back; nil if there is none. One whose answer
// is still awaited will not be used. The next one of its key is asked for a little later.
func (h *Holder) Recall(t Instant, id uint64) *Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := slices.IndexFunc(h.all, func(l *Lease) bool { return l.ID == id && !l.gone })
	if at < 0 {
		return nil
	}
	l := h.all[at]
	s, set := h.shard(l.Key.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.returned {
		return nil
	}
	l.returned = true
	e := s.find(set, &l.Key)
	if e == nil {
		return nil
	}
	e.pause(t, hotFor)
	switch l {
	case e.now:
		e.now, e.next = e.next, nil
	case e.next:
		e.next = nil
	default:
		return nil
	}
	return l
}

// Lost returns, by rule, how many units were not used that an owner may have charged all the same.
func (h *Holder) Lost() map[string]uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.lost)
}

// Lent is what an owner has lent, or may have.
type Lent struct {
	Key arith.Key
	// Units are lent until an instant, and Used of them were used.
	Units, Used uint64
	Until       limiter.Tick
}

// List returns what is lent, or may be.
func (h *Holder) List() (out []Lent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.all {
		if l.gone {
			continue
		}
		out = append(out, Lent{Key: l.Key, Units: l.Units, Used: h.Used(l), Until: l.Until.Now})
	}
	return out
}
