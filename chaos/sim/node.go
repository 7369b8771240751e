package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"

	"github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/ring"
)

// Node is one run of a node.
type Node struct {
	w     *World
	name  string
	inst  peer.Instance
	core  *cluster.Core
	table *table.Table
	skew  limiter.Tick
	alive bool
	// paused: what comes meanwhile happens when it goes on.
	paused bool
	inbox  []happening

	state     peer.State
	sees      []peer.Member // itself included, by name
	left      []peer.Known
	contact   map[peer.Instance]limiter.Tick // when it could last be reached
	patient   map[peer.Instance]limiter.Tick // how long a silence is no death
	changed   limiter.Tick                   // when the view changed last
	rules     map[string]*limiter.Rule
	leftAt    limiter.Tick // when it left gracefully; others hear of it
	asked     int          // clients that wait for it
	first     bool
	lastDebug string
}

// start runs a new instance of a node.
func (w *World) start(name string, first bool, rules map[string]*limiter.Rule, seeds int) {
	if slices.ContainsFunc(w.live(), func(m *Node) bool { return m.name == name }) {
		return // it was started by another fault
	}
	n := &Node{
		w: w, name: name, inst: peer.Instance(w.rng.Uint64() | 1), alive: true, first: first, rules: rules,
		state: peer.Joining, contact: make(map[peer.Instance]limiter.Tick), patient: make(map[peer.Instance]limiter.Tick),
		changed: w.now,
	}
	if w.rolled != nil && w.chance(50) {
		n.rules = w.rolled
	}
	if w.chance(50) {
		n.skew = w.between(-500*ms, 500*ms)
	}
	if first {
		n.state = peer.Active
	}
	n.table = table.New(table.Config{Order: rand.NewPCG(uint64(n.inst), 2)})
	config := cluster.Config{
		Self:      n.self(),
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

		CachedDenials: w.cached,
	}
	if w.fault != nil {
		config.Fault, config.Panicked = func(part int) { w.fault(n, part) }, n.panicked
	}
	n.core = cluster.New(config)
	w.nodes = append(w.nodes, n)
	n.sees = []peer.Member{n.self()}
	w.logf("%s starts as %v", name, n.inst)
	n.publish()
	w.after(w.between(0, 100*ms), n.gossip)
}

func (n *Node) self() peer.Member {
	return peer.Member{Name: n.name, Instance: n.inst, State: n.state}
}

// happening is what was to happen while a node stood still.
type happening struct {
	timer bool
	run   func()
}

// Now is the node's clock.
func (n *Node) Now() limiter.Tick { return n.w.now + n.skew }

// After is the node's timer.
func (n *Node) After(span limiter.Tick, f func()) { n.w.after(span, func() { n.happens(true, f) }) }

// Wake has what there is for a member sent.
func (n *Node) Wake(to peer.Instance) { n.w.after(0, func() { n.do(func() { n.pump(to) }) }) }

// Event notes what happened.
func (n *Node) Event(e cluster.Event, partition int) {
	n.w.logf("%s: %v of %d", n.name, e, partition)
	n.w.recordEvent(n, e, partition)
	n.w.outcome.happened(e, partition)
}

