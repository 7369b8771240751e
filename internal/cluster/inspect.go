package cluster

import (
	"slices"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
)

// PartitionInfo describes what a node holds of a partition, for metrics, operators and
// the invariants of simulations.
type PartitionInfo = replica.Info

// inspection is what can be seen of a core. It changes nothing.
type inspection struct {
	partitions
	view  *atomic.Pointer[view.View]
	sched Scheduler
}

// Partition returns what this node holds of a partition. ok is false if the core does
// not manage it.
func (x *inspection) Partition(id int) (info PartitionInfo, ok bool) {
	if id < 0 || id >= len(x.byID) || x.byID[id] == nil {
		return PartitionInfo{}, false
	}
	p := x.byID[id]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Info(x.sched.Now()), true
}

// Claim returns what this node is to a partition, see [replica.Replica.Claim], or zeros if the
// core does not manage it.
func (x *inspection) Claim(id int) (role peer.Role, epoch peer.Epoch, heir peer.Instance, appointment uint32) {
	if id < 0 || id >= len(x.byID) || x.byID[id] == nil {
		return role, epoch, heir, appointment
	}
	p := x.byID[id]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Claim()
}

// Partitions returns the numbers of the partitions that the core manages.
func (x *inspection) Partitions() []int {
	out := make([]int, len(x.parts))
	for i, p := range x.parts {
		out[i] = int(p.id)
	}
	return out
}

// View returns the present view.
func (x *inspection) View() *view.View { return x.view.Load() }

// Settled reports whether every partition is as the view calls for, as far as it depends
// on this node: owned by its owner in the ring, with the wanted member as heir.
func (x *inspection) Settled() bool { return len(x.Unsettled(1)) == 0 }

// Unsettled returns the numbers of partitions that are not as the view calls for, at
// most as many as most.
func (x *inspection) Unsettled(most int) (ids []int) {
	v := x.view.Load()
	for _, p := range x.parts {
		if len(ids) < most && !x.settled(p, v) {
			ids = append(ids, int(p.id))
		}
	}
	return ids
}

// settled reports whether a partition is as a view calls for.
func (x *inspection) settled(p *partition, v *view.View) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Settled(&replica.Step{Now: x.sched.Now(), View: v})
}

// Drained reports whether a leaving node may go: it owns nothing, is no heir, and has
// nothing left to push. So what it handed over has another heir. It is also true if no
// member is left, or joining, that could take over.
func (x *inspection) Drained() bool {
	return !slices.ContainsFunc(x.parts, func(p *partition) bool { return !x.drained(p) })
}

func (x *inspection) drained(p *partition) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Drained(x.view.Load())
}

// Informed reports whether this node has learned what others hold of every partition, so
// that it may grant claims and become heir.
func (x *inspection) Informed() bool {
	for _, p := range x.parts {
		p.mu.Lock()
		fresh := p.r.Fresh()
		p.mu.Unlock()
		if fresh {
			return false
		}
	}
	return true
}

// Describe returns one line on what this node holds and does of a partition, for
// debugging.
func (x *inspection) Describe(id int) string {
	p := x.byID[id]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Describe(&replica.Step{Now: x.sched.Now(), View: x.view.Load()})
}
