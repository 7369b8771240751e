package cluster

import (
	"math/rand/v2"
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
	self     peer.Instance
	config   Config
	table    *table.Table
	fallback *table.Table
	sched    Scheduler

	parts []*part // by ascending number
	byID  []*part // by number
	view  atomic.Pointer[view.View]

	mesh      *mesh.Mesh
	rules     *mesh.Dictionary
	turns     sync.Pool
	calls     *route.Router
	pending   atomic.Int64  // requests of other members that wait at this node
	reserves  atomic.Int64  // unsettled charges of reservations
	staged    atomic.Int64  // bytes of incomplete snapshots
	mine      atomic.Uint32 // peer.State of this node
	pings     atomic.Uint32
	easeUntil atomic.Int64 // end of the period of longer waits after a late tick; scheduler time, 0 if none
	events    [Events]atomic.Uint64

	// pulseAt is when the next tick is due, or when the running tick last reported
	// progress; 0 if no tick is scheduled. lateMu is held while a turn handles an
	// overdue tick.
	pulseAt atomic.Int64
	lateMu  sync.Mutex
	// awakeAt is the start of the time in which this node is known to have run without a
	// pause. awakePing is the last ping sent before that.
	awakeAt   atomic.Int64
	awakePing atomic.Uint32

	randMu sync.Mutex
	rand   *rand.Rand

	tickMu   sync.Mutex
	ticking  bool // a tick is scheduled or running
	rearm    bool // schedule another tick after the running one
	watched  []*part
	spare    []*part
	idleAt   limiter.Tick                   // when the last tick ended without scheduling another
	silenced map[peer.Instance]limiter.Tick // when each member left the view

	registry *members.Registry
	onNews   atomic.Pointer[func()] // called when a link brings news about members

	closed  atomic.Bool
	aloneAt atomic.Int64 // when the last other member left the view, scheduler time; 0 if the view has others or never had any
}