// Problem fails the run, unless somebody sends impossible values.
func (n *Node) Problem(what string, err error) {
	if n.w.lenient {
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
	switch {
	case !n.alive:
	case n.paused:
		n.inbox = append(n.inbox, happening{timer, f})
	default:
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

func (n *Node) knows(m *Node) bool {
	return slices.ContainsFunc(n.sees, func(s peer.Member) bool { return s.Instance == m.inst })
}

// reaches tells whether gossip gets from n to m, directly or by another.
func (n *Node) reaches(m *Node) bool {
	direct := func(a, b *Node) bool {
		return b.alive && !b.paused && !n.w.cut[pair{a.inst, b.inst}] && !n.w.cut[pair{b.inst, a.inst}]
	}
	if direct(n, m) {
		return true
	}
	for _, k := range n.w.live() {
		if k != n && k != m && direct(n, k) && direct(k, m) {
			return true
		}
	}
	return false
}

// gossip is what membership does from time to time: it finds who is there.
func (n *Node) gossip() {
	if !n.alive {
		return
	}
	n.w.after(n.w.between(80*ms, 120*ms), n.gossip)
	if n.paused {
		return
	}
	before := slices.Clone(n.sees)
	for _, m := range n.w.nodes {
		if m != n {
			n.look(m)
		}
	}
	n.sees = slices.DeleteFunc(n.sees, func(s peer.Member) bool { return s.Instance == n.inst })
	n.sees = append(n.sees, n.self())
	slices.SortFunc(n.sees, func(a, b peer.Member) int {
		if a.Name < b.Name {
			return -1
		}
		if a.Name > b.Name {
			return 1
		}
		return 0
	})
	if !slices.Equal(before, n.sees) {
		n.changed = n.w.now
		n.publish()
	}
	if n.state == peer.Joining && len(n.sees) > 1 && n.w.now-n.changed > 300*ms && (n.core.Informed() || n.w.now-n.changed > 3*limiter.Second) {
		n.state = peer.Active
		n.gossipSelf()
	}
}

// look updates what n knows of m.
func (n *Node) look(m *Node) {
	w := n.w
	i := slices.IndexFunc(n.sees, func(s peer.Member) bool { return s.Name == m.name })
	same := i >= 0 && n.sees[i].Instance == m.inst
	if w.told {
		n.hear(m)
	}
	if m.leftAt != 0 && same && (w.heard[pair{n.inst, m.inst}] || !w.told && w.now-m.leftAt < 5*limiter.Second) {
		n.sees = slices.Delete(n.sees, i, i+1)
		n.left = append(n.left, peer.Known{Name: m.name, Instance: m.inst, Gone: true})
		return
	}
	if m.alive && m.leftAt == 0 && n.reaches(m) && !w.suspects[pair{n.inst, m.inst}] {
		n.contact[m.inst] = w.now
		n.patient[m.inst] = w.between(1000*ms, 2400*ms)
		chance := 60
		if i < 0 && len(n.sees) > 1 && n.contact[m.inst] != 0 && w.nodes[0] != m {
			chance = 30
		}
		if (i < 0 || !same || n.sees[i].State != m.state) && w.chance(chance) {
			if i >= 0 && !same {
				if other := w.node(n.sees[i].Instance); other.alive {
					return // the name is taken
				}
			}
			if i >= 0 {
				n.sees[i] = m.self()
			} else {
				n.sees = append(n.sees, m.self())
			}
			if !same {
				w.dial(n, m)
			}
		}
		return
	}
	if same && w.now-n.contact[m.inst] > n.patient[m.inst] {
		w.logf("%s loses %s", n.name, m.name)
		n.sees = slices.Delete(n.sees, i, i+1)
	}
}

// hear has n hear that m left: from m itself within a second, or from a node that heard.
func (n *Node) hear(m *Node) {
	w := n.w
	if m.leftAt == 0 || w.heard[pair{n.inst, m.inst}] {
		return
	}
	linked := func(a, b *Node) bool { return !w.cut[pair{a.inst, b.inst}] && !w.cut[pair{b.inst, a.inst}] }
	hears := w.now-m.leftAt < limiter.Second && linked(n, m)
	for _, k := range w.live() {
		hears = hears || k != n && !k.paused && w.heard[pair{k.inst, m.inst}] && linked(n, k)
	}
	if !hears {
		return
	}
	w.heard[pair{n.inst, m.inst}] = true
	if !n.knows(m) { // it counted as dead
		n.left = append(n.left, peer.Known{Name: m.name, Instance: m.inst, Gone: true})
		n.publish()
	}
}

// publish gives the core its view.
func (n *Node) publish() {
	names := view.RingNames(n.sees)
	id := fmt.Sprint(names)
	r := n.w.rings[id]
	if r == nil {
		var err error
		if r, err = ring.New(names); err != nil {
			panic(err)
		}
		n.w.rings[id] = r
	}
	known, recent := n.core.Registry().Set(n.sees, n.left, n.Now())
	n.w.logf("%s sees %v, N0 %d", n.name, names, known)
	n.core.SetView(view.New(n.inst, n.sees, r, known, recent))
}

// pause and resume are SIGSTOP and SIGCONT.
func (n *Node) pause() { n.paused = true; n.w.logf("%s paused", n.name) }

func (n *Node) resume() {
	if !n.paused {
		return
	}
	n.paused = false
	n.w.logf("%s resumes", n.name)
	for i := range n.contact {
		n.contact[i] = n.w.now
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
		n.happens(h.timer, h.run)
	}
}

// crash ends a node at once. Without a reset its peers find out by themselves.
func (n *Node) crash(reset bool) {
	n.alive = false
	n.core.Close()
	n.w.logf("%s crashes, reset %v", n.name, reset)
	n.w.noteLosses()
	for _, m := range n.w.nodes {
		if m != n && m.alive {
			if c := n.w.conn(pair{m.inst, n.inst}); c.up && reset {
				n.w.snap(pair{m.inst, n.inst}, n.w.between(0, 5*ms))
			}
		}
		n.w.conn(pair{n.inst, m.inst}).up = false
	}
}

// leave is a graceful end: hand over, then go; after ten seconds the rest is a
// crash. then is called when it is gone.
func (n *Node) leave(then func()) {
	n.state = peer.Leaving
	n.w.logf("%s leaves", n.name)
	deadline := n.w.now + 10*limiter.Second
	n.do(func() { n.gossipSelf() })
	var wait func()
	wait = func() {
		switch {
		case !n.alive:
		case !n.paused && n.core.Vacated() || n.w.now > deadline:
			n.leftAt = n.w.now
			n.w.logf("%s is gone", n.name)
			n.stop(then, n.w.now+limiter.Second)
		default:
			n.w.after(10*ms, wait)
		}
	}
	n.w.after(20*ms, wait)
}

// stop ends a node that has left, when its last clients are answered.
func (n *Node) stop(then func(), deadline limiter.Tick) {
	n.w.after(50*ms, func() {
		if n.asked > 0 && n.w.now < deadline {
			n.stop(then, deadline)
			return
		}
		n.crash(true)
		then()
	})
}

// gossipSelf has the node see its own state at once.
func (n *Node) gossipSelf() {
	for i := range n.sees {
		if n.sees[i].Instance == n.inst {
			n.sees[i].State = n.state
		}
	}
	n.publish()
}
