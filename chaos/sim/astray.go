package sim

import (
	"slices"

	"github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/limiter"
)

// A check over several owners takes back what it reserved and does not charge. The cancel may be
// lost, and then the charge stays. The astray units of a key are those that may have stayed so.
//
// A check has one reservation of a key at a time, and goes on when it has heard that the cancel
// was executed. So it leaves no more of them behind than there were moments, from its call to
// its answer, at which a cancel can be lost. An answer at the check's deadline or later waits
// for no cancel: the cancel may be under way for as long as a member stands still.

const (
	askedFor  = 300 * ms           // the deadline of a check
	straysFor = 6 * limiter.Second // a cancel is under way for no longer: a pause is at most 5 s
)

// disturbances counts the moments at which a cancel may have been lost: the partition came to
// another owner, its owner merged another state, a connection broke, or a node read other rules,
// so that the cancel no longer fits what was reserved.
func (w *World) disturbances(part int) int {
	e := w.outcome.byPart[part]
	return w.outcome.takeovers(
		part) + e[cluster.EventHandoff] + e[cluster.EventEmptied] + e[cluster.EventMerged] + w.broken + w.reloads
}

// mayStray counts the units that the keys of an answered check may have left behind.
func (a *asking) mayStray() {
	if len(a.keys) == 1 {
		return
	}
	w := a.n.w
	count := func() {
		for i, about := range a.keys {
			about.astray += a.cost(i) * (w.disturbances(about.part) - a.before[i])
		}
	}
	if w.now-a.call < askedFor {
		count()
		return
	}
	w.after(straysFor, func() {
		count()
		if a.once.repeatedAfter(a) && !a.answer.Allowed {
			for i, about := range a.keys {
				about.astray += a.cost(i)
			}
		}
	})
}

// repeatedAfter reports whether another try was answered when the deadline of one had passed. It may
// repeat what that one has charged to a key, although another key denied both: then a late cancel
// takes nothing back.
func (o *once) repeatedAfter(of *asking) bool {
	return o != nil && slices.ContainsFunc(o.answers, func(x answeredTry) bool {
		return x.of != of && x.at >= of.call+askedFor
	})
}

// underWay is how long frames are under way at most, while no link is cut and no member is paused:
// over two slow links, of a relay, to members whose turns are late.
const underWay = 600 * ms

// mayPass notes the units of the answered check's key number i if a second owner may charge it after
// the answer. A check whose owner is silent for 80 ms is sent to the heir too, and waits there for the
// takeover until its deadline. If the owner answers meanwhile and is taken over all the same, both
// charge it (docs/decisions.md, "A check of unknown fate is sent once more"). That is
// over when the deadline has passed, counted from when the check arrives there.
func (a *asking) mayPass(i int) {
	w, k := a.n.w, a.keys[i]
	if w.stronger != nil && w.stronger.exact {
		return
	}
	var look func()
	look = func() {
		switch {
		case w.changes(k.part) > a.owners[i]:
			k.passed += a.cost(i)
		case len(w.cut) > 0 || slices.ContainsFunc(w.live(), func(n *Node) bool { return n.paused }):
			// Frames may wait for longer than underWay: a link is cut, or a member is paused.
			w.after(askedFor+underWay, look)
		}
	}
	w.after(a.call+askedFor+underWay-w.now, look)
}