// New returns a core that knows no member but itself. It decides nothing before the
// first [Core.SetView].
func New(c Config) *Core {
	if c.Deadline <= 0 {
		c.Deadline = DefaultDeadline
	}
	core := &Core{
		self: c.Self.Instance, config: c, table: c.Table, fallback: c.Fallback, sched: c.Scheduler,
		byID: make([]*part, 2*table.Partitions), rand: c.Rand, silenced: make(map[peer.Instance]limiter.Tick),
		idleAt: c.Scheduler.Now(), registry: members.NewRegistry(),
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

func (c *Core) random(below limiter.Tick) limiter.Tick {
	c.randMu.Lock()
	defer c.randMu.Unlock()
	return limiter.Tick(c.rand.Int64N(int64(below)))
}

func (c *Core) nextPing() uint32 {
	for {
		if n := c.pings.Add(1); n != 0 {
			return n
		}
	}
}

// SetView replaces the view: the members and the ring. All partitions react to it before
// SetView returns.
func (c *Core) SetView(v *view.View) {
	t := c.begin()
	defer t.end()
	defer t.Catch()
	old := c.view.Swap(v)
	if len(v.Members) > 1 {
		c.aloneAt.Store(0)
	} else if len(old.Members) > 1 {
		c.aloneAt.Store(int64(t.Now))
	}
	if m := v.Self(); m != nil {
		state := m.State
		if was := c.mine.Swap(uint32(state)); state == peer.Leaving && peer.State(was) != state {
			c.leave(t, v)
		}
	}
	c.tickMu.Lock()
	for i := range old.Members {
		if m := old.Members[i].Instance; !v.Has(m) {
			c.silenced[m] = t.Now
		}
	}
	for i := range v.Members {
		delete(c.silenced, v.Members[i].Instance)
	}
	for i, since := range c.silenced {
		if t.Now-since >= mesh.ForgetAfter {
			delete(c.silenced, i)
		}
	}
	c.tickMu.Unlock()
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

// outOfView returns when an instance left the view; 0 if it is in the view or was never
// seen.
func (c *Core) outOfView(i peer.Instance) limiter.Tick {
	c.tickMu.Lock()
	defer c.tickMu.Unlock()
	return c.silenced[i]
}

// activate adds a partition to those that the next tick looks at.
func (c *Core) activate(p *part) {
	c.tickMu.Lock()
	c.watched = append(c.watched, p)
	c.tickMu.Unlock()
}

// arm schedules the next tick; a turn calls it at its end, see [turn.arm]. If a tick is
// scheduled or running, the next one is scheduled when that one ends. Otherwise a node
// that is too slow for its ticks would run several at once, and find all of them late.
func (c *Core) arm() {
	c.tickMu.Lock()
	defer c.tickMu.Unlock()
	if c.ticking {
		c.rearm = true
		return
	}
	c.schedule()
}

// schedule schedules the next tick, replica.TickEvery from now and not from the beginning of the
// turn that asks for it. No tick may be scheduled already. c.tickMu is held.
func (c *Core) schedule() {
	if c.ticking = !c.closed.Load(); c.ticking {
		c.rearm = false
		now := c.sched.Now()
		at := c.pulseAt.Load()
		if at == 0 && now-c.idleAt > lateAfter {
			c.wakeUp(now) // no tick watched the time meanwhile
		}
		if at == 0 || now-limiter.Tick(at) <= lateAfter {
			c.pulseAt.Store(int64(now + replica.TickEvery))
		} // else this node has just been paused: the next turn detects it in pulse
		c.sched.After(replica.TickEvery, c.tick)
	}
}

// pulse detects that this node was paused: the scheduled tick is overdue by more than
// lateAfter, or the running tick has made no progress for that long. After a pause the
// silence of others proves nothing, so all waits begin anew before the turn does
// anything else. t.Now must be the present time.
func (c *Core) pulse(t *turn) {
	at := c.pulseAt.Load()
	if at == 0 || t.Now-limiter.Tick(at) <= lateAfter {
		return
	}
	c.lateMu.Lock()
	defer c.lateMu.Unlock()
	if !c.pulseAt.CompareAndSwap(at, int64(t.Now)) {
		return // another turn handles it
	}
	c.event(EventLate, -1)
	c.wakeUp(t.Now)
	c.easeUntil.Store(int64(t.Now + replica.EaseFor))
	c.mesh.Restart(t.Now)
	for _, p := range c.parts {
		c.in(t, p, (*replica.Replica).Late)
	}
}

// wakeUp records that this node may have been paused until now.
func (c *Core) wakeUp(now limiter.Tick) {
	c.awakePing.Store(c.pings.Load())
	c.awakeAt.Store(int64(now))
}

// awake returns the start of the time in which this node is known to have run without a
// pause, and the last ping sent before that.
func (c *Core) awake() (limiter.Tick, uint32) {
	return limiter.Tick(c.awakeAt.Load()), c.awakePing.Load()
}

// goOn records progress of the running tick, after it has checked for a pause.
func (c *Core) goOn(t *turn) {
	t.Now = c.sched.Now()
	c.pulse(t)
	c.pulseAt.Store(int64(t.Now))
}

// tick does all work that is due.
func (c *Core) tick() {
	if c.closed.Load() {
		return
	}
	var parts []*part
	idle, now := false, c.sched.Now()
	defer func() { c.ticked(parts, idle, now) }()
	defer c.catch()
	t := c.begin()
	parts, idle = c.tickAll(t)
	now = t.Now
	t.end() // t may be reused by another turn from here on
}

// ticked ends a tick that looked at the given partitions. It schedules the next one
// unless idle is set and no partition is watched. idle means that nothing but watched
// partitions needs a tick.
func (c *Core) ticked(parts []*part, idle bool, now limiter.Tick) {
	c.tickMu.Lock()
	defer c.tickMu.Unlock()
	clear(parts)
	c.spare, c.ticking = parts[:0], false
	if !idle || c.rearm || len(c.watched) > 0 {
		c.schedule()
	} else {
		c.pulseAt.Store(0)
		c.idleAt = now
	}
}

// tickAll does all work that is due. It returns the partitions that it looked at; idle
// reports that only watched partitions need another tick. After a panic idle is false.
func (c *Core) tickAll(t *turn) (parts []*part, idle bool) {
	defer t.Catch()
	c.goOn(t)
	c.tickMu.Lock()
	parts = c.watched
	c.watched, c.rearm = c.spare[:0], false
	c.spare = nil
	c.tickMu.Unlock()
	for i, p := range parts {
		if i%pulseEvery == pulseEvery-1 {
			c.goOn(t)
		}
		c.tickPart(t, p)
	}
	c.goOn(t)
	watching := t.Out.Watch(t.Now)
	return parts, !c.calls.Tick(&t.Turn) && !watching
}

// tickPart does the work that is due in a partition, and watches it further if work
// remains.
func (c *Core) tickPart(t *turn, p *part) {
	p.mu.Lock()
	defer p.leave(t)
	over := false
	defer func() {
		if !over {
			p.active = false // it is no longer on the list, unless leave puts it back
		}
	}()
	active := p.r.Tick(t.inputs())
	p.apply(t)
	if p.active = active; active {
		c.activate(p)
	}
	over = true
}

// eased returns the wait before a message is sent again: eight times span during replica.EaseFor
// after this node was late. The nodes are overloaded then, and most missing answers are
// only late, not lost.
func (c *Core) eased(span limiter.Tick) limiter.Tick {
	if until := c.easeUntil.Load(); until != 0 && int64(c.sched.Now()) < until {
		return 8 * span
	}
	return span
}

// Close ends the core: from then on frames are ignored and ticks do nothing. It does not
// complete checks that are under way.
func (c *Core) Close() {
	c.closed.Store(true)
}
