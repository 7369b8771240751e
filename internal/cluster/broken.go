package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/cluster/route"
)

// A panic ends only what was under way. A panic in a step of a replica, or under the lock
// of its partition, breaks the partition, see [replica.Replica.Break].
//
// Any other panic ends one call, one callback or one frame. Work deferred to the end of
// the turn is still done, and an operation under way is answered at its deadline.

// catch recovers from a panic. It must be deferred directly.
func (c *Config) catch() {
	if c.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		c.Panicked(v)
	}
}

// fault lets a test panic here.
func (c *Config) fault(partition uint16) {
	if f := c.Fault; f != nil {
		f(int(partition))
	}
}

// leave unlocks a partition. It recovers from a panic, and breaks the partition then. It
// must be deferred directly.
func (p *partition) leave(t *turn) {
	if t.Panicked != nil {
		if v := recover(); v != nil {
			t.broke([]*partition{p}, v)
			return
		}
	}
	p.mu.Unlock()
}

// leaveAll is leave for the partitions of one request. After a panic it sets the verdict
// to one that means that the request was not executed.
func (t *turn) leaveAll(parts []*partition, v *route.Verdict, at **partition) {
	if t.Panicked != nil {
		if x := recover(); x != nil {
			if *v, *at = route.Overloaded, nil; len(parts) > 0 {
				*v, *at = route.NotOwner, parts[0]
			}
			t.broke(slices.Clone(parts), x)
			return
		}
	}
	unlock(parts)
}

// broke handles a panic under the locks of partitions: it reports the panic, breaks the
// partitions and unlocks them.
func (t *turn) broke(parts []*partition, v any) {
	defer unlock(parts)
	t.Broken = true
	t.Panicked(v)
	for _, p := range parts {
		p.breakDown(t)
	}
}

func unlock(parts []*partition) {
	for _, p := range parts {
		p.mu.Unlock()
	}
}

// breakDown breaks a partition, which is locked. What the step before the panic has left
// to do is done, except batches: the counters that they would carry may be half changed.
func (p *partition) breakDown(t *turn) {
	defer t.Catch() // a second panic only skips the rest: fewer bounds returned, fewer askers told
	defer p.apply(t)
	defer func() { p.r.Break(t.inputs()) }() // also if an effect panics
	t.step.Spoil()
	p.apply(t)
}
