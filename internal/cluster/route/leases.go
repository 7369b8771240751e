package route

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Leases are the units that owners have lent this node. A key that is often asked for here is decided here then,
// until its units or their time are over. The owner counts them as charged now, at each instant, until they are given
// back, and then what was used of them, see [arith.Idempotency]. So nothing is admitted twice, whatever becomes of
// this node: what it does not give back the owner charges whole.
//
// A lease ends here before it ends at the owner: here it begins when it is asked for, and the owner waits for it to be
// given back. It is safe for concurrent use.
type Leases struct {
	c      *Router
	warm   [warmKeys]atomic.Uint32 // see isWarm
	shards [leaseShards]leaseShard
	asked  atomic.Uint64 // leases that were asked for
	closed atomic.Bool   // the node leaves: there are no more

	mu  sync.Mutex
	all []*lease // that were asked for and may be lent, in that order
	// lost are, by rule, units that were not used and that an owner may have charged all the same.
	lost map[string]uint64
}

// A key belongs to one set of one shard. A key that is asked for takes the place of one that was asked for less
// lately and has no lease; if all have one, it is decided by its owner.
const (
	leaseShards = 16
	leaseSets   = 128 // sets of a shard
	leaseWays   = 4

	leaseLimits = 4 // keys of rules with more limits are not lent
	// hotFor is the time in which a key must be asked for hotChecks times to be worth a lease: that costs the owner and
	// its heir as much as some ten checks in frames that they share with others.
	hotFor    = 100 * limiter.Millisecond
	hotChecks = 32
	// leastLent is the least number of units that are worth a lease.
	leastLent = 16

	warmKeys = 1 << 13
)

type leaseShard struct {
	mu   sync.Mutex
	sets [][leaseWays]leased // nil until the first key
}

// lease is units that an owner has lent. The lock of its key's shard guards it.
type lease struct {
	key      arith.Key
	id       uint64
	n, used  uint64
	from     limiter.Tick // when it was asked for
	until    limiter.Tick // when its use ends, by the scheduler's time
	untilAt  limiter.Tick // and by the counters' clock, which goes on while a machine is suspended
	returned bool
	gone     bool            // it is not lent any more; Leases.mu guards this
	refunded map[uint64]bool // numbers of receipts that were used
	owner    string
	limits   [leaseLimits]refused
}

// wish is a lease that is to be asked for.
type wish struct {
	key arith.Key
	n   uint64
}

func (x *Leases) shard(h arith.Hash) (s *leaseShard, set int) {
	return &x.shards[h.Hi%leaseShards], int(h.Hi / leaseShards % leaseSets)
}

// useFor is for how long this node uses a lease for a span, by its own clock.
func useFor(span limiter.Tick) limiter.Tick { return span - span/1000 }

// waitsFor is for how long the owner waits until it is given back. After that it charges all.
func waitsFor(span limiter.Tick) limiter.Tick { return 3 * span }

// good reports whether a lease may be used for so many units.
func (l *lease) good(t *Turn, cost uint64) bool {
	return l != nil && !l.over(t) && l.used+cost <= l.n
}

// over reports whether the time of a lease is over.
func (l *lease) over(t *Turn) bool { return l.returned || t.Now >= l.until || t.At >= l.untilAt }

