package cluster

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Core decides checks in a cluster. It is safe for concurrent use, and no method
// waits for another member but [Core.Check] and its like.
type Core struct {
	self     peer.Instance
	config   Config
	table    *table.Table
	fallback *table.Table
	sched    Scheduler
	net      Network

	parts []*part // in the order of their numbers
	byID  []*part // by number
	view  atomic.Pointer[View]

	links     atomic.Pointer[linkSet]
	linksMu   sync.Mutex // held where links are made, forgotten, or come up
	numbered  uint64     // the highest number of a frame to anybody whose link is forgotten
	turns     sync.Pool
	waiters   sync.Pool
	frames    sync.Pool // of peer.Frame
	ops       opTable
	pending   atomic.Int64 // requests of other members that wait here
	reserves  atomic.Int64 // charges that are not settled
	staged    atomic.Int64 // bytes of snapshots that are not complete
	book      rulebook
	denials   *denials      // nil: none are remembered
	mine      atomic.Uint32 // peer.State of this node
	pings     atomic.Uint32
	easeUntil atomic.Int64 // in ticks of the scheduler
	relayHand atomic.Uint32
	events    [Events]atomic.Uint64

	// pulseAt is when the tick is due, or when the one at work was last seen to go on;
	// 0: none is. lateMu is held while it is found out that it is long ago.
	pulseAt atomic.Int64
	lateMu  sync.Mutex
	// awakeAt is since when it is known that this node has not stood still, and
	// awakePing the last ping that was sent before.
	awakeAt   atomic.Int64
	awakePing atomic.Uint32

	randMu sync.Mutex
	rand   *rand.Rand

	tickMu   sync.Mutex
	ticking  bool // a tick is due, or at work
	rearm    bool // another is wanted after it
	watched  []*part
	spare    []*part
	idleAt   limiter.Tick                   // since when no tick is due
	silenced map[peer.Instance]limiter.Tick // when a member left the view

	peersMu sync.Mutex
	peers   peerBook
	onWord  atomic.Pointer[func()] // called when a link tells something of members

	closed  atomic.Bool
	aloneAt atomic.Int64 // since when the view has nobody else, in ticks of the scheduler; 0: it has, or always was so
}

// New returns a core that knows nobody but itself. It decides nothing before
// [Core.SetView].
func New(c Config) *Core {
	if c.Deadline <= 0 {
		c.Deadline = DefaultDeadline
	}
	core := &Core{
		self: c.Self.Instance, config: c, table: c.Table, fallback: c.Fallback, sched: c.Scheduler, net: c.Network,
		byID: make([]*part, 2*table.Partitions), rand: c.Rand, silenced: make(map[peer.Instance]limiter.Tick),
		idleAt: c.Scheduler.Now(),
	}
	if c.CachedDenials {
		core.denials = new(denials)
	}
	core.mine.Store(uint32(c.Self.State))
	core.turns.New = func() any { return new(turn) }
	core.frames.New = func() any { return new(peer.Frame) }
	core.waiters.New = newAwaited
	core.links.Store(&linkSet{byID: map[peer.Instance]*link{}})
	core.view.Store(NewView(core.self, nil, noRing{}, 0, 0))
	core.book.rules = make(map[uint64]*limiter.Rule)
	core.book.scaled = make(map[scaledKey]*limiter.Rule)
	core.peers.known = make(map[string]*acquaintance)
	if c.Partitions == nil {
		for id := range core.byID {
			core.manages(id)
		}
	}
	for _, id := range c.Partitions {
		core.manages(id)
	}
	return core
}

type noRing struct{}

func (noRing) Owner(int) int     { return -1 }
func (noRing) Successor(int) int { return -1 }

func (c *Core) manages(id int) {
	p := &part{c: c, id: uint16(id), closed: id >= table.Partitions, fresh: true}
	c.byID[id] = p
	c.parts = append(c.parts, p)
}

// ringPartition returns the ring's partition of a partition of either class.
func ringPartition(id uint16) int { return int(id) % table.Partitions }

// part returns the partition of a key, or nil where it is not looked after.
func (c *Core) part(k *limiter.Key) *part { return c.byID[table.PartitionOf(k)] }

func (c *Core) state() peer.State { return peer.State(c.mine.Load()) }

// lastHope tells whether this node is leaving and nobody active is left.
func (c *Core) lastHope() bool {
	v := c.view.Load()
	return c.state() == peer.Leaving && v.owner(0) != 0 && !v.active(v.owner(0))
}

// mayLearn tells whether a fresh node may ask others what there is: it has seen
// the cluster.
func (c *Core) mayLearn() bool { return c.state() != peer.Joining || len(c.view.Load().Members) > 1 }

// n0 returns how many members count.
func (c *Core) n0(v *View, closed bool) int {
	n := v.n0(closed)
	if c.state() == peer.Joining {
		n = max(n, c.config.Seeds)
	}
	return n
}

func (c *Core) event(e Event, partition int) {
	c.events[e].Add(1)
	if o := c.config.Observer; o != nil {
		o.Event(e, partition)
	}
}

// Count returns how often something happened so far.
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

