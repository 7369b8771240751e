package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
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

// newRouter returns the calls of this core.
func (c *Core) newRouter() *route.Router {
	return route.New(route.Config{
		Self: c.self, Deadline: c.config.Deadline, Mesh: c.mesh, Rules: c.rules, View: c.view.Load, Places: surroundings{c.mesh, c},
		Fallback: c.fallback, CachedDenials: c.config.CachedDenials,
	})
}

// Owner returns the member to ask about a key.
func (s surroundings) Owner(k *limiter.Key) (to peer.Instance, managed bool) {
	p := s.c.part(k)
	if p == nil {
		return 0, false
	}
	return peer.Instance(p.to.Load()), true
}

// Where returns where the partition of a key is decided.
func (s surroundings) Where(k *limiter.Key) route.Place {
	p := s.c.part(k)
	if p == nil {
		return route.Place{}
	}
	return route.Place{
		Managed: true, Closed: p.closed, Partition: p.id, Owner: peer.Instance(p.to.Load()), Heir: peer.Instance(p.toHeir.Load()),
		GivenUpAt: limiter.Tick(p.givenUpAt.Load()),
	}
}

// Isolated reports whether this node reaches no other member, though others count.
func (s surroundings) Isolated(now limiter.Tick) bool { return s.c.isolated(now) }

// Random returns a number from 0 up to, but not including, below.
func (s surroundings) Random(below limiter.Tick) limiter.Tick { return s.c.random(below) }

// FellBack counts a check that a policy answers.
func (s surroundings) FellBack(partition uint16) { s.c.event(EventFallback, int(partition)) }

// Handle decides a request or keeps it, see [route.Node].
func (t *turn) Handle(q *route.Request, answer, idle *limiter.Decision) (route.Verdict, uint16) {
	v, p := t.c.handle(t, q, answer, idle)
	if p == nil {
		return v, route.NoPartition
	}
	return v, p.id
}

// Learn records an owner that another member named, see [route.Node].
func (t *turn) Learn(partition uint16, owner peer.Epoch, doubt bool) {
	t.c.at(t, partition, func(m *replica.Replica, s *replica.Turn) { m.Learn(s, owner, doubt) })
}

// Doubt questions the owner of a partition, see [route.Node].
func (t *turn) Doubt(partition uint16) {
	if p := t.c.byID[partition]; p != nil {
		t.c.doubtOwner(t, p)
	}
}
