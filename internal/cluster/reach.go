package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
)

// newMesh returns the queues to the other members.
func (c *Core) newMesh() *mesh.Mesh {
	probe := 0
	if p := c.config.Partitions; len(p) > 0 {
		probe = p[0]
	} else if p != nil {
		probe = -1
	}
	return mesh.New(mesh.Config{
		Self: c.self, Now: c.config.Scheduler.Now, View: c.view.Load, Wake: c.config.Network.Wake,
		Waiting:  func(id uint64) bool { return c.calls.Waits(id) },
		Relayed:  func() { c.event(EventRelayed, -1) },
		Counters: c.table, Probe: probe, Fault: c.fault,
	})
}

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
	c.introduce(t, i)
	for _, p := range c.parts {
		c.in(t, p, func(r *replica.Replica, s *replica.Turn) { r.Connected(s, i) })
	}
}

// Down reports that a member cannot be reached directly, and that what was sent and not
// answered may be lost. It may be called again for each failed attempt to connect.
func (c *Core) Down(i peer.Instance) {
	t := c.begin()
	defer t.end()
	defer t.Catch()
	stranded, was := t.Out.Down(i, t.Now)
	if was {
		c.news()
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
