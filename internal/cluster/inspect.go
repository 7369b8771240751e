package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/view"
)

// PartitionInfo describes what a node holds of a partition, for metrics, operators and
// the invariants of simulations.
type PartitionInfo = replica.Info

// Partition returns what this node holds of a partition. ok is false if the core does
// not manage it.
func (c *Core) Partition(id int) (info PartitionInfo, ok bool) {
	if id < 0 || id >= len(c.byID) || c.byID[id] == nil {
		return PartitionInfo{}, false
	}
	p := c.byID[id]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Info(c.config.Scheduler.Now()), true
}

// Partitions returns the numbers of the partitions that the core manages.
func (c *Core) Partitions() []int {
	out := make([]int, len(c.parts))
	for i, p := range c.parts {
		out[i] = int(p.id)
	}
	return out
}

// View returns the present view.
func (c *Core) View() *view.View { return c.view.Load() }

// Settled reports whether every partition is as the view calls for, as far as it depends
// on this node: owned by its owner in the ring, with the wanted member as heir.
func (c *Core) Settled() bool { return len(c.Unsettled(1)) == 0 }

// Unsettled returns the numbers of partitions that are not as the view calls for, at
// most as many as most.
func (c *Core) Unsettled(most int) (ids []int) {
	v := c.view.Load()
	for _, p := range c.parts {
		if len(ids) < most && !c.settled(p, v) {
			ids = append(ids, int(p.id))
		}
	}
	return ids
}

// settled reports whether a partition is as a view calls for.
func (c *Core) settled(p *part, v *view.View) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Settled(&replica.Turn{Now: c.config.Scheduler.Now(), View: v})
}

// Vacated reports whether a leaving node may go: it owns nothing, is no heir, and has
// nothing left to push. So what it handed over has another heir. It is also true if no
// member is left, or joining, that could take over.
func (c *Core) Vacated() bool {
	for _, p := range c.parts {
		if !c.vacated(p) {
			return false
		}
	}
	return true
}

func (c *Core) vacated(p *part) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Vacated(c.view.Load())
}

// Informed reports whether this node has learned what others hold of every partition, so
// that it may grant claims and become heir.
func (c *Core) Informed() bool {
	for _, p := range c.parts {
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
func (c *Core) Describe(id int) string {
	p := c.byID[id]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Describe(&replica.Turn{Now: c.config.Scheduler.Now(), View: c.view.Load()})
}
