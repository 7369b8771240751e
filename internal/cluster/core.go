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

	parts []*part // by ascending number
	byID  []*part // by number

	view     atomic.Pointer[view.View]
	mine     atomic.Uint32 // peer.State of this node
	registry *members.Registry
	onNews   atomic.Pointer[func()] // called when a link brings news about members
	absent   absences

	mesh  *mesh.Mesh
	rules *mesh.Dictionary
	calls *route.Router
	turns sync.Pool
	budgets
	events [Events]atomic.Uint64
	closed atomic.Bool
}

// budgets counts what is bounded for all partitions of a node together.
type budgets struct {
	pending  atomic.Int64 // requests of other members that wait at this node
	reserves atomic.Int64 // unsettled charges of reservations
	staged   atomic.Int64 // bytes of incomplete snapshots
}

// New returns a core that knows no member but itself. It decides nothing before the
// first [Core.SetView].
func New(c Config) *Core {
	if c.Deadline <= 0 {
		c.Deadline = DefaultDeadline
	}
	core := &Core{
		self: c.Self.Instance, config: c, table: c.Table,
		byID: make([]*part, 2*table.Partitions), registry: members.NewRegistry(),
		random: random{rand: c.Rand}, pace: pace{sched: c.Scheduler}, ticks: ticks{idleAt: c.Scheduler.Now(), due: make([]atomic.Int64, 2*table.Partitions)},
		absent: absences{since: make(map[peer.Instance]limiter.Tick)},
	}
	core.mine.Store(uint32(c.Self.State))
	core.turns.New = func() any { return new(turn) }
	core.view.Store(view.None(core.self))
	core.rules = mesh.NewDictionary(func(name string) *limiter.Rule { return core.config.Rule(name) })
	core.mesh = core.newMesh()
	core.calls = core.newRouter()
	node := core.node()
	if c.Partitions == nil {
		for id := range core.byID {
			core.manages(node, id)
		}
	}
	for _, id := range c.Partitions {
		core.manages(node, id)
	}
	return core
}

// part returns the partition of a key, or nil if this core does not manage it.
func (c *Core) part(k *limiter.Key) *part { return c.byID[table.PartitionOf(k)] }

func (c *Core) state() peer.State { return peer.State(c.mine.Load()) }

func (c *Core) event(e Event, partition int) {
	c.events[e].Add(1)
	if o := c.config.Observer; o != nil {
		o.Event(e, partition)
	}
}

// Count returns how often an event has happened since the core was created.
func (c *Core) Count(e Event) uint64 { return c.events[e].Load() }

func (c *Core) complain(what string, err error) {
	if o, ok := c.config.Observer.(interface{ Complain(string, error) }); ok {
		o.Complain(what, err)
	}
}

// SetView replaces the view: the members and the ring. All partitions react to it before
// SetView returns.
func (c *Core) SetView(v *view.View) {
	t := c.begin()
	defer t.end()
	defer t.Catch()
	old := c.view.Swap(v)
	if m := v.Self(); m != nil {
		state := m.State
		if was := c.mine.Swap(uint32(state)); state == peer.Leaving && peer.State(was) != state {
			c.leave(t, v)
		}
	}
	c.absent.changed(old, v, t.Now)
	c.mesh.ForgetEnded(t.Now)
	for _, p := range c.parts {
		c.in(t, p, (*replica.Replica).ViewChanged)
	}
	for i := range v.Members {
		if !old.Has(v.Members[i].Instance) {
			c.introduceOwned(t, v.Members[i].Instance)
		}
	}
}

// introduceOwned announces to a member every partition that this node owns.
func (c *Core) introduceOwned(t *turn, to peer.Instance) {
	if to == c.self {
		return
	}
	for _, p := range c.parts {
		c.in(t, p, func(r *replica.Replica, s *replica.Turn) { r.Introduce(s, to) })
	}
}

// Close ends the core: from then on frames are ignored and ticks do nothing. It does not
// complete checks that are under way.
func (c *Core) Close() {
	c.closed.Store(true)
}
