package route

import (
	"slices"
	"sync"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// policies answers the checks of calls that neither an owner nor an heir answers.
type policies struct {
	view     func() *view.View
	fallback *table.Table
	shares   shares
}

// decide answers a check that neither an owner nor an heir can answer. Open and local
// rules count in a table of this node, which is never merged.
func (p *policies) decide(t *Turn, k *arith.Charge, answer, idle *limiter.Decision) {
	if lent(k) { // no policy lends
		answer.Clear()
		return
	}
	v := p.view()
	share := *k.Clone()
	if share.ID != nil && share.ID.Hold != 0 {
		share.ID.Keep = true
		if !concurrent(&share) {
			share.ID.Hold = 0 // whoever settles asks an owner, which charges what was used
		}
	}
	source, closed := limiter.SourceFallbackOpen, false
	for i := range share.Len() {
		key := share.Key(i)
		switch key.Rule.OnUnreachable {
		case limiter.UnreachableClosed:
			closed = true
		case limiter.UnreachableLocal:
			source = limiter.SourceFallbackLocal
			key.Rule = p.shares.of(key.Rule, 1, uint64(max(1, v.Recent)))
		}
	}
	if closed {
		deny(k, answer, false)
		if idle != nil {
			*idle = *answer.Clone()
		}
		return
	}
	if idle != nil {
		share.Peek = true
		if p.fallback.Decide(t.At, &share, idle) == nil {
			Relabel(k, idle)
		}
		share.Peek = k.Peek
	}
	if err := p.fallback.Decide(t.At, &share, answer); err != nil {
		deny(k, answer, true)
		return
	}
	Relabel(k, answer)
	answer.Source = source
	answer.Receipt = limiter.Receipt{}
}

// hasty reports whether a check with little time ends before its owner could be found silent. The
// call is locked.
func (o *Call) hasty(now limiter.Tick) bool {
	return (o.task.exact || o.c.config.Deadline < SilentAfter) && o.task.kind == KindCheck && o.progress.askedAt != 0 &&
		!o.progress.hasHeir && o.progress.owner != o.c.config.Self && now-o.progress.askedAt < SilentAfter
}

// inquire asks the owner of a partition once more, without a caller that waits and without a
// charge. This question has time to find a silent owner, and to ask the heir, which takes over.
// A partition has one at a time.
func inquire(t *Turn, o *Call, partition uint16) {
	if _, asked := o.c.doubted.LoadOrStore(partition, true); asked {
		return
	}
	k := &arith.Charge{Peek: true}
	k.Add(*o.task.charge.Key(0))
	o.c.start(t, &Call{task: task{kind: KindExplain, charge: k, answer: new(limiter.Decision),
		until: t.Now + 4*SilentAfter, done: func(_ *Turn, o *Call) {
			o.c.doubted.Delete(partition)
		}}})
}

// concurrent reports whether a rule of a charge limits concurrency.
func concurrent(k *arith.Charge) bool {
	for i := range k.Len() {
		if slices.ContainsFunc(k.Key(i).Rule.Limits, func(l *limiter.Limit) bool {
			return l.Algorithm() == limiter.Concurrency
		}) {
			return true
		}
	}
	return false
}

// deny answers a check without counting it: limits of closed rules deny, with a wait of
// a second, and all others allow. uncounted means that the table had no room for the counter:
// then those of local rules deny too, because a share that is not counted has no bound.
func deny(k *arith.Charge, d *limiter.Decision, uncounted bool) {
	d.Clear()
	n := 0
	for i := range k.Len() {
		n += len(k.Key(i).Rule.Limits)
	}
	d.Grow(n)
	n = 0
	for i := range k.Len() {
		key := k.Key(i)
		for _, l := range key.Rule.Limits {
			policy := key.Rule.OnUnreachable
			closed := policy == limiter.UnreachableClosed || uncounted && policy == limiter.UnreachableLocal
			*d.Limit(n) = limiter.LimitDecision{
				Rule: key.Rule, Limit: l, Key: i, KeyIndex: key.Index, Cost: key.Cost, Allowed: !closed,
			}
			if closed {
				d.Limit(n).RetryAfter = limiter.Second.Duration()
			}
			n++
		}
	}
	arith.Combine(d, k.Peek)
	arith.Conclude(d)
	d.Source = limiter.SourceFallbackClosed
}

// answer answers a check by the policy of its rule. If even that panics, the
// check is denied.
func (p *policies) answer(t *Turn, k *arith.Charge, answer, idle *limiter.Decision) {
	over := false
	defer func() {
		if !over {
			for _, d := range []*limiter.Decision{answer, idle} {
				if d != nil {
					d.Clear()
					d.Allowed, d.Source = false, limiter.SourceFallbackClosed
				}
			}
		}
	}()
	defer t.Catch()
	p.decide(t, k, answer, idle)
	over = true
}

// Relabel replaces the shares of rules and limits in a decision by the rules and limits of
// the charge, and records what was in force in their place. A cost that only the share can
// never admit may be admitted later, so the caller is told to wait a second.
func Relabel(k *arith.Charge, d *limiter.Decision) {
	n, later := 0, false
	for i := range k.Len() {
		key := k.Key(i)
		for _, l := range key.Rule.Limits {
			if n < d.Len() {
				at := d.Limit(n)
				if at.Limit != l {
					at.InForce = at.Limit.Limit()
				}
				at.Rule, at.Limit = key.Rule, l
				if at.Never && at.InForce != 0 && max(at.Cost, 1) <= l.Capacity() {
					at.Never, at.RetryAfter, later = false, limiter.Second.Duration(), true
				}
			}
			n++
		}
	}
	if !later || !d.Never {
		return
	}
	d.Never = false
	for i := range d.Len() {
		l := d.Limit(i)
		d.Never = d.Never || l.Never && !l.Rule.Shadow
	}
	arith.Conclude(d) // a check that is never allowed charged nothing: the receipt stays empty
}

// byShare reports whether a share of a limit was in force in a decision.
func byShare(d *limiter.Decision) bool {
	for i := range d.Len() {
		if d.Limit(i).InForce != 0 {
			return true
		}
	}
	return false
}

// graver returns the source to name for a decision in two parts: a policy's before a
// share's, and that before an heir's or owner's.
func graver(a, b limiter.Source) limiter.Source {
	rank := func(s limiter.Source) int {
		if s == limiter.SourceShare {
			return 2*int(limiter.SourceHeir) + 1
		}
		return 2 * int(s)
	}
	if rank(a) < rank(b) {
		return b
	}
	return a
}

// maxScaled is how many shares of rules are kept.
const maxScaled = 4096

// shares caches the shares of rules that a minority, or a policy, applies. It is cleared
// at its bound. It is safe for concurrent use.
type shares struct {
	mu     sync.Mutex
	scaled map[scaledKey]*limiter.Rule
}

type scaledKey struct {
	rule     *limiter.Rule
	num, den uint64
}

// of returns a rule with num/den of each limit, at least 1 each.
func (b *shares) of(r *limiter.Rule, num, den uint64) *limiter.Rule {
	key := scaledKey{r, num, den}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s, ok := b.scaled[key]; ok {
		return s
	}
	if len(b.scaled) >= maxScaled {
		clear(b.scaled)
	}
	s := &limiter.Rule{Name: r.Name, Shadow: r.Shadow, OnUnreachable: r.OnUnreachable, Replication: r.Replication,
		MaxShare: r.MaxShare}
	for _, l := range r.Limits {
		s.Limits = append(s.Limits, arith.Scaled(l, num, den))
	}
	b.scaled[key] = s
	return s
}

// Share returns a rule with num/den of each limit, at least 1 each. The rule is cached.
func (c *Router) Share(r *limiter.Rule, num, den uint64) *limiter.Rule {
	return c.policies.shares.of(r, num, den)
}

// pointless reports whether a check would wait in vain: this node is cut off, and a key
// belongs to a closed partition that this node does not own and cannot own without a
// majority.
func (c *Router) pointless(t *Turn, q *task) bool {
	if q.kind != KindCheck || !c.config.Places.CutOff(t.Now) {
		return false
	}
	for i := range q.charge.Len() {
		if p := c.where(q.charge.Key(i)); p.Managed && p.Closed && p.Owner != c.config.Self {
			return true
		}
	}
	return false
}

// deserted reports whether no member is expected to decide about a key before this node
// resumes the key's partition, which it has given up for longer than a deadline. It
// takes no partition's lock.
func (c *Router) deserted(t *Turn, charge *arith.Charge) bool {
	for i := range charge.Len() {
		p := c.where(charge.Key(i))
		if !p.Managed || p.Owner != c.config.Self {
			continue
		}
		if at := p.GivenUpAt; at != 0 && t.Now-at >= c.config.Deadline {
			return true
		}
	}
	return false
}
