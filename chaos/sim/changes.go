package sim

import (
	"github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/limiter"
)

// takes reports whether an event means that the new owner may lack counts of the last.
func takes(e cluster.Event) bool {
	return e == cluster.EventTakeover || e == cluster.EventRecovered || e == cluster.EventReopened ||
		e == cluster.EventEmptied
}

// justTaken reports whether a partition has just come to an owner that may lack counts.
func (w *World) justTaken(part int) bool {
	at, was := w.outcome.taken[part]
	return was && w.now-at < settledAfter
}

// settledAfter is how long an owner must have decided before a reset is judged: until then
// its heir may lack it.
const settledAfter = 500 * ms

// tookOver notes that a partition came to an owner that may lack counts, resets too.
func (w *World) tookOver(part int) {
	if w.outcome.taken == nil {
		w.outcome.taken = make(map[int]limiter.Tick)
	}
	w.outcome.taken[part] = w.now
	w.disks.restored(w, part)
	for _, k := range w.keys {
		if k.part != part {
			continue
		}
		if w.now-k.began < settledAfter {
			k.stands = false
		}
		if a, ok := w.outcome.alone[k]; ok {
			if a.at != 0 && w.now-a.at < underWay {
				a.lost += k.admitted - a.from
			}
			w.outcome.alone[k] = alone{lost: a.lost}
		}
	}
}

// takes notes that a partition came to a node that may lack counts of the last owner.
func (o *Outcome) takes(n *Node, part int) {
	if o.took == nil {
		o.took, o.back = make(map[int]*Node), make(map[int]int)
	}
	o.took[part] = n
	n.w.tookOver(part)
}

// fenced notes that a node was fenced. If nobody took the partition over from it, the owner of before had renewed its
// epoch meanwhile. Then the partition changed its owner twice, and that one lacks what this one answered.
func (o *Outcome) fenced(n *Node, part int) {
	if o.took[part] != n {
		return
	}
	delete(o.took, part)
	o.back[part]++
	n.w.tookOver(part)
}

// alone is what an owner answers in place of its silent heir.
type alone struct {
	from int          // what was admitted when that began
	at   limiter.Tick // when it began; 0 if it is over
	lost int          // what such owners admitted since, and lost by a takeover
}

// raised notes that the owner of an available partition answers by policy in place of its heir, which is silent. If it
// stops before its heir answers, the heir lacks what it admitted since, and not D of it.
func (o *Outcome) raised(w *World, part int) {
	if o.alone == nil {
		o.alone = make(map[*key]alone)
	}
	for _, k := range w.keys {
		if a := o.alone[k]; k.part == part && (a.at == 0 || w.now-a.at >= underWay) {
			o.alone[k] = alone{k.admitted, w.now, a.lost}
		}
	}
}

// takeovers is how often a partition came to an owner that may lack D of its counts.
func (o *Outcome) takeovers(partition int) int {
	e := o.byPart[partition]
	return e[cluster.EventTakeover] + e[cluster.EventRecovered] + e[cluster.EventReopened] + o.back[partition]
}

// overtook is how often a partition was taken over from an owner that was not heard for long, in a run whose changes
// are all graceful. Where clients ask so often that nodes borrow, a link carries hundreds of frames a second, and each
// waits for the slow ones before it: so delays of up to 60 ms add up to more than an heir waits.
func (k *key) overtook(w *World) int {
	if !w.near.lending.on {
		return 0
	}
	return w.outcome.takeovers(k.part) - k.before
}

// changes counts after how many changes of the owner of a partition a check may have been charged by
// both: takeovers, and handoffs in runs with other faults. The reply of the first owner, or the
// cancel to it, may be lost with a connection, and the charge is handed over.
func (w *World) changes(part int) int {
	n := w.outcome.takeovers(part)
	if !w.exact && (w.stronger == nil || !w.stronger.exact) {
		n += w.outcome.byPart[part][cluster.EventHandoff]
	}
	return n
}
