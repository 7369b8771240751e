package cluster

import (
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/members"
	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Core decides checks in a cluster. It is safe for concurrent use. No method waits for
// another member except [Core.Check] and [Core.CheckMany].
type Core struct {
	self   peer.Instance
	config Config
	table  *table.Table
	random random
	pace   pace
	ticks  ticks

	partitions partitions
	reports
	inspection
	memberNews
	decider decider
	intake  intake

	view   atomic.Pointer[view.View]
	mine   atomic.Uint32 // peer.State of this node
	absent absences
	staged atomic.Int64 // bytes of incomplete snapshots, of all partitions

	mesh   *mesh.Mesh
	calls  *route.Router
	turns  sync.Pool
	closed atomic.Bool
}

// New returns a core that knows no member but itself. It decides nothing before the
// first [Core.SetView].
func New(c Config) *Core {
	if c.Deadline <= 0 {
		c.Deadline = DefaultDeadline
	}
	core := &Core{
		self: c.Self.Instance, config: c, table: c.Table,
		random: random{rand: c.Rand}, pace: pace{sched: c.Scheduler},
		ticks:  ticks{idleAt: c.Scheduler.Now(), due: make([]atomic.Int64, 2*table.Partitions)},
		absent: absences{since: make(map[peer.Instance]limiter.Tick)},
	}
	core.ticks.core = core
	core.mine.Store(uint32(c.Self.State))
	core.turns.New = func() any { return new(turn) }
	core.view.Store(view.None(core.self))
	core.observer = c.Observer
	core.mesh = core.newMesh()
	near := surroundings{core.mesh, &core.absent, core}
	core.partitions = newPartitions(&replica.Node{
		Self: core.self, Seeds: c.Seeds, Store: c.Table, Peers: near, Pace: &core.pace,
		Staged: &core.staged, Prepared: &core.decider.preparations.count, Random: core.random.below, Fault: core.config.fault,
		SaveEvery: c.SaveEvery,
	}, c.Partitions)
	rules := mesh.NewDictionary(func(name string) *limiter.Rule { return core.config.Rule(name) })
	core.calls = route.New(route.Config{
		Self: core.self, Deadline: c.Deadline, Mesh: core.mesh, Rules: rules, View: core.view.Load, Places: near,
		Fallback: c.Fallback, CachedDenials: c.CachedDenials, Wall: wallOf(c.Scheduler),
		Sample: func(charge *arith.Charge) { c.Table.Sample(charge) },
	})
	core.memberNews = memberNews{self: c.Self, registry: members.NewRegistry(c.Self.Name), links: core.mesh,
		view: &core.view, sched: c.Scheduler}
	core.inspection = inspection{partitions: core.partitions, view: &core.view, sched: c.Scheduler}
	core.decider = decider{
		parts: core.partitions, table: c.Table, name: c.Self.Name, refuseResets: c.RefuseResets,
		shares:       shares{parts: core.partitions, calls: core.calls, few: few{links: core.mesh}},
		preparations: preparations{parts: core.partitions, table: c.Table, self: core.self},
	}
	core.decider.slices.Member = func(id uint64) bool { return borrowed(core.view.Load(), id) }
	core.intake = intake{
		parts: core.partitions, table: c.Table, rules: rules, decider: &core.decider, calls: core.calls,
		members: &core.memberNews, reports: &core.reports, deadline: c.Deadline, note: c.Note,
	}
	return core
}

// wallOf returns the wall clock of a scheduler, nil if it has none. Its other clock stands still while the machine is
// suspended, and what this node was lent ends all the same.
func wallOf(s Scheduler) func() limiter.Tick {
	if w, has := s.(interface{ Wall() limiter.Tick }); has {
		return w.Wall
	}
	return nil
}

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
		Counters: c.table, Probe: probe, Fault: c.config.fault,
	})
}

// SetView replaces the view: the members and the ring. All partitions react to it before
// SetView returns.
func (c *Core) SetView(v *view.View) {
	t := c.begin()
	defer t.end()
	defer t.Catch()
	// The state is set first: a turn that reads the view and then the state must not find a
	// joining node that owns partitions.
	was := peer.State(c.mine.Load())
	m := v.Self()
	if m != nil {
		c.mine.Store(uint32(m.State))
	}
	old := c.view.Swap(v)
	if m != nil && m.State == peer.Leaving {
		c.calls.Leases.End(&t.Turn)
		if was != peer.Leaving {
			c.leave(t, v)
		}
	}
	c.absent.changed(old, v, t.Now)
	c.decider.shares.viewChanged(t, old, v)
	c.mesh.ForgetEnded(t.Now)
	c.partitions.each(t, (*replica.Replica).ViewChanged)
	for i := range v.Members {
		if to := v.Members[i].Instance; to != c.self && !old.Has(to) {
			c.partitions.announceTo(t, to)
		}
	}
}

// Close ends the core: from then on frames are ignored and ticks do nothing. It does not
// complete checks that are under way.
func (c *Core) Close() {
	c.closed.Store(true)
}