// admit decides a check by a lease, and reports whether it did. It also returns a lease that is over, and a wish for
// another one.
func (x *Leases) admit(t *Turn, k *arith.Key, span limiter.Tick, others uint64, d *limiter.Decision) (done bool,
	over *lease, w wish) {
	s, set := x.shard(k.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(set, k)
	if e == nil {
		if e = s.place(set, k, t.Now); e == nil {
			return false, nil, w
		}
	}
	if e.heard && k.Cost > e.left && e.now == nil {
		return false, nil, w // it is probably denied: no units are wanted for it
	}
	e.count(t.Now, k.Cost)
	if l := e.now; l != nil && (l.over(t) || l.used == l.n || !l.good(t, k.Cost) && e.next.good(t, k.Cost)) {
		if !l.returned {
			l.returned, over = true, l
		}
		e.now, e.next = e.next, nil
	}
	if done = e.now.good(t, k.Cost); done {
		e.now.used += k.Cost
		e.now.fill(t, k, d)
		low := e.now.n-e.now.used < e.now.n/4 || t.Now >= e.now.until-useFor(span)/4
		if !low {
			return true, over, w
		}
	}
	if n := e.wants(t.Now, span, others); n > 0 {
		e.asking, w = true, wish{key: *k, n: n}
	}
	return done, over, w
}

// fill writes the decision of a check that a lease admits.
func (l *lease) fill(t *Turn, k *arith.Key, d *limiter.Decision) {
	d.Clear()
	d.Grow(len(k.Rule.Limits))
	passed := max(0, t.Now-l.from)
	for i, limit := range k.Rule.Limits {
		r := &l.limits[i]
		*d.Limit(i) = limiter.LimitDecision{
			Rule: k.Rule, Limit: limit, KeyIndex: k.Index, Owner: l.owner, Cost: k.Cost, Allowed: true,
			Remaining: r.remaining + l.n - l.used, InForce: r.inForce, ResetAfter: max(0, r.resetAfter-passed).Duration(),
		}
	}
	arith.Combine(d, false)
	d.Source = limiter.SourceLeased
	d.Receipt = limiter.Receipt{Epoch: l.id, Time: t.At, Charged: 1<<len(k.Rule.Limits) - 1}
	arith.Conclude(d)
}

// heard records what is left of a key by an answer of its owner.
func (x *Leases) heard(k *arith.Key, d *limiter.Decision) {
	left := ^uint64(0)
	for i := range d.Len() {
		left = min(left, d.Limit(i).Remaining)
	}
	s, set := x.shard(k.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(set, k); e != nil {
		e.left, e.heard = left, true
	}
}

// answered records the answer to a wish, and reports whether the lease is used: not if it is denied, nor if it was lent
// by another rule, too late, or nobody knows what was left, as of a repetition.
func (x *Leases) answered(t *Turn, l *lease, span limiter.Tick, d *limiter.Decision) (used bool) {
	s, set := x.shard(l.key.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(set, &l.key)
	used = e != nil && e.next == nil && d.Allowed && !d.Repeated && d.Len() > 0 && d.Limit(0).Rule == l.key.Rule &&
		!l.over(t) && !x.closed.Load()
	switch {
	case used:
		e.take(l, d)
	case e != nil:
		e.notBefore = t.Now + span
	}
	if e != nil {
		e.asking = false
	}
	return used
}

// forget forgets a lease that is not lent any more.
func (x *Leases) forget(l *lease) {
	x.mu.Lock()
	l.gone = true
	x.mu.Unlock()
}

// take begins the use of a lease that the owner has granted by a decision.
func (e *leased) take(l *lease, d *limiter.Decision) {
	l.owner = d.Limit(0).Owner
	e.left = ^uint64(0)
	for i := range d.Len() {
		r := d.Limit(i)
		e.left = min(e.left, r.Remaining)
		l.limits[i] = refused{remaining: r.Remaining, inForce: r.InForce, resetAfter: limiter.Span(r.ResetAfter)}
	}
	if e.now == nil {
		e.now = l
	} else {
		e.next = l
	}
}

// ended returns the leases whose time is over and that are to be given back, and reports whether others are used.
func (x *Leases) ended(t *Turn) (over []*lease, more bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all = slices.DeleteFunc(x.all, func(l *lease) bool { return l.gone })
	for _, l := range x.all {
		s, set := x.shard(l.key.Hash)
		s.mu.Lock()
		e := s.find(set, &l.key)
		switch {
		case e == nil || e.now != l && e.next != l: // it is not used yet, or not any more
		case !l.over(t) && !x.closed.Load():
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

// Refund gives units of a lease that lasts back to it, by the receipt of a check that it admitted, and reports whether
// that is so. The number of a receipt is good once.
func (x *Leases) Refund(t *Turn, c *arith.Charge, r limiter.Receipt) bool {
	if c.Len() != 1 || r.Epoch == 0 || r.Parts != nil || !c.Fits(r) {
		return false
	}
	k := c.Key(0)
	s, set := x.shard(k.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(set, k)
	if e == nil {
		return false
	}
	for _, l := range []*lease{e.now, e.next} {
		if l == nil || l.id != r.Epoch || l.over(t) || l.refunded[r.Once] {
			continue
		}
		l.used -= min(l.used, k.Cost)
		if r.Once != 0 {
			if l.refunded == nil {
				l.refunded = make(map[uint64]bool)
			}
			l.refunded[r.Once] = true
		}
		return true
	}
	return false
}

// Decide decides a check by what the owner of its key has lent this node, and reports whether it did. It asks for a
// lease if the key is hot.
func (x *Leases) Decide(t *Turn, charge *arith.Charge, answer *limiter.Decision) bool {
	if charge.Len() != 1 || charge.Peek || charge.ID != nil {
		return false
	}
	k := charge.Key(0)
	if k.Rule == nil || !k.Rule.Leases || k.Cost == 0 || len(k.Rule.Limits) > leaseLimits {
		return false
	}
	if !x.isWarm(t.Now, k.Hash) {
		return false
	}
	c := x.c
	to, _ := c.config.Places.Owner(k)
	span := arith.LeaseFor(k.Rule)
	v := c.config.View()
	if to == 0 || to == c.config.Self || span == 0 || x.closed.Load() || !v.Speaks(peer.LeaseWire) {
		return false
	}
	done, over, w := x.admit(t, k, span, uint64(max(1, len(v.Members)-1)), answer)
	if over != nil {
		x.giveBack(t, over)
	}
	if w.n > 0 {
		x.ask(t, &w, span)
	}
	return done
}

// ask asks the owner of a key for a lease.
func (x *Leases) ask(t *Turn, w *wish, span limiter.Tick) {
	l := &lease{key: w.key, n: w.n, from: t.Now, until: t.Now + useFor(span), untilAt: t.At + useFor(span),
		id: max(1, uint64(x.c.config.Self)-x.asked.Add(1))}
	l.key.Cost = w.n
	charge := new(arith.Charge)
	charge.Add(l.key)
	charge.ID = &arith.Idempotency{ID: l.id, Life: limiter.Second.Duration(), Hold: waitsFor(span).Duration(), Keep: true,
		Lent: true}
	x.mu.Lock()
	x.all = append(x.all, l)
	x.mu.Unlock()
	answer := new(limiter.Decision)
	o := &Call{task: task{kind: KindCheck, charge: charge, answer: answer, until: t.Now + useFor(span), begunAt: t.At}}
	o.task.done = func(t *Turn, o *Call) {
		switch used := x.answered(t, l, span, answer); {
		case used:
			t.Tick = true
		case answer.Allowed, o.result.by == 0: // it may be granted although no answer came in time
			x.giveBack(t, l)
		default:
			x.forget(l)
		}
	}
	x.c.start(t, o)
}

// giveBack tells the owner what was used of a lease, which nobody uses any more. If the owner does not hear it, it
// charges all.
func (x *Leases) giveBack(t *Turn, l *lease) {
	key := l.key
	key.Cost = l.used
	charge := new(arith.Charge)
	charge.Add(key)
	charge.ID = &arith.Idempotency{ID: l.id, Life: limiter.Second.Duration()}
	x.c.start(t, &Call{task: task{kind: KindAmend, charge: charge, answer: new(limiter.Decision),
		amend: limiter.Amend{IgnoreUnknown: true}, done: func(_ *Turn, o *Call) {
			x.forget(l)
			amended := o.result.outcome.Amended
			if amended == nil || amended.State != limiter.AmendDone && amended.State != limiter.AmendRepeated {
				x.lose(l)
			}
		}}})
}

// Lease is what an owner has lent this node.
type Lease struct {
	Key arith.Key
	// Units are lent until an instant of the scheduler, and Used of them were used.
	Units, Used uint64
	Until       limiter.Tick
}

// lose notes that the owner may have charged what was not used of a lease.
func (x *Leases) lose(l *lease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.lost == nil {
		x.lost = make(map[string]uint64)
	}
	x.lost[l.key.Rule.Name] += l.n - l.used
}

// Lost returns, by rule, how many units were not used that an owner may have charged all the same.
func (x *Leases) Lost() map[string]uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.lost)
}

// List returns what is lent to this node, or may be.
func (x *Leases) List() (out []Lease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range x.all {
		if l.gone {
			continue
		}
		s, _ := x.shard(l.key.Hash)
		s.mu.Lock()
		out = append(out, Lease{Key: l.key, Units: l.n, Used: l.used, Until: l.until})
		s.mu.Unlock()
	}
	return out
}

// End gives back all leases, since this node leaves, and asks for no more.
func (x *Leases) End(t *Turn) {
	x.closed.Store(true)
	x.tick(t)
}

// tick gives back the leases whose time is over, and reports whether others are left.
func (x *Leases) tick(t *Turn) bool {
	over, more := x.ended(t)
	for _, l := range over {
		x.giveBack(t, l)
	}
	return more
}

// lent reports whether a charge asks for a lease.
func lent(k *arith.Charge) bool { return k.ID != nil && k.ID.Lent }
