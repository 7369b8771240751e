package route

import (
	"sync"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// denials is a cache of denials that owners have just given this node. Until the check
// could be allowed again, and for at most a second, the same check of the same key is
// denied here without asking, so that a denied client that keeps asking costs the owner
// nothing. It is safe for concurrent use.
//
// A denial is cached for one cost, because another cost has another wait. Not cached are
// checks whose denial charges (count_rejected), shadow rules, peeks, and denials by a
// full table, or by a limit on concurrency: what is held may be free at any time.
type denials struct {
	shards [denialShards]denialShard
}

// A key belongs to one set of one shard. At the bound of a set, the denial that ends
// first is replaced.
const (
	denialShards = 16
	denialSets   = 256 // sets of a shard
	denialWays   = 4
	maxDenials   = denialShards * denialSets * denialWays

	denialLimits = 4 // denials of rules with more limits are not cached
	denialFor    = limiter.Second
)

type denialShard struct {
	mu   sync.Mutex
	sets [][denialWays]denial // nil until the first denial
}

type denial struct {
	hash arith.Hash
	// rule is the asker's rule when it asked. If a reload has replaced the rule, the
	// pointer differs and the denial does not match.
	rule *limiter.Rule
	cost uint64
	// asked is when the owner was asked, heard when its answer arrived, until when the
	// denial ends: all in the asker's time.
	asked, heard, until limiter.Tick
	owner               string
	limits              [denialLimits]refused
}

// refused is the answer of one limit.
type refused struct {
	allowed, blocked       bool
	remaining, inForce     uint64
	retryAfter, resetAfter limiter.Tick
}

// remembered reports whether denials of a check may be cached.
func (x *denials) remembered(c *arith.Charge) bool {
	return x != nil && c.Len() == 1 && !c.Peek && c.Key(0).Cost > 0
}

// worth reports whether a decision is a denial that may be cached.
func worth(k *arith.Key, d *limiter.Decision) bool {
	if d.Allowed || d.Never || k.Rule.Shadow || d.Len() > denialLimits || d.Len() != len(k.Rule.Limits) {
		return false
	}
	for i := range d.Len() {
		l := d.Limit(i)
		if l.Rule != k.Rule || l.Overflow || !l.Allowed && l.Limit.Algorithm() == limiter.Concurrency || l.Never ||
			l.Limit.CountRejected() != limiter.CountNone || !l.Allowed && l.RetryAfter <= 0 {
			return false
		}
	}
	return true
}

// add caches the decision of an owner if it is a denial that may be cached. asked is
// when the check began, and now when the answer arrived.
func (x *denials) add(now, asked limiter.Tick, k *arith.Key, d *limiter.Decision) {
	if !worth(k, d) {
		return
	}
	e := denial{hash: k.Hash, rule: k.Rule, cost: k.Cost, asked: asked, heard: now, until: asked + denialFor,
		owner: d.Limit(0).Owner}
	for i := range d.Len() {
		l := d.Limit(i)
		e.limits[i] = refused{l.Allowed, l.Blocked, l.Remaining, l.InForce, limiter.Span(l.RetryAfter),
			limiter.Span(l.ResetAfter)}
		if !l.Allowed {
			// The owner read its clock after it was asked, so nothing is allowed before
			// this. Afterwards this limit would answer differently.
			e.until = min(e.until, asked+limiter.Span(l.RetryAfter))
		}
	}
	if e.until <= now {
		return
	}
	s, at := x.shard(k.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sets == nil {
		s.sets = make([][denialWays]denial, denialSets)
	}
	set := &s.sets[at]
	to := &set[0]
	for i := range set {
		if have := &set[i]; have.is(k) {
			to = have
			break
		} else if have.until < to.until {
			to = have
		}
	}
	*to = e
}

func (x *denials) shard(h arith.Hash) (s *denialShard, set int) {
	return &x.shards[h.Hi%denialShards], int(h.Hi / denialShards % denialSets)
}

func (e *denial) is(k *arith.Key) bool {
	return e.hash == k.Hash && e.cost == k.Cost && e.rule == k.Rule
}

// refuse fills d with a cached denial of the check, and reports whether there was one.
// The waits are what is left of the owner's, counted from the arrival of its answer, so
// none is too short.
func (x *denials) refuse(now limiter.Tick, k *arith.Key, d *limiter.Decision) bool {
	s, at := x.shard(k.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sets == nil {
		return false
	}
	set := &s.sets[at]
	for i := range set {
		if e := &set[i]; e.is(k) && now >= e.asked && now < e.until {
			e.fill(max(0, now-e.heard), k, d)
			return true
		}
	}
	return false
}

// fill writes the cached decision, with waits shortened by passed.
func (e *denial) fill(passed limiter.Tick, k *arith.Key, d *limiter.Decision) {
	d.Clear()
	d.Grow(len(k.Rule.Limits))
	for i, l := range k.Rule.Limits {
		r := &e.limits[i]
		*d.Limit(i) = limiter.LimitDecision{
			Rule: k.Rule, Limit: l, KeyIndex: k.Index, Owner: e.owner, Cost: k.Cost,
			Allowed: r.allowed, Blocked: r.blocked, Remaining: r.remaining, InForce: r.inForce,
			RetryAfter: max(0, r.retryAfter-passed).Duration(), ResetAfter: max(0, r.resetAfter-passed).Duration(),
		}
	}
	arith.Combine(d, false)
	arith.Conclude(d)
	d.Source = limiter.SourceCached
}

// forget removes all cached denials of the keys of a charge, at any cost.
func (x *denials) forget(c *arith.Charge) {
	if x == nil {
		return
	}
	for i := range c.Len() {
		h := c.Key(i).Hash
		s, at := x.shard(h)
		s.mu.Lock()
		if s.sets != nil {
			set := &s.sets[at]
			for j := range set {
				if set[j].hash == h {
					set[j] = denial{}
				}
			}
		}
		s.mu.Unlock()
	}
}

// refusedHere answers a check with a cached denial, and reports whether it did.
func (c *Router) refusedHere(t *Turn, to peer.Instance, charge *arith.Charge, answer *limiter.Decision) bool {
	// A check with an id may have been admitted before.
	return to != c.config.Self && charge.ID == nil && c.denials.remembered(charge) &&
		c.denials.refuse(t.At, charge.Key(0), answer)
}
