package cluster

import (
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// absences is which members have left the view, and when.
type absences struct {
	mu    sync.Mutex
	since map[peer.Instance]limiter.Tick // when each member left the view
	// when the last other member left the view, scheduler time; 0 if the view has others or never had any
	aloneAt atomic.Int64
}

// LeftView returns when an instance left the view; 0 if it is in the view or was never
// seen.
func (a *absences) LeftView(i peer.Instance) limiter.Tick {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.since[i]
}

// changed records a new view. Who left longer ago than [mesh.ForgetAfter] is forgotten.
func (a *absences) changed(old, v *view.View, now limiter.Tick) {
	if len(v.Members) > 1 {
		a.aloneAt.Store(0)
	} else if len(old.Members) > 1 {
		a.aloneAt.Store(int64(now))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range old.Members {
		if m := old.Members[i].Instance; !v.Has(m) {
			a.since[m] = now
		}
	}
	for i := range v.Members {
		delete(a.since, v.Members[i].Instance)
	}
	for i, since := range a.since {
		if now-since >= mesh.ForgetAfter {
			delete(a.since, i)
		}
	}
}

// cutOff reports whether this node is cut off from all other members: for
// [replica.GoneAfter] no other member has been in the view, no link is up, and other
// members count. Until one is back, nothing that needs another member can succeed.
func (a *absences) cutOff(now limiter.Tick, v *view.View, links *mesh.Mesh) bool {
	if at := a.aloneAt.Load(); at == 0 || now-limiter.Tick(at) < replica.GoneAfter || v.Known == 1 {
		return false
	}
	return !links.AnyUp()
}
