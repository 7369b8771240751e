package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// stronger is what the runs of TestSim have beyond those of the golden file: clients that
// send batches, look at counters and use receipts twice; slow members and links; members of
// both sides of a split, or deaf to some others; operators that forget; two to nine nodes;
// full tables; in one of quotaRuns runs, rules that draw on a quota. It draws from a random stream of its own, so that
// the runs of the golden file stay as they are.
type stronger struct {
	rng      *rand.Rand
	quota    bool         // rules draw on a quota
	exact    bool         // every change is graceful: nothing is lost
	until    limiter.Tick // no fault begins later
	forgets  bool         // operators forget members that crashed
	repeated int          // answers that repeated one, for a key
	judged   int          // peeks and explanations that were compared with what clients know
}

// settlesWithin is how long after the last fault every partition is where it belongs.
const settlesWithin = 10 * limiter.Second

func newStronger(kind Kind, seed uint64) *stronger {
	return &stronger{quota: seed%quotaRuns == 1, rng: rand.New(rand.NewPCG(uint64(kind)<<32+seed, 0xd1342543de82ef95))}
}

func (x *stronger) between(from, to limiter.Tick) limiter.Tick {
	return from + limiter.Tick(x.rng.Int64N(int64(to-from)+1))
}

func (x *stronger) chance(percent int) bool { return x.rng.IntN(100) < percent }

// one returns one of the nodes, nil if there is none.
func (x *stronger) one(of []*Node) *Node {
	if len(of) == 0 {
		return nil
	}
	return of[x.rng.IntN(len(of))]
}

// strengthen has clients refund and reset more keys, and returns the size of the cluster.
func (w *World) strengthen(kind Kind, size int) int {
	x := w.stronger
	if x == nil {
		return size
	}
	for _, k := range w.keys {
		if !k.form {
			k.refunds, k.resets = k.refunds || x.chance(15), k.resets || x.chance(10)
		}
	}
	for _, k := range w.keys {
		if k.second {
			k.refunds = k.pair.refunds // one receipt names both
		}
	}
	if kind != Crowded && x.chance(15) && kind != Outages {
		w.crowd.maxKeys = crowdMaxKeys
	}
	if x.chance(50) {
		size = 2 + x.rng.IntN(8)
	}
	return size
}

// moreFaults schedules what a run has beyond the faults of its kind, and says what that may
// cost.
func (w *World) moreFaults(kind Kind, span limiter.Tick, rules map[string]*limiter.Rule, b *bounds) {
	w.exact = b.exact
	w.broaderFaults(kind, span, rules)
	x := w.stronger
	if x == nil {
		return
	}
	x.exact, x.until = b.exact, w.now+span
	if b.fallbacks > 0 {
		b.fallbacks += b.fallbacks / 2 // batches ask for more
	}
	if x.chance(50) {
		late, slow := 150*ms, 60*ms
		if b.exact {
			late, slow = 15*ms, 12*ms
		}
		b.fallbacks = 0
		for range 1 + x.rng.IntN(3) {
			w.after(x.between(0, span), func() { w.slowMember(late) })
			w.after(x.between(0, span), func() { w.slowLink(slow) })
		}
	}
	if kind != Crowded && w.crowd.maxKeys > 0 {
		w.crowdIn(span)
	}
	if kind != Sides && kind != Chaos && kind != Restarts {
		return
	}
	x.forgets = x.chance(50)
	for range x.rng.IntN(3) {
		w.after(x.between(300*ms, span), w.onBothSides)
		w.after(x.between(300*ms, span), w.deafen)
	}
	if kind == Chaos && x.chance(40) {
		w.after(x.between(0, span-limiter.Second), func() {
			if len(w.live()) > 1 {
				w.crashTwo(rules)
			}
		})
	}
	if kind == Chaos && x.chance(40) {
		w.after(x.between(0, span), func() { w.startAnew(rules) })
	}
}

// slowMember has all turns of a member late for a while, by up to late.
func (w *World) slowMember(late limiter.Tick) {
	x := w.stronger
	n := x.one(w.live())
	if n == nil {
		return
	}
	n.slow.late = x.between(2*ms, late)
	w.disks.isLate(n.slow.late)
	w.faulted()
	w.logf("%s is late by up to %v", n.name, n.slow.late.Duration())
	w.after(x.between(100*ms, 4*limiter.Second), func() {
		n.slow.late = 0
		w.faulted()
		w.logf("%s is late no more", n.name)
	})
}

