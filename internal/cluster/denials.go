package cluster

import (
	"sync"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// denials are what owners have refused this node a moment ago. Until it could be
// allowed again, and not longer than a second, the same check of the same key is
// refused here without asking, so that who is denied and goes on asking costs the
// owner nothing.
//
// What is remembered holds for one cost: of another one the wait would be another.
// Nothing is remembered of checks whose denial charges (count_rejected), of shadow
// rules, of peeks, and of a table that was full.
type denials struct {
	shards [denialShards]denialShard
}

// A check finds its key in one set of one shard. At the bound of a set the denial
// that ends first makes room.
const (
	denialShards = 16
	denialSets   = 256 // of a shard
	denialWays   = 4
	maxDenials   = denialShards * denialSets * denialWays

	denialLimits = 4 // of a rule with more nothing is remembered
	denialFor    = limiter.Second
)

type denialShard struct {
	mu   sync.Mutex
	sets [][denialWays]denial // nil until there is one
}

// denial is what an owner has refused.
type denial struct {
	hash limiter.Hash
	// rule is that of the asker's file at that time, so that other limits are
	// others' denials.
	rule *limiter.Rule
	cost uint32
	// asked is when the owner was asked, heard when it had answered, until when it
	// is to be asked again, all in the asker's time.
	asked, heard, until limiter.Tick
	owner               string
	limits              [denialLimits]refused
}

// refused is what one limit said.
type refused struct {
	allowed, blocked       bool
	remaining              uint32
	retryAfter, resetAfter limiter.Tick
}

// remembered tells whether a check is one that could be refused here.
func (x *denials) remembered(c *limiter.Charge) bool {
	return x != nil && c.Len() == 1 && !c.Peek && c.Key(0).Cost > 0
}

// worth tells whether a denial may be given again.
func worth(k *limiter.Key, d *limiter.Decision) bool {
	if d.Allowed || d.Never || k.Rule.Shadow || d.Len() > denialLimits || d.Len() != len(k.Rule.Limits) {
		return false
	}
	for i := range d.Len() {
		l := d.Limit(i)
		if l.Rule != k.Rule || l.Overflow || l.Never || l.Limit.CountRejected() != limiter.CountNone || !l.Allowed && l.RetryAfter <= 0 {
			return false
		}
	}
	return true
}

// add takes note of what an owner has decided, at now, of a check that was begun
// at asked.
func (x *denials) add(now, asked limiter.Tick, k *limiter.Key, d *limiter.Decision) {
	if !worth(k, d) {
		return
	}
	e := denial{hash: k.Hash, rule: k.Rule, cost: k.Cost, asked: asked, heard: now, until: asked + denialFor, owner: d.Limit(0).Owner}
	for i := range d.Len() {
		l := d.Limit(i)
		e.limits[i] = refused{l.Allowed, l.Blocked, l.Remaining, l.RetryAfter, l.ResetAfter}
		if !l.Allowed {
			// The owner looked at its clock after it was asked, so it allows nothing
			// sooner. From then on this limit would say something else.
			e.until = min(e.until, asked+l.RetryAfter)
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

func (x *denials) shard(h limiter.Hash) (s *denialShard, set int) {
	return &x.shards[h.Hi%denialShards], int(h.Hi / denialShards % denialSets)
}

func (e *denial) is(k *limiter.Key) bool {
	return e.hash == k.Hash && e.cost == k.Cost && e.rule == k.Rule
}

// refuse answers a check as its owner did, and reports whether it did so. The
// waits are what is left of the owner's, reckoned from when its answer was here,
// so that none is too short.
func (x *denials) refuse(now limiter.Tick, k *limiter.Key, d *limiter.Decision) bool {
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

// fill makes the decision again, passed later.
func (e *denial) fill(passed limiter.Tick, k *limiter.Key, d *limiter.Decision) {
	d.Clear()
	d.Grow(len(k.Rule.Limits))
	for i, l := range k.Rule.Limits {
		r := &e.limits[i]
		*d.Limit(i) = limiter.LimitDecision{
			Rule: k.Rule, Limit: l, KeyIndex: k.Index, Owner: e.owner, Cost: k.Cost,
			Allowed: r.allowed, Blocked: r.blocked, Remaining: r.remaining,
			RetryAfter: max(0, r.retryAfter-passed), ResetAfter: max(0, r.resetAfter-passed),
		}
	}
	d.Settle(false)
	d.Conclude()
	d.Source = limiter.SourceCached
}

// forget forgets what was refused of the keys of a charge, at any cost.
func (x *denials) forget(c *limiter.Charge) {
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

// refusedHere refuses a check that its owner has just refused.
func (c *Core) refusedHere(t *turn, to peer.Instance, charge *limiter.Charge, answer *limiter.Decision) bool {
	return to != c.self && c.denials.remembered(charge) && c.denials.refuse(t.at, charge.Key(0), answer)
}
