package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A panic ends only what was under way. A panic in a step of a replica, or under the lock
// of its partition, breaks the partition, see [replica.Replica.Break].
//
// Any other panic ends one call, one callback or one frame. Work deferred to the end of
// the turn is still done, and an operation under way is answered at its deadline.

// caught reports a panic with the value v.
func (c *Core) caught(v any) { c.config.Panicked(v) }

// catch recovers from a panic. It must be deferred directly.
func (c *Core) catch() {
	if c.config.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		c.caught(v)
	}
}

// catch recovers from a panic. The turn's memory is not reused after one. It must be
// deferred directly.
func (t *turn) catch() {
	if t.c.config.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		t.broken = true
		t.c.caught(v)
	}
}

// fault lets a test panic here.
func (c *Core) fault(partition uint16) {
	if f := c.config.Fault; f != nil {
		f(int(partition))
	}
}

// leave unlocks a partition. It recovers from a panic, and breaks the partition then. It
// must be deferred directly.
func (p *part) leave(t *turn) {
	if t.c.config.Panicked != nil {
		if v := recover(); v != nil {
			t.c.broke(t, []*part{p}, v)
			return
		}
	}
	p.mu.Unlock()
}

// leaveAll is leave for the partitions of one request. After a panic it sets the verdict
// to one that means that the request was not executed.
func (c *Core) leaveAll(t *turn, parts []*part, v *verdict, at **part) {
	if c.config.Panicked != nil {
		if x := recover(); x != nil {
			if *v, *at = overloaded, nil; len(parts) > 0 {
				*v, *at = notOwner, parts[0]
			}
			c.broke(t, slices.Clone(parts), x)
			return
		}
	}
	unlock(parts)
}

// broke handles a panic under the locks of partitions: it reports the panic, breaks the
// partitions and unlocks them.
func (c *Core) broke(t *turn, parts []*part, v any) {
	defer unlock(parts)
	t.broken = true
	c.caught(v)
	for _, p := range parts {
		p.breakDown(t)
	}
}

func unlock(parts []*part) {
	for _, p := range parts {
		p.mu.Unlock()
	}
}

// breakDown breaks a partition, which is locked. What the step before the panic has left
// to do is done, except batches: the counters that they would carry may be half changed.
func (p *part) breakDown(t *turn) {
	defer t.catch() // a second panic only skips the rest: fewer bounds returned, fewer askers told
	defer p.apply(t)
	t.step.Spoil()
	p.apply(t)
	p.r.Break(t.inputs())
}

// deserted reports whether no member is expected to decide about a key before this node
// resumes the key's partition, which it has given up for longer than a deadline. It
// takes no partition's lock.
func (o *op) deserted(t *turn) bool {
	for i := range o.charge.Len() {
		p := o.c.part(o.charge.Key(i))
		if p == nil || peer.Instance(p.to.Load()) != o.c.self {
			continue
		}
		if at := p.givenUpAt.Load(); at != 0 && t.now-limiter.Tick(at) >= o.c.config.Deadline {
			return true
		}
	}
	return false
}

// tickSafely is tick; a panic ends only this call.
func (o *op) tickSafely(t *turn) {
	defer t.catch()
	o.tick(t)
}

// answerByPolicy answers a check by the policy of its rule. If even that panics, the
// check is denied.
func (c *Core) answerByPolicy(t *turn, k *limiter.Charge, answer, idle *limiter.Decision) {
	over := false
	defer func() {
		if !over {
			for _, d := range []*limiter.Decision{answer, idle} {
				if d != nil {
					d.Clear()
					d.Allowed, d.Source = false, limiter.SourceFallbackClosed
				}
			}
		}
	}()
	defer t.catch()
	c.decideByPolicy(t, k, answer, idle)
	over = true
}
