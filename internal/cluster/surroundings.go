package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// surroundings is what the replicas of a core may ask of it, see [replica.Peers] and
// [replica.Pace].
type surroundings struct {
	*mesh.Mesh // connections, round trips and snapshots under way

	c *Core
}

// node returns what the replicas of this core share.
func (c *Core) node() *replica.Node {
	s := surroundings{c.mesh, c}
	return &replica.Node{
		Self: c.self, Seeds: c.config.Seeds, Store: c.table, Peers: s, Pace: s,
		Staged: &c.staged, Reserves: &c.reserves, Random: c.random, Fault: c.fault,
	}
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
