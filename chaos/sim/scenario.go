package sim

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Kind is a kind of run: which faults it has, and so which bound it must keep.
type Kind int

// The kinds.
const (
	// Graceful: joins, leaves, rolling restarts.
	Graceful Kind = iota
	// Crash: one crash, pause, broken or slow connection at a time.
	Crash
	// Split: the network falls apart, also in one direction only.
	Split
	// Chaos: all of it at any time.
	Chaos
	// Suspicion: joins and leaves while gossip takes the living for dead and links are slow.
	Suspicion
	// Sides: a split whose sides change, of up to nine nodes; some leave or crash during
	// it, and operators forget the dead.
	Sides
	// Restarts: nodes that start anew at once, two that crash one after the other, a
	// rolling restart during a split.
	Restarts
	// Crowded: tables that are full, and new keys all the time; nodes join, leave or crash.
	Crowded
	// Outages: nodes with disks that end all at once, or most of them, and start anew with what they had synced.
	Outages
	Kinds
)

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{"graceful", "crash", "split", "chaos", "suspicion", "sides", "restarts", "crowded",
		"outages"}[k]
}

// splits reports whether runs of the kind have splits, so that an available partition may
// have an owner on each side.
func (k Kind) splits() bool {
	return k != Graceful && k != Crash && k != Suspicion && k != Crowded && k != Outages
}

// Run is one run, a stronger one: it returns what was violated, if anything.
func Run(kind Kind, seed uint64, tracing bool) (*World, error) {
	w := worldOf(kind, seed)
	w.tracing, w.stronger, w.broader = tracing, newStronger(kind, seed), newBroader(kind, seed)
	// In a sixth of the runs owners lend, in half of these to clients, too. Such runs have twice as many checks.
	w.near.lending.on, w.near.lending.clients = seed%6 == 5, seed%12 == 5
	return w, w.play(kind, seed)
}

// worldOf returns a new world. Worlds of the first seven kinds are those of before there
// were more.
func worldOf(kind Kind, seed uint64) *World {
	const first = 7
	if kind >= first {
		return newWorld(uint64(kind)<<32 + seed)
	}
	return newWorld(seed*first + uint64(kind))
}

// play is one run in a new world.
func (w *World) play(kind Kind, seed uint64) (err error) {
	if w.tracing {
		w.watchPart, _ = strconv.Atoi(os.Getenv("WEIR_SIM_PART"))
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v seed %d: panic: %v", kind, seed, r)
			if w.tracing {
				panic(r)
			}
		}
	}()
	rules := w.newKeys()
	if w.chance(25) {
		w.skew, w.drift = 5*limiter.Second, 200
	}
	size := 3 + w.rng.IntN(3)
	switch few := w.rng.IntN(20); {
	case kind == Sides:
		size = 3 + w.rng.IntN(7)
	case few < 2:
		size = 2
	case few == 2:
		size = 6 + w.rng.IntN(4)
	}
	size = w.strengthen(kind, size)
	w.size = size
	w.newDisks(kind)
	w.newHolders(kind, seed, rules)
	if kind == Crowded || w.crowd.maxKeys > 0 {
		w.newCrowd(rules)
	}
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}[:size]
	fresh := w.rng.IntN(3)
	for i, name := range names {
		w.after(limiter.Tick(i)*w.between(0, 400*ms), func() { w.start(name, i == 0, rules, size) })
	}
	if fresh == 0 {
		w.demand(2*limiter.Second, 60*ms)
	}
	settle := 6 * limiter.Second
	if err := w.run(settle, w.invariants); err != nil {
		return err
	}
	if err := w.meetAll(settle / 2); err != nil {
		return err
	}
	if err := w.settled(); err != nil {
		return fmt.Errorf("%v seed %d: at the start: %w", kind, seed, err)
	}
	span := 8 * limiter.Second
	w.demand(span, w.between(20*ms, 200*ms))
	w.split = kind.splits()
	b := w.faults(kind, span, rules)
	w.moreFaults(kind, span, rules, &b)
	w.moreDemand(span)
	w.heldDemand(span)
	w.rollOut(span, rules)
	if err := w.run(span, w.invariants); err != nil {
		return err
	}
	w.heal()
	if err := w.calm(14 * limiter.Second); err != nil {
		return fmt.Errorf("%v: %w", kind, err)
	}
	if err := errors.Join(w.settled(), w.merged()); err != nil {
		return fmt.Errorf("%v seed %d: at the end: %w", kind, seed, err)
	}
	w.demand(10*limiter.Second, 40*ms)
	w.moreDemand(10 * limiter.Second)
	w.heldDemand(10 * limiter.Second)
	if err := w.run(32*limiter.Second, w.invariants); err != nil {
		return err
	}
	// What waits is counted before the looks of others, which may convert a counter.
	if err := errors.Join(w.idle(), w.check(b), w.crowd.check(w, b), w.checkHolders(), w.checkSpenders(),
		w.bounded()); err != nil {
		return fmt.Errorf("%v seed %d: %w", kind, seed, err)
	}
	return nil
}