// slowLink has frames in one direction take longer for a while, by up to most.
func (w *World) slowLink(most limiter.Tick) {
	x := w.stronger
	from, to := x.one(w.live()), x.one(w.live())
	if from == to {
		return
	}
	p := pair{from.inst, to.inst}
	w.slow[p] = x.between(1*ms, most)
	w.faulted()
	w.logf("%s -> %s is slow by %v", from.name, to.name, w.slow[p].Duration())
	w.after(x.between(100*ms, 4*limiter.Second), func() {
		delete(w.slow, p)
		w.faulted()
	})
}

// onBothSides has a member talk to both sides of a split for a while, or with the one and
// then with the other.
func (w *World) onBothSides() {
	x := w.stronger
	n := x.one(w.live())
	if n == nil {
		return
	}
	var was []pair
	for _, m := range w.live() {
		for _, p := range []pair{{n.inst, m.inst}, {m.inst, n.inst}} {
			if w.cut[p] {
				was = append(was, p)
			}
		}
	}
	if len(was) == 0 {
		return
	}
	w.logf("%s is on both sides", n.name)
	for _, p := range was {
		w.mend(p)
	}
	w.after(x.between(50*ms, 3*limiter.Second), func() {
		if len(w.cut) == 0 || w.now >= x.until || !n.alive {
			return
		}
		if x.chance(50) { // now it is on the other side only
			was = nil
			for _, m := range w.live() {
				if m != n && x.chance(50) {
					was = append(was, pair{n.inst, m.inst}, pair{m.inst, n.inst})
				}
			}
		}
		for _, p := range was {
			if w.node(p.from).alive && w.node(p.to).alive {
				w.sever(p)
			}
		}
	})
}

// deafen has a member hear nothing of some others for a while, which hear it.
func (w *World) deafen() {
	x := w.stronger
	n := x.one(w.live())
	if n == nil || w.now >= x.until {
		return
	}
	var cut []pair
	for _, m := range w.live() {
		if m != n && x.chance(60) {
			cut = append(cut, pair{m.inst, n.inst})
		}
	}
	w.logf("%s is deaf to %d others", n.name, len(cut))
	for _, p := range cut {
		w.sever(p)
	}
	w.after(x.between(100*ms, 3*limiter.Second), func() {
		for _, p := range cut {
			w.mend(p)
		}
	})
}

// mayForget has operators forget a member that has crashed, here and there, unless it runs
// again.
func (w *World) mayForget(dead *Node) {
	x := w.stronger
	if x == nil || !x.forgets || dead.leftAt != 0 && !dead.countsOn || !x.chance(60) {
		return
	}
	for _, m := range w.live() {
		if x.chance(20) {
			continue
		}
		w.after(x.between(300*ms, 4*limiter.Second), func() {
			m.do(func() {
				if !w.runs(dead.name) && m.members.Forget(dead.name) {
					w.faulted()
					w.logf("%s is told to forget %s", m.name, dead.name)
				}
			})
		})
	}
}

// runs reports whether a node of that name runs.
func (w *World) runs(name string) bool {
	return slices.ContainsFunc(w.live(), func(n *Node) bool { return n.name == name })
}

// calm lets a span pass after the faults. In a stronger run every partition must be where it
// belongs settlesWithin after the last one: after the last restart, too, and after who leaves
// is gone.
func (w *World) calm(span limiter.Tick) error {
	end := w.now + span
	if w.stronger != nil {
		for w.now < w.faultAt+settlesWithin {
			if err := w.run(100*ms, w.invariants); err != nil {
				return err
			}
			if slices.ContainsFunc(w.live(), func(n *Node) bool { return n.members.State() == peer.Leaving }) {
				w.faulted()
			}
		}
		if err := w.settled(); err != nil {
			return fmt.Errorf("seed %d: %v after the last fault: %w", w.Seed, settlesWithin.Duration(), err)
		}
	}
	return w.run(max(0, end-w.now), w.invariants)
}

// slowness is how late the turns of a node are.
type slowness struct {
	late    limiter.Tick // the most, 0: they are not
	dueAt   limiter.Tick // when the last one is due
	backlog int          // how many wait
}

func (s *slowness) busy() bool { return s.late > 0 || s.backlog > 0 }

// delay has something happen at a slow node: late, and in order.
func (n *Node) delay(timer bool, f func()) {
	w, s := n.w, &n.slow
	s.dueAt = max(s.dueAt, w.now+w.stronger.between(0, s.late))
	s.backlog++
	w.after(s.dueAt-w.now, func() {
		s.backlog--
		n.turn(timer, f)
	})
}
