package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/route"
)

// maxPending bounds the requests of other members that wait at this node in all. Each
// partition has bounds of its own, but a node has thousands of partitions, and a member
// could fill each. This node's own requests are bounded where they begin, see [opTable].
const maxPending = 1 << 17

// admits reports whether one more request may wait here, and counts it. Requests of this
// node are always admitted and not counted.
func (c *Core) admits(r *route.ReplyTo) bool {
	if r.Call != nil {
		return true
	}
	if c.pending.Add(1) > maxPending {
		c.pending.Add(-1)
		return false
	}
	return true
}

// ended counts down a request that stops waiting, or that will be counted anew.
func (c *Core) ended(r *route.ReplyTo) {
	if r.Call == nil {
		c.pending.Add(-1)
	}
}

// crowded reports whether no further request of other members may wait now.
func (c *Core) crowded(r *route.ReplyTo) bool { return r.Call == nil && c.pending.Load() >= maxPending }
