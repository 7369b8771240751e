package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"

	"github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/cluster/members"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Node is one run of a node.
type Node struct {
	w     *World
	name  string
	inst  peer.Instance
	core  *cluster.Core
	table *table.Table
	clock clock
	alive bool
	// paused: what comes meanwhile happens when it goes on.
	paused bool
	inbox  []happening

	members   *members.Membership
	published peer.Member        // what this node says of itself by gossip
	rumours   map[string]*rumour // what gossip says of the others, by name
	rules     map[string]*limiter.Rule
	leftAt    limiter.Tick // when it left gracefully; others hear of it
	fullAt    limiter.Tick // when its table last had no room for a copy; 0 if never
	countsOn  bool         // they do not: it saw no majority of them
	asked     int          // clients that wait for it
	disk      *nodeDisk    // nil without one
	lastDebug string
	slow      slowness
}

// clock is how far a node's clock is from the time of the world.
type clock struct {
	skew  limiter.Tick
	drift limiter.Tick // per second
}

func (c clock) at(now limiter.Tick) limiter.Tick {
	return now + c.skew + (now-epoch)*c.drift/limiter.Second
}

// start runs a new instance of a node.
func (w *World) start(name string, first bool, rules map[string]*limiter.Rule, seeds int) {
	if slices.ContainsFunc(w.live(), func(m *Node) bool { return m.name == name }) {
		return // it was started by another fault
	}
	n := &Node{
		w: w, name: name, inst: peer.Instance(w.rng.Uint64() | 1), alive: true, rules: rules,
		rumours: make(map[string]*rumour),
	}
	if w.rolled != nil && w.chance(50) {
		n.rules = w.rolled
	}
	if w.chance(50) {
		n.clock.skew = w.between(-w.skew, w.skew)
	}
	n.clock.drift = w.between(-w.drift, w.drift)
	n.published = peer.Member{Name: name, Instance: n.inst, State: peer.Joining, Wire: peer.LeaseWire - 1}
	if w.near.lending.on || w.near.sliced.on {
		n.published.Wire = peer.LeaseWire
	}
	if first {
		n.published.State = peer.Active
	}
	n.table = table.New(table.Config{Order: rand.NewPCG(uint64(n.inst), 2), MaxKeys: w.crowd.maxKeys})
	config := cluster.Config{
		Self:      n.published,
		Table:     n.table,
		Fallback:  table.New(table.Config{Order: rand.NewPCG(uint64(n.inst), 3)}),
		Scheduler: n,
		Network:   n,
		Rand:      rand.New(rand.NewPCG(w.rng.Uint64(), 1)),
		Clock:     w.clock,
		Rule: func(name string) *limiter.Rule {
			if w.ruleNamed != nil {
				return w.ruleNamed(name)
			}
			return n.rules[name]
		},
		Seeds:      seeds,
		Partitions: w.parts,
		Observer:   n,

		CachedDenials: w.near.cached,
	}
	if w.fault != nil {
		config.Fault, config.Panicked = func(part int) { w.fault(n, part) }, n.panicked
	}
	w.disks.configure(n, &config)
	n.core = cluster.New(config)
	n.disk.restore()
	w.nodes = append(w.nodes, n)
	w.faulted()
	w.logf("%s starts as %v", name, n.inst)
	n.join(first, seeds)
}

// happening is what was to happen while a node stood still.
type happening struct {
	timer bool
	run   func()
}

// Now is the node's clock.
func (n *Node) Now() limiter.Tick {
	return n.clock.at(n.w.now)
}

// After is the node's timer.
func (n *Node) After(span limiter.Tick, f func()) { n.w.after(span, func() { n.happens(true, f) }) }

// Wake has what there is for a member sent.
func (n *Node) Wake(to peer.Instance) { n.w.after(0, func() { n.do(func() { n.pump(to) }) }) }

// Event notes what happened.
func (n *Node) Event(e cluster.Event, partition int) {
	n.w.logf("%s: %v of %d", n.name, e, partition)
	n.w.recordEvent(n, e, partition)
	n.w.outcome.happened(e, partition)
	if takes(e) {
		n.w.outcome.takes(n, partition)
	}
	if empty := e == cluster.EventEmptied && partition >= table.Partitions; empty || e == cluster.EventRecovered {
		n.w.noteRecovery(n, partition, empty)
	}
	switch e {
	case cluster.EventTakeover: // the one of before may live, and be given back what this one charges whole
		n.w.near.lending.twice(n.w, partition)
	case cluster.EventMerged:
		n.w.near.lending.twice(n.w, partition)
		n.w.fence.undoes(n, partition)
	case cluster.EventFenced:
		n.w.fence.fences(n, partition)
		n.w.outcome.fenced(n, partition)
	case cluster.EventRaised:
		n.w.outcome.raised(n.w, partition)
	case cluster.EventEmptied:
		n.w.startsEmpty(n, partition)
	case cluster.EventRecovered:
		n.w.continues(n, partition)
	}
}

