package sim

import (
	"math/rand/v2"
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// broader is what the runs of TestSim have beyond those of the golden file that came later than [stronger]: clients
// that settle reservations with any number and at any time, clients that ask a member as soon as it is struck, a new
// name that joins while another one leaves, and connections to an ended instance that break late. It draws from a
// random stream of its own.
type broader struct {
	rng      *rand.Rand
	spenders *spenders // nil: there are none
	struckAt map[peer.Instance]limiter.Tick
}

func newBroader(kind Kind, seed uint64) *broader {
	return &broader{rng: rand.New(rand.NewPCG(uint64(kind)<<32+seed, 0xa0761d6478bd642f)),
		struckAt: make(map[peer.Instance]limiter.Tick)}
}

func (x *broader) between(from, to limiter.Tick) limiter.Tick {
	return from + limiter.Tick(x.rng.Int64N(int64(to-from)+1))
}

func (x *broader) chance(percent int) bool { return x.rng.IntN(100) < percent }

// widen makes what a run has beyond its other clients.
func (w *World) widen(kind Kind, seed uint64, rules map[string]*limiter.Rule) {
	x := w.broader
	if x == nil || kind == Crowded || kind == Outages || w.crowd.maxKeys > 0 {
		return
	}
	if seed%2 == 0 {
		w.newSpenders(rules)
	}
}

// broaderFaults schedules the faults that are broader's.
func (w *World) broaderFaults(kind Kind, span limiter.Tick, rules map[string]*limiter.Rule) {
	x := w.broader
	if x == nil || kind == Split || kind == Crash || kind == Crowded || !x.chance(35) {
		return
	}
	at := x.between(0, span)
	w.after(at, func() { w.start("y", false, rules, w.size) })
	w.after(max(0, at+x.between(-400*ms, 400*ms)), func() {
		of := w.live()
		if len(of) < 2 {
			return
		}
		if n := of[x.rng.IntN(len(of))]; n.name != "y" && n.members.State() == peer.Active && !n.paused {
			w.replace(n, rules)
		}
	})
}

// replace has a member leave for good while another one may join. It waits until gossip has told all others of it and
// links have shown it, so that they hear that it has left, too. Who goes before counts as dead under its last instance,
// until an operator forgets it. And it waits for one that stays: who leaves last ends the counters.
func (w *World) replace(n *Node, rules map[string]*limiter.Rule) {
	unheard, stays := false, false
	for _, m := range w.live() {
		if m != n {
			unheard = unheard || !knows(m, n) || !m.core.View().Has(n.inst)
			stays = stays || m.members.State() == peer.Active
		}
	}
	if n.alive && (unheard || !stays) {
		w.after(20*ms, func() { w.replace(n, rules) })
		return
	}
	n.leave(func() {
		if n.countsOn { // it saw too few of the others: they wait for it, or for an operator who forgets it
			w.after(w.broader.between(0, 200*ms), func() { w.start(n.name, false, rules, w.size) })
		}
	})
}

// broaderDemand has clients ask for a span.
func (w *World) broaderDemand(span limiter.Tick) {
	if w.broader != nil {
		w.spenderDemand(span)
	}
}

// addressee returns the node that a client asks: often the owner of a partition, or who thinks that it is. It is nil if
// no node serves.
func (x *broader) addressee(w *World, part int) *Node {
	live := w.serving()
	if len(live) == 0 {
		return nil
	}
	if x.chance(35) {
		owners := slices.DeleteFunc(slices.Clone(live), func(n *Node) bool {
			role, _, _, _ := n.core.Claim(part)
			return role != peer.Owned
		})
		if len(owners) > 0 {
			return owners[x.rng.IntN(len(owners))]
		}
	}
	return live[x.rng.IntN(len(live))]
}

// struck has clients ask a member directly as soon as it stands still or is cut off.
func (w *World) struck(n *Node) {
	x := w.broader
	if x == nil || n == nil || !n.alive || w.now-x.struckAt[n.inst] < 200*ms {
		return
	}
	x.struckAt[n.inst] = w.now
	for range 1 + x.rng.IntN(3) {
		w.after(x.between(0, 120*ms), func() {
			if !n.alive {
				return
			}
			if k := w.keys[x.rng.IntN(len(w.keys))]; !k.form && !k.apart {
				k.direct++
				w.ask(k, n, 1, k.second)
			}
			w.spendAt(n)
		})
	}
}

// endsLate has the connections to an instance that ended without a word break, as the kernel breaks those that confirm
// nothing for five seconds.
func (w *World) endsLate(n *Node) {
	if w.broader == nil {
		return
	}
	for _, m := range w.live() {
		p := pair{m.inst, n.inst}
		w.after(w.broader.between(3*limiter.Second, 6*limiter.Second), func() {
			if m.alive && w.conn(p).up {
				w.snapOne(p, 0)
			}
		})
	}
}