// faults schedules what happens in a run, and says what it may cost.
func (w *World) faults(kind Kind, span limiter.Tick, rules map[string]*limiter.Rule) bounds {
	switch kind {
	case Graceful:
		w.rolling(rules)
		return bounds{closed: 1, local: 1, open: 1, exact: true, resets: true}
	case Suspicion:
		w.rolling(rules)
		w.suspicions(span)
		return bounds{closed: 1, local: 1, open: 1, exact: true, resets: true}
	case Crash:
		w.after(w.between(0, 2*limiter.Second), func() { w.oneFault(rules) })
		return bounds{fallbacks: 16, perTakeover: true, closed: 1, local: 1, open: 1, resets: true}
	case Split:
		w.after(w.between(0, limiter.Second), func() { w.askApart(w.splitUp()) })
		w.after(w.between(3*limiter.Second, 8*limiter.Second), func() {
			w.noteSides()
			w.heal()
		})
		return bounds{share: true, perTakeover: true, closed: 1, local: 2, open: float64(len(w.live()))}
	case Sides:
		w.after(w.between(0, limiter.Second), func() { w.shiftingSides(rules) })
		return bounds{perTakeover: true, losses: true, closed: 1, local: 4, open: float64(2 * w.size)}
	case Crowded:
		w.crowdIn(span)
		if w.chance(50) {
			w.rolling(rules)
		} else {
			w.after(w.between(0, 2*limiter.Second), func() { w.oneFault(rules) })
		}
		return bounds{perTakeover: true, closed: 1, local: 1, open: 1}
	case Outages:
		w.disks.empty = false
		w.disks.older(w.now)
		w.sample()
		w.after(w.between(0, 4*limiter.Second), func() { w.outage(rules) })
		return bounds{perTakeover: true, losses: true, closed: 1, local: 1, open: 1}
	case Restarts:
		w.restarts(span, rules)
		return bounds{perTakeover: true, losses: true, closed: 1, local: 4, open: 6}
	default:
		for range 2 + w.rng.IntN(4) {
			w.after(w.between(0, span), func() { w.anyFault(rules) })
		}
		return bounds{perTakeover: true, losses: true, closed: 1, local: 4, open: 6}
	}
}

// rolling has nodes leave and come back, or others join.
func (w *World) rolling(rules map[string]*limiter.Rule) {
	switch w.rng.IntN(3) {
	case 0:
		w.start("z", false, rules, w.size)
	case 1:
		live := w.live()
		n := live[w.rng.IntN(len(live))]
		n.leave(func() { w.after(w.between(0, 2*limiter.Second), func() { w.start(n.name, false, rules, w.size) }) })
	default:
		slowest := min(3*limiter.Second, 14*limiter.Second/limiter.Tick(w.size))
		for i, n := range w.live() {
			w.after(limiter.Tick(i)*w.between(limiter.Second, slowest), func() {
				w.leaveInTurn(n, func() { w.after(w.between(0, 200*ms), func() { w.start(n.name, false, rules, w.size) }) })
			})
		}
	}
}

// leaveInTurn has a node leave in a rolling restart. Operators wait until the node before it is ready. Here it waits
// only until gossip has told it of a node that stays, or that node of it. A node that leaves earlier hands over to
// nobody.
func (w *World) leaveInTurn(n *Node, then func()) {
	if n.alive && w.stranger(n) {
		w.after(100*ms, func() { w.leaveInTurn(n, then) })
		return
	}
	n.leave(then)
}

// oneFault is a crash with a restart, a pause, or a broken connection.
func (w *World) oneFault(rules map[string]*limiter.Rule) {
	live := w.live()
	n := live[w.rng.IntN(len(live))]
	switch w.rng.IntN(5) {
	case 0, 1:
		n.crash(w.chance(70))
		w.after(w.between(0, 4*limiter.Second), func() { w.start(n.name, false, rules, w.size) })
	case 2:
		n.pause()
		w.after(w.between(20*ms, 5*limiter.Second), n.resume)
	case 3:
		m := live[w.rng.IntN(len(live))]
		if m != n {
			w.snap(pair{n.inst, m.inst}, w.between(0, 5*ms))
			w.snap(pair{m.inst, n.inst}, w.between(0, 5*ms))
		}
	default:
		// One link, in one direction or both; all the others work.
		m := live[w.rng.IntN(len(live))]
		if m == n || len(live) == 2 && !w.split {
			return
		}
		w.sever(pair{n.inst, m.inst})
		if w.chance(50) {
			w.sever(pair{m.inst, n.inst})
		}
		w.after(w.between(100*ms, 5*limiter.Second), func() {
			w.mend(pair{n.inst, m.inst})
			w.mend(pair{m.inst, n.inst})
		})
	}
}

// anyFault is any of the faults.
func (w *World) anyFault(rules map[string]*limiter.Rule) {
	live := w.live()
	switch w.rng.IntN(4) {
	case 0:
		if len(live) > 1 {
			w.splitUp()
			w.after(w.between(100*ms, 4*limiter.Second), w.heal)
		}
	case 1:
		if len(live) == 0 { // they were killed, in runs with restarts
			return
		}
		if n := live[w.rng.IntN(len(live))]; n.members.State() == peer.Active && !n.paused && len(live) > 2 {
			n.leave(func() { w.after(w.between(0, limiter.Second), func() { w.start(n.name, false, rules, w.size) }) })
		}
	default:
		if len(live) > 1 {
			w.oneFault(rules)
		}
	}
}

// heal ends all cuts and pauses.
func (w *World) heal() {
	for _, n := range w.nodes {
		for _, m := range w.nodes {
			w.mend(pair{n.inst, m.inst})
		}
	}
	for _, n := range w.live() {
		n.resume()
	}
}