// Problem fails the run, unless somebody sends impossible values. In a world of small tables a member
// that is heir of several full ones has no room for another copy: each owner holds maxKeys counters,
// and a table takes copies up to three times that.
func (n *Node) Problem(what string, err error) {
	full := n.w.crowd.maxKeys > 0 && errors.Is(err, table.ErrFull)
	if full {
		n.w.crowd.unkept++
		n.fullAt = n.w.now
	}
	if n.w.lenient || full {
		n.w.logf("%s: %s: %v", n.name, what, err)
		return
	}
	panic(fmt.Sprintf("seed %d: %s: %s: %v", n.w.Seed, n.name, what, err))
}

// errInjected is what a run panics with, where it wants cores to panic.
var errInjected = errors.New("injected")

// panicked takes note that the core has recovered from a panic, which must be one that
// the run wanted.
func (n *Node) panicked(v any) {
	n.w.logf("%s: panic: %v", n.name, v)
	if err, ok := v.(error); !ok || !errors.Is(err, errInjected) {
		n.w.fail(fmt.Errorf("%s panics: %v\n%s", n.name, v, debug.Stack()))
	}
}

// do runs something at the node: now, later where it stands still, or never
// where it is dead.
func (n *Node) do(f func()) { n.happens(false, f) }

func (n *Node) happens(timer bool, f func()) {
	if n.slow.busy() {
		n.delay(timer, f)
		return
	}
	n.turn(timer, f)
}

// turn has something happen now, unless the node stands still.
func (n *Node) turn(timer bool, f func()) {
	switch {
	case !n.alive:
	case n.paused:
		n.inbox = append(n.inbox, happening{timer, f})
	default:
		n.w.fence.touch(n)
		f()
	}
}

func (n *Node) pump(to peer.Instance) {
	c := n.w.conn(pair{n.inst, to})
	for c.up {
		f := n.core.Take(to, true)
		if f == nil {
			return
		}
		b := n.w.encode(n, f)
		n.w.recordFrame(n, to, b)
		n.w.send(n, to, b)
		n.core.Release(f)
	}
}

// pause and resume are SIGSTOP and SIGCONT.
func (n *Node) pause() {
	n.paused = true
	n.w.faulted()
	n.w.logf("%s paused", n.name)
	n.w.struck(n)
}

func (n *Node) resume() {
	if !n.paused {
		return
	}
	n.paused, n.w.outcome.resumedAt = false, n.w.now
	n.w.faulted()
	n.w.logf("%s resumes", n.name)
	for _, r := range n.rumours {
		r.contact = n.w.now
	}
	todo := n.inbox
	n.inbox = nil
	// Messages of one connection stay in order; timers may come before all of
	// them, after them, or where they belong.
	if first := n.w.rng.IntN(4); first < 2 {
		slices.SortStableFunc(todo, func(a, b happening) int {
			if a.timer == b.timer {
				return 0
			}
			if a.timer == (first == 0) {
				return -1
			}
			return 1
		})
	}
	for _, h := range todo {
		n.turn(h.timer, h.run)
	}
}

// crash ends a node at once. Without a reset its peers find out by themselves.
func (n *Node) crash(reset bool) {
	if !n.alive {
		return // another fault has ended it
	}
	n.alive = false
	n.w.near.lending.crashed(n)
	n.disk.crashed()
	n.w.faulted()
	n.members.Close()
	n.core.Close()
	n.w.logf("%s crashes, reset %v", n.name, reset)
	n.w.noteLosses()
	n.w.mayForget(n)
	for _, m := range n.w.nodes {
		if m != n && m.alive {
			if c := n.w.conn(pair{m.inst, n.inst}); c.up && reset {
				n.w.snap(pair{m.inst, n.inst}, n.w.between(0, 5*ms))
			}
		}
		n.w.conn(pair{n.inst, m.inst}).up = false
	}
	n.w.endsLate(n)
}

// leave is a graceful end: hand over, then go; what could not be handed over within ten
// seconds is left as by a crash. then is called when the node is gone.
func (n *Node) leave(then func()) {
	n.do(func() {
		n.w.logf("%s leaves", n.name)
		n.w.faulted()
		err := n.members.Leave(func(whole bool) {
			n.leftAt, n.countsOn = n.w.now, n.members.CountsOn()
			n.core.Goodbye(n.countsOn)
			n.w.logf("%s is gone, whole %v, counts on %v", n.name, whole, n.countsOn)
			stop := func() { n.stop(then, n.w.now+limiter.Second) }
			if n.disk == nil {
				stop()
			} else {
				n.w.after(n.w.between(0, lingers), stop)
			}
		})
		if err != nil {
			n.w.logf("%s: %v", n.name, err) // another fault had it leave
		}
		n.w.outcome.lonely.leaves(n.w)
	})
}

// stop ends a node that has left, when its last clients are answered and its last frames have arrived: the orderly end
// of a connection loses nothing that was sent before it.
func (n *Node) stop(then func(), deadline limiter.Tick) {
	n.w.after(50*ms, func() {
		if (n.asked > 0 || n.w.underWay(n)) && n.w.now < deadline {
			n.stop(then, deadline)
			return
		}
		n.disk.end()
		n.crash(true)
		then()
	})
}
