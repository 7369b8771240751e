package cluster

import (
	"github.com/weirlimit/weir/limiter"
)

// decideByPolicy answers a check for which neither owner nor heir could be asked. The
// counters of open and local rules are this node's own, in a table that is never merged.
func (c *Core) decideByPolicy(t *turn, k *limiter.Charge, answer, idle *limiter.Decision) {
	v := c.view.Load()
	share := *k.Clone()
	source, closed := limiter.SourceFallbackOpen, false
	for i := range share.Len() {
		key := share.Key(i)
		switch key.Rule.OnUnreachable {
		case limiter.UnreachableClosed:
			closed = true
		case limiter.UnreachableLocal:
			source = limiter.SourceFallbackLocal
			key.Rule = c.shares.of(key.Rule, 1, uint64(max(1, v.Recent)))
		}
	}
	if closed {
		deny(k, answer)
		if idle != nil {
			*idle = *answer.Clone()
		}
		return
	}
	if idle != nil {
		share.Peek = true
		if c.fallback.Decide(t.at, &share, idle) == nil {
			named(k, idle)
		}
		share.Peek = k.Peek
	}
	if err := c.fallback.Decide(t.at, &share, answer); err != nil {
		deny(k, answer)
		return
	}
	named(k, answer)
	answer.Source = source
	answer.Receipt = limiter.Receipt{}
}

// deny answers a check without counting it: limits of closed rules deny, with a wait of
// a second, and all others allow.
func deny(k *limiter.Charge, d *limiter.Decision) {
	d.Clear()
	n := 0
	for i := range k.Len() {
		n += len(k.Key(i).Rule.Limits)
	}
	limiter.Grow(d, n)
	n = 0
	for i := range k.Len() {
		key := k.Key(i)
		for _, l := range key.Rule.Limits {
			closed := key.Rule.OnUnreachable == limiter.UnreachableClosed
			*d.Limit(n) = limiter.LimitDecision{
				Rule: key.Rule, Limit: l, Key: i, KeyIndex: key.Index, Cost: key.Cost, Allowed: !closed,
			}
			if closed {
				d.Limit(n).RetryAfter = limiter.Second.Duration()
			}
			n++
		}
	}
	limiter.Settle(d, k.Peek)
	limiter.Conclude(d)
	d.Source = limiter.SourceFallbackClosed
}
