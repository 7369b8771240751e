package cluster

import (
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// few finds out that a minority is left before gossip does. From when this node has claimed an available
// partition, or has lost sight of a member, it looks for a while whether its connections to more than half of the
// members still confirm what they carry. Before that an owner asks from time to time those from which nothing comes:
// it may be cut off together with its heir, and claims nothing.
type few struct {
	links *mesh.Mesh
	until atomic.Int64 // when it stops looking, scheduler time
	askAt atomic.Int64 // when it asks again, scheduler time
}

const (
	// fewFor is how long it looks. Gossip takes 1 to 2.4 s to lose who is gone, and a member that gossip has lost may
	// take half a second to answer on its connection: by then the view shows the minority.
	fewFor = 4 * limiter.Second
	// askEvery is the time between two questions of an owner that does not look. It begins to look if it found half of
	// the members silent fewAfter ago. So it knows of a cut 0.8 s later, and others claim what it owns when gossip has
	// lost it, which takes at least a second. A member that is late by less changes no share.
	askEvery = 250 * limiter.Millisecond
	fewAfter = 300 * limiter.Millisecond
)

// claimed begins to look. All members in view were asked just now, so the connections of those that did not answer
// are suspect.
func (f *few) claimed(now limiter.Tick) { f.until.Store(int64(now + fewFor)) }

// viewChanged begins to look if a member is lost that did not say that it leaves. All others are asked, so that a
// connection that is cut is found suspect within a moment.
func (f *few) viewChanged(t *turn, old, v *view.View) {
	lost := false
	for i := range old.Members {
		m := &old.Members[i]
		lost = lost || m.State == peer.Active && !v.Has(m.Instance)
	}
	if !lost {
		return
	}
	f.claimed(t.Now)
	for i := range v.Members {
		t.Out.Ask(v.Members[i].Instance)
	}
}

// ask asks the members from which nothing comes, and begins to look if few were heard for long.
func (f *few) ask(t *turn, v *view.View) {
	at := f.askAt.Load()
	if int64(t.Now) < at || !f.askAt.CompareAndSwap(at, int64(t.Now+askEvery)) {
		return
	}
	for i := range v.Members {
		if m := v.Members[i].Instance; f.links.Quiet(m, t.Now) {
			t.Out.Ask(m)
		}
	}
	if _, few := f.heard(v, t.Now-fewAfter); few {
		f.claimed(t.Now)
	}
}

// heard returns how many members of a view are not silent, this node included, and whether they are few: no more than
// half of those that count, while one that is active is silent. One that joins is on no other side of a split.
func (f *few) heard(v *view.View, now limiter.Tick) (n int, few bool) {
	for i := range v.Members {
		if m := &v.Members[i]; !f.links.Silent(m.Instance, now) {
			n++
		} else if m.State == peer.Active {
			few = true
		}
	}
	return n, few && 2*n <= v.Recent
}

// left returns how many members are left, this node included, of those that count. of is 0 if they are not few, or if
// this node does not look.
func (f *few) left(v *view.View, now limiter.Tick) (live, of uint64) {
	if int64(now) >= f.until.Load() {
		return 0, 0
	}
	n, few := f.heard(v, now)
	if !few {
		return 0, 0
	}
	return uint64(n), uint64(v.Recent)
}
