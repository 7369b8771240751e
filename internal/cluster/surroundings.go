package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// surroundings is what the replicas of a core may ask of it, see [replica.Peers] and
// [replica.Pace].
type surroundings struct{ c *Core }

// node returns what the replicas of this core share.
func (c *Core) node() *replica.Node {
	s := surroundings{c}
	return &replica.Node{
		Self: c.self, Seeds: c.config.Seeds, Store: c.table, Peers: s, Pace: s,
		Staged: &c.staged, Reserves: &c.reserves, Random: c.random, Fault: c.fault,
	}
}

// Reachable reports whether there is a direct connection to a member.
func (s surroundings) Reachable(i peer.Instance) bool { return s.c.reachable(i) }

// Patience returns span, or three round trips to a member if that is longer.
func (s surroundings) Patience(to peer.Instance, span limiter.Tick) limiter.Tick {
	return s.c.patience(to, span)
}

// Measured records the time of a round trip.
func (s surroundings) Measured(to peer.Instance, took limiter.Tick) { s.c.measured(to, took) }

// BeginSnapshot counts a snapshot to a member, unless maxSnapshots are under way to it.
func (s surroundings) BeginSnapshot(to peer.Instance) bool {
	l := s.c.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.snapshots >= maxSnapshots {
		return false
	}
	l.snapshots++
	return true
}

// EndSnapshot makes room for another snapshot to a member.
func (s surroundings) EndSnapshot(to peer.Instance) {
	l := s.c.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.snapshots = max(0, l.snapshots-1)
}

// LeftView returns when an instance left the view; 0 if it is in the view or was never
// seen.
func (s surroundings) LeftView(i peer.Instance) limiter.Tick { return s.c.outOfView(i) }

// Nearby returns the members that count, are not in the view, and have a direct
// connection to this node.
func (s surroundings) Nearby(v *view.View) ([]peer.Instance, bool) { return s.c.nearby(v) }

// Eased returns the wait before a message is sent again.
func (s surroundings) Eased(span limiter.Tick) limiter.Tick { return s.c.eased(span) }

// Awake returns the start of the time in which this node is known to have run without a
// pause, and the last ping sent before that.
func (s surroundings) Awake() (limiter.Tick, uint32) { return s.c.awake() }

// NextPing numbers a message that is to be answered.
func (s surroundings) NextPing() uint32 { return s.c.nextPing() }

// LastPing returns the number of the last such message.
func (s surroundings) LastPing() uint32 { return s.c.pings.Load() }
