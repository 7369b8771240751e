package cluster

// What waits at this node for other members has bounds of its own for each partition, and
// one for all: a node has thousands of partitions, and somebody may fill each of them.
// This node's own requests are bounded where they begin, see [opTable].
const maxPending = 1 << 17

// admits reports whether one more request of other members may wait here, and counts it.
// Of this node's own there is always room.
func (c *Core) admits(r *replyTo) bool {
	if r.op != nil {
		return true
	}
	if c.pending.Add(1) > maxPending {
		c.pending.Add(-1)
		return false
	}
	return true
}

// ended takes note that requests wait no more, or will be counted anew.
func (c *Core) ended(r *replyTo) {
	if r.op == nil {
		c.pending.Add(-1)
	}
}

// crowded reports whether no request of other members may begin to wait now.
func (c *Core) crowded(r *replyTo) bool { return r.op == nil && c.pending.Load() >= maxPending }
