package route

import (
	"sync"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// ClocksDiffer is by how much members' clocks may differ before a node says so. What a key is granted beyond its limit
// where windows begin is granted within the difference, see docs/promises.md.
const ClocksDiffer = 250 * limiter.Millisecond

// clocksFor is how long a difference is remembered: while checks go from one member to another, it is seen again all
// the time.
const clocksFor = limiter.Minute

// clocks has the members whose clocks differ from this node's by more than [ClocksDiffer]. A reply says at which
// instant of its owner's clock a check was charged, and that was between the check's call and its answer. So the
// difference is known to the least for certain, however long the reply took.
type clocks struct {
	mu   sync.Mutex
	seen map[peer.Instance]differs
}

type differs struct{ by, at limiter.Tick }

// compare takes an instant of a member's clock that was between two of this node's.
func (c *clocks) compare(of peer.Instance, charged, from, to limiter.Tick) {
	by := max(charged-to, from-charged)
	if by <= ClocksDiffer { // as after almost every reply
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = make(map[peer.Instance]differs)
	}
	if was, ok := c.seen[of]; ok && to-was.at < clocksFor {
		by = max(by, was.by)
	}
	c.seen[of] = differs{by, to}
}

// ClockDifference returns the member whose clock differs most from this node's, of those that were found to differ by
// more than [ClocksDiffer] within the last minute of the counters' clock, and by how much at least; 0 if there is none.
func (c *Router) ClockDifference(now limiter.Tick) (of peer.Instance, by limiter.Tick) {
	c.clocks.mu.Lock()
	defer c.clocks.mu.Unlock()
	for i, d := range c.clocks.seen {
		switch {
		case now-d.at >= clocksFor:
			delete(c.clocks.seen, i)
		case d.by > by || d.by == by && i < of:
			of, by = i, d.by
		}
	}
	return of, by
}