// SetView replaces the view: who is a member, and the ring.
func (c *Core) SetView(v *View) {
	t := c.begin()
	defer t.end()
	defer t.catch()
	old := c.view.Swap(v)
	if len(v.Members) > 1 {
		c.aloneAt.Store(0)
	} else if len(old.Members) > 1 {
		c.aloneAt.Store(int64(t.now))
	}
	if v.self >= 0 {
		state := v.Members[v.self].State
		if was := c.mine.Swap(uint32(state)); state == peer.Leaving && peer.State(was) != state {
			c.leave(t, v)
		}
	}
	c.tickMu.Lock()
	for i := range old.Members {
		if m := old.Members[i].Instance; !v.has(m) {
			c.silenced[m] = t.now
		}
	}
	for i := range v.Members {
		delete(c.silenced, v.Members[i].Instance)
	}
	c.tickMu.Unlock()
	c.forgetEnded(t.now, v)
	for _, p := range c.parts {
		c.in(t, p, func(p *part) { p.viewChanged(t) })
	}
	for i := range v.Members {
		if !old.has(v.Members[i].Instance) {
			c.introduceOwned(t, v.Members[i].Instance)
		}
	}
}

// introduceOwned tells a member what this node owns.
func (c *Core) introduceOwned(t *turn, to peer.Instance) {
	if to == c.self {
		return
	}
	for _, p := range c.parts {
		c.in(t, p, func(p *part) {
			if p.own != nil {
				p.announce(t, to)
			}
		})
	}
}

// outOfView returns since when an instance is out of the view, 0 if it is in it
// or was never seen.
func (c *Core) outOfView(i peer.Instance) limiter.Tick {
	c.tickMu.Lock()
	defer c.tickMu.Unlock()
	return c.silenced[i]
}

// activate puts a partition on the list of those that are looked at.
func (c *Core) activate(p *part) {
	c.tickMu.Lock()
	c.watched = append(c.watched, p)
	c.tickMu.Unlock()
}

// arm has the next tick come; a turn does so at its end, see [turn.arm]. One that
// comes while another is at work waits for its end: else a node that is too slow for
// its ticks would work at several at once, and find all of them late.
func (c *Core) arm() {
	c.tickMu.Lock()
	defer c.tickMu.Unlock()
	if c.ticking {
		c.rearm = true
		return
	}
	c.schedule()
}

// schedule has the next tick come, which must not be on its way yet. It is due
// from now, not from when the turn began that asks for it. c.tickMu is held.
func (c *Core) schedule() {
	if c.ticking = !c.closed.Load(); c.ticking {
		c.rearm = false
		now := c.sched.Now()
		at := c.pulseAt.Load()
		if at == 0 && now-c.idleAt > lateAfter {
			c.wakeUp(now) // nobody looked
		}
		if at == 0 || now-limiter.Tick(at) <= lateAfter {
			c.pulseAt.Store(int64(now + tickEvery))
		} // else this node stood still a moment ago, which the next turn is to find out
		c.sched.After(tickEvery, c.tick)
	}
}

// pulse looks whether this node stood still: the tick is long overdue, or the one at
// work has not gone on for long. Then the silence of others says nothing: all waits
// begin anew before anything else is done in this turn. The turn's time is now.
func (c *Core) pulse(t *turn) {
	at := c.pulseAt.Load()
	if at == 0 || t.now-limiter.Tick(at) <= lateAfter {
		return
	}
	c.lateMu.Lock()
	defer c.lateMu.Unlock()
	if !c.pulseAt.CompareAndSwap(at, int64(t.now)) {
		return // another turn has seen to it
	}
	c.event(EventLate, -1)
	c.wakeUp(t.now)
	c.easeUntil.Store(int64(t.now + easeFor))
	for _, l := range c.links.Load().list {
		l.mu.Lock()
		l.lacksAt, l.suspect = t.now, false
		l.mu.Unlock()
	}
	for _, p := range c.parts {
		c.in(t, p, func(p *part) { p.late(t) })
	}
}

// wakeUp notes that this node may have stood still until now.
func (c *Core) wakeUp(now limiter.Tick) {
	c.awakePing.Store(c.pings.Load())
	c.awakeAt.Store(int64(now))
}

// awake returns since when it is known that this node has not stood still, and the
// last ping that was sent before.
func (c *Core) awake() (limiter.Tick, uint32) {
	return limiter.Tick(c.awakeAt.Load()), c.awakePing.Load()
}

// goOn notes that the tick at work goes on, and looks whether it stood still.
func (c *Core) goOn(t *turn) {
	t.now = c.sched.Now()
	c.pulse(t)
	c.pulseAt.Store(int64(t.now))
}

// tick looks at everything that waits for time to pass.
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
	now = t.now
	t.end() // it is another's from here on
}

// ticked ends a tick that looked at some partitions, and has the next one come if there
// is anything to look at; idle: there is nothing but what partitions watch.
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

// tickAll does what time calls for. It returns the partitions that it looked at, and
// idle if nothing is left to do but what they watch. A panic reports that there may be.
func (c *Core) tickAll(t *turn) (parts []*part, idle bool) {
	defer t.catch()
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
	watching := c.watch(t)
	return parts, !c.ops.tick(t) && !watching
}

// tickPart has a partition do what time calls for, and watches it further if need be.
func (c *Core) tickPart(t *turn, p *part) {
	p.mu.Lock()
	defer p.leave(t)
	over := false
	defer func() {
		if !over {
			p.active = false // it is on no list any more, but for what leave does
		}
	}()
	active := p.tick(t)
	if p.active = active; active {
		c.activate(p)
	}
	over = true
}

// eased returns how long to wait before something is sent again: longer while this
// node finds itself late. Then nodes have more to do than they can, and what is not
// answered is mostly not lost.
func (c *Core) eased(span limiter.Tick) limiter.Tick {
	if until := c.easeUntil.Load(); until != 0 && int64(c.sched.Now()) < until {
		return 8 * span
	}
	return span
}

// Close ends the core: nothing is sent or decided any more.
func (c *Core) Close() {
	c.closed.Store(true)
}
