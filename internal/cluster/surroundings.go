package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// surroundings is what replicas and calls may ask of the core, see [replica.Peers] and
// [route.Places].
type surroundings struct {
	*mesh.Mesh // connections, round trips and snapshots under way
	*absences

	c *Core
}

// Nearby returns the members that count, are not in the view, and have a direct
// connection to this node.
func (s surroundings) Nearby(v *view.View) ([]peer.Instance, bool) { return s.c.nearby(v) }

// Counts reports whether an instance that is not in the view is a member that counts.
func (s surroundings) Counts(i peer.Instance) bool {
	return slices.ContainsFunc(s.c.registry.Dead(), func(k peer.Known) bool { return k.Instance == i })
}

// Told returns how many more members those in the view tell of, by too few words for them to count.
func (s surroundings) Told() int { return s.c.registry.Told() }

// Owner returns the member to ask about a key.
func (s surroundings) Owner(k *arith.Key) (to peer.Instance, managed bool) {
	if s.c.partitions.of(k) == nil {
		return 0, false
	}
	return s.c.partitions.owner(k), true
}

// Where returns where the partition of a key is decided.
func (s surroundings) Where(k *arith.Key) route.Place {
	p := s.c.partitions.of(k)
	if p == nil {
		return route.Place{}
	}
	return route.Place{
		Managed: true, Closed: p.closed, Partition: p.id, Owner: peer.Instance(p.to.Load()),
		Heir:      peer.Instance(p.toHeir.Load()),
		GivenUpAt: limiter.Tick(p.givenUpAt.Load()),
	}
}

// CutOff reports whether this node reaches no other member, though others count.
func (s surroundings) CutOff(now limiter.Tick) bool {
	return s.c.absent.cutOff(now, s.c.view.Load(), s.c.mesh)
}

// Random returns a number from 0 up to, but not including, below.
func (s surroundings) Random(below limiter.Tick) limiter.Tick { return s.c.random.below(below) }

// FellBack counts a check that a policy answers.
func (s surroundings) FellBack(partition uint16) { s.c.event(EventFallback, int(partition)) }

// Handle decides a request or keeps it, see [route.Node].
func (t *turn) Handle(q *route.Request, answer, idle *limiter.Decision) (route.Verdict, uint16) {
	v, p := t.c.decider.handle(t, q, answer, idle)
	if p == nil {
		return v, route.NoPartition
	}
	return v, p.id
}

// Learn records an owner that another member named, see [route.Node].
func (t *turn) Learn(partition uint16, owner peer.Epoch, doubt bool) {
	t.c.partitions.at(t, partition, func(m *replica.Replica, s *replica.Step) { m.Learn(s, owner, doubt) })
}

// Doubt doubts the owner of a partition, which did not answer, if it is not in the view,
// see [route.Node]. It does not wait for the partition's lock.
func (t *turn) Doubt(partition uint16) {
	p := t.c.partitions.byID[partition]
	if p == nil {
		return
	}
	if to := peer.Instance(p.to.Load()); to == 0 || to == t.c.self || t.view().Has(to) {
		return
	}
	t.later = append(t.later, func(t *turn) {
		p.run(t, func(r *replica.Replica, s *replica.Step) { r.Doubt(s) })
	})
}
