package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
)

// Take returns the next frame to send to a member, nil if there is none. If checks is
// false, frames of checks stay queued. The caller owns the frame until it calls
// [Core.Release].
func (c *Core) Take(to peer.Instance, checks bool) *peer.Frame { return c.mesh.Take(to, checks) }

// Release returns a frame that [Core.Take] returned. The caller must not use it any
// more.
func (c *Core) Release(f *peer.Frame) { c.mesh.Release(f) }

// Up reports that a member can be reached directly.
func (c *Core) Up(i peer.Instance) {
	t := c.begin()
	defer t.end()
	defer t.Catch()
	c.mesh.Up(i)
	c.introduce(t, i, peer.State(c.mine.Load()) == peer.Leaving)
	c.partitions.each(t, func(r *replica.Replica, s *replica.Step) { r.Connected(s, i) })
}

// Down reports that a member cannot be reached directly, and that what was sent and not
// answered may be lost. It may be called again for each failed attempt to connect.
func (c *Core) Down(i peer.Instance) {
	t := c.begin()
	defer t.end()
	defer t.Catch()
	stranded, was := t.Out.Down(i, t.Now)
	if was {
		c.changed()
	}
	c.calls.Lost(&t.Turn, i)
	t.Out.Redirect(stranded)
	t.lose()
}

// lose tells the calls whose requests could not be delivered.
func (t *turn) lose() {
	for x, ok := t.Out.Lost(); ok; x, ok = t.Out.Lost() {
		t.c.calls.Undelivered(&t.Turn, x)
	}
}

// Reaches reports whether there is a direct connection to a member.
func (c *Core) Reaches(i peer.Instance) bool { return c.mesh.Reachable(i) }

// Answers reports whether a member that gossip calls dead is alive, see
// [mesh.Writer.Answers].
func (c *Core) Answers(i peer.Instance, patient bool) bool {
	t := c.begin()
	defer t.end()
	return t.Out.Answers(i, patient, t.Now)
}

// Deliver processes a frame that arrived. The frame is the caller's again when Deliver
// returns. After [Core.Close] it ignores all frames.
func (c *Core) Deliver(f *peer.Frame) {
	if c.closed.Load() {
		return
	}
	t := c.begin()
	defer t.end()
	defer t.Catch()
	if c.registry.Banned(f.From) || f.Relayed && c.registry.Banned(f.Via) {
		return // its sender is expelled
	}
	if f.To != c.self {
		t.Out.Relay(f)
		return
	}
	if f.From == 0 || f.From == c.self || f.Relayed && f.Via == 0 {
		return // without a sender or relay, or this node's own, relayed back to it
	}
	c.mesh.Received(f, t.Now)
	c.intake.frame(t, f)
}

// Forget stops counting a dead member and tells the members in reach. It reports whether
// there was a dead member of that name.
func (c *Core) Forget(name string) bool {
	gone, ok := c.registry.Forget(name)
	if ok {
		t := c.begin()
		defer t.end()
		t.Out.Spread([]peer.Known{gone}, nil)
	}
	return ok
}

// Expel throws a member out or, if back, lets it in again, and tells the members in reach. The
// error reports an invalid name, or too many of them.
func (c *Core) Expel(name string, back bool) error {
	t := c.begin()
	defer t.end()
	news, err := c.registry.Expel(name, back, t.Now)
	if err == nil {
		c.tellExpelled(t, news, 0)
		c.changed()
	}
	return err
}
