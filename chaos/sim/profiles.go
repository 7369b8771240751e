package sim

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// anyone returns a random live node.
func (w *World) anyone() *Node {
	live := w.live()
	return live[w.rng.IntN(len(live))]
}

// suspicions has gossip of some nodes take others for dead for a while, and makes some
// links slow.
func (w *World) suspicions(span limiter.Tick) {
	for range 2 + w.rng.IntN(5) {
		w.after(w.between(0, span), func() {
			p := pair{w.anyone().inst, w.anyone().inst}
			w.logf("gossip of %s suspects %s", w.node(p.from).name, w.node(p.to).name)
			w.suspects[p] = true
			w.after(w.between(500*ms, 4*limiter.Second), func() {
				delete(w.suspects, p)
				w.faulted()
			})
		})
	}
	for range w.rng.IntN(4) {
		w.after(w.between(0, span), func() {
			p := pair{w.anyone().inst, w.anyone().inst}
			w.slow[p] = w.between(1*ms, 12*ms)
			w.logf("%s -> %s is slow by %v", w.node(p.from).name, w.node(p.to).name, w.slow[p].Duration())
			w.after(w.between(100*ms, 4*limiter.Second), func() {
				delete(w.slow, p)
				w.faulted()
			})
		})
	}
}

// shiftingSides cuts the nodes in two sides, and then has some move from one side to the
// other. Meanwhile one may crash or leave, and operators may forget it.
func (w *World) shiftingSides(rules map[string]*limiter.Rule) {
	if len(w.live()) < 2 {
		return
	}
	sides := w.splitUp()
	sides[0], sides[1] = slices.Clone(sides[0]), slices.Clone(sides[1])
	for range 1 + w.rng.IntN(5) {
		w.after(w.between(20*ms, 4*limiter.Second), func() { w.changeSides(&sides) })
	}
	if w.chance(60) {
		w.after(w.between(500*ms, 5*limiter.Second), func() { w.goes(rules) })
	}
	w.after(w.between(5*limiter.Second, 8*limiter.Second), w.heal)
}

// changeSides has a node move to the other side.
func (w *World) changeSides(sides *[2][]*Node) {
	from := w.rng.IntN(2)
	if len(sides[from]) < 2 || len(w.cut) == 0 {
		return
	}
	i := w.rng.IntN(len(sides[from]))
	n := sides[from][i]
	sides[from] = slices.Delete(sides[from], i, i+1)
	for _, m := range sides[from] {
		w.sever(pair{n.inst, m.inst})
		w.sever(pair{m.inst, n.inst})
	}
	for _, m := range sides[1-from] {
		w.mend(pair{n.inst, m.inst})
		w.mend(pair{m.inst, n.inst})
	}
	sides[1-from] = append(sides[1-from], n)
}

// goes has a node leave or crash. If it has crashed, operators may forget it, here and
// there, and it comes back under its name.
func (w *World) goes(rules map[string]*limiter.Rule) {
	n := w.anyone()
	if n.members.State() != peer.Active || len(w.live()) < 3 {
		return
	}
	back := func(after limiter.Tick) {
		w.after(after, func() { w.start(n.name, false, rules, w.size) })
	}
	if w.chance(40) {
		n.leave(func() { back(w.between(0, 4*limiter.Second)) })
		return
	}
	n.crash(w.chance(70))
	if w.chance(50) {
		for _, m := range w.live() {
			w.after(w.between(2500*ms, 4*limiter.Second), func() {
				m.do(func() {
					if m.members.Forget(n.name) {
						w.logf("%s is told to forget %s", m.name, n.name)
					}
				})
			})
		}
		back(w.between(6*limiter.Second, 8*limiter.Second))
		return
	}
	back(w.between(0, 4*limiter.Second))
}

// startAnew has a node crash and start anew within 150 ms.
func (w *World) startAnew(rules map[string]*limiter.Rule) {
	if n := w.anyone(); len(w.live()) > 1 {
		n.crash(w.chance(70))
		w.after(w.between(10*ms, 150*ms), func() { w.start(n.name, false, rules, w.size) })
	}
}

// crashTwo has two nodes crash within 50 to 500 ms, and start again.
func (w *World) crashTwo(rules map[string]*limiter.Rule) {
	crash := func() {
		n := w.anyone()
		n.crash(w.chance(70))
		w.after(w.between(100*ms, 4*limiter.Second), func() { w.start(n.name, false, rules, w.size) })
	}
	crash()
	w.after(w.between(50*ms, 500*ms), func() {
		if len(w.live()) > 1 {
			crash()
		}
	})
}

// restarts has nodes start anew within a tenth of a second, two crash shortly one after
// the other, or all restart in turn during a split.
func (w *World) restarts(span limiter.Tick, rules map[string]*limiter.Rule) {
	switch w.rng.IntN(3) {
	case 0:
		for range 2 + w.rng.IntN(4) {
			w.after(w.between(0, span), func() {
				w.startAnew(rules)
			})
		}
	case 1:
		w.after(w.between(0, 2*limiter.Second), func() { w.crashTwo(rules) })
	default:
		if len(w.live()) > 1 {
			w.splitUp()
		}
		w.after(w.between(2*limiter.Second, 7*limiter.Second), w.heal)
		for i, n := range w.live() {
			w.after(limiter.Tick(i)*w.between(200*ms, limiter.Second), func() {
				if n.alive && n.members.State() == peer.Active {
					n.leave(func() { w.after(w.between(0, 200*ms), func() { w.start(n.name, false, rules, w.size) }) })
				}
			})
		}
	}
}
