package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A panic ends only what was under way. A panic under the lock of a partition breaks the
// partition: the state held may be the cause, or may be half changed. So the node drops
// it, as if it had restarted without it, and keeps only what it has promised: the
// highest counters and owners, and its grants. The heir continues from its copy. If the
// copied state makes the heir panic too, it is dropped there as well, and the partition
// starts empty. A partition that breaks twice within a minute is given up for a minute,
// so that members do not pass it round for ever.
//
// Any other panic ends one call, one callback or one frame. Work deferred to the end of
// the turn is still done, and an operation under way is answered at its deadline.

const (
	// giveUpFor is how long a partition is given up after it has broken twice within as
	// long.
	giveUpFor = limiter.Minute
	// maxUrges is how often the heir of a broken ownership is asked to take over.
	maxUrges = 64
)

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

// in runs f under the lock of a partition. If f panics, the partition breaks.
func (c *Core) in(t *turn, p *part, f func(*part)) {
	p.mu.Lock()
	defer p.leave(t)
	p.fault()
	f(p)
}

// fault lets a test panic here.
func (p *part) fault() {
	p.c.fault(p.id)
}

func (c *Core) fault(partition uint16) {
	if f := c.config.Fault; f != nil {
		f(int(partition))
	}
}

// leave unlocks a partition. It recovers from a panic, and breaks the partition then. It
// must be deferred directly.
func (p *part) leave(t *turn) {
	if p.c.config.Panicked != nil {
		if v := recover(); v != nil {
			p.c.broke(t, []*part{p}, v)
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

// breakDown drops what is held of a partition, which is locked. Waiting askers learn
// that their requests were not executed. If this node was the owner, its heir is asked
// to take over.
func (p *part) breakDown(t *turn) {
	defer t.catch() // a second panic only skips the rest: fewer bounds returned, fewer askers told
	p.c.event(EventBroken, int(p.id))
	again := p.brokeAt != 0 && t.now-p.brokeAt < giveUpFor
	p.brokeAt = t.now
	if again {
		p.givenUp = true
		p.c.event(EventGivenUp, int(p.id))
	}
	own, parked := p.own, p.parked
	p.forgetHeld(t, own)
	p.watch(t)
	defer p.point()
	defer p.refuseAll(t, own, parked)
	if own != nil {
		p.uncount(own.heir)
		p.uncount(own.next)
		p.c.reserves.Add(-int64(len(own.unsettled)))
	}
	p.c.table.Drop(int(p.id))
}

// forgetHeld clears the state held, the waiting requests and the work in progress. own
// is the former ownership, or nil.
func (p *part) forgetHeld(t *turn, own *ownership) {
	p.own, p.parked, p.round = nil, nil, nil
	p.role, p.epoch, p.seq, p.appointment = peer.Nothing, peer.Epoch{}, 0, 0
	p.unpushed, p.pushedTo, p.pushes = false, 0, 0
	p.pushFrom, p.pushNext = 0, 0
	p.stagedSeq, p.stagedNext = 0, 0
	p.unstage()
	p.tries, p.seekAt, p.seekIn, p.quiet = 0, 0, 0, 0
	p.lost = [2]lostOwner{}
	p.givenUpAt.Store(0)
	if p.givenUp {
		p.givenUpAt.Store(int64(t.now))
	}
	if own == nil {
		return
	}
	p.yields, p.urgeAt, p.urges = true, t.now, 0
	switch {
	case own.heir != nil:
		p.heir = own.heir.to
	case own.next != nil && own.next.appointment != 0:
		p.heir = own.next.to // it may have accepted
	}
}

// refuseAll tells everyone who waits for a broken partition that nothing was executed
// here.
func (p *part) refuseAll(t *turn, own *ownership, waiting []parked) {
	for i := range waiting {
		p.c.ended(&waiting[i].reply)
		p.c.refuse(t, waiting[i].reply, peer.NotOwner, p)
	}
	if own == nil {
		return
	}
	for i := range own.contenders {
		p.c.ended(&own.contenders[i].reply)
		p.c.refuse(t, own.contenders[i].reply, peer.NotOwner, p)
	}
	for _, h := range own.held {
		if h.over.CompareAndSwap(false, true) {
			p.c.ended(&h.reply)
			p.c.refuse(t, h.reply, peer.NotOwner, p)
		}
	}
}

// tickBroken does the work that is due after the partition broke, and reports whether
// more is pending.
func (p *part) tickBroken(t *turn) bool {
	if p.givenUp && t.now-p.brokeAt >= giveUpFor {
		p.givenUp = false
		p.givenUpAt.Store(0)
	}
	if p.yields && (p.owner != p.mine || t.now >= p.urgeAt) {
		p.urge(t)
	}
	return p.givenUp || p.yields
}

// urge asks the heir of a broken ownership to take over. It stops if another member owns
// by now, or if there is no heir in the view; then the view owner asks all members and
// continues from the best copy.
func (p *part) urge(t *turn) {
	heir := p.heir
	if p.owner != p.mine || heir == 0 || heir == p.c.self || p.urges >= maxUrges || !p.c.view.Load().Has(heir) {
		p.yields = false
		return
	}
	p.urgeAt = t.now + p.c.eased(backedOff(resendAfter, p.urges))
	p.urges++
	q := peer.Claim{Partition: p.id, Kind: peer.Takeover, For: heir}
	p.c.sendClaim(t, heir, q, true)
}

// urged takes over if this node is the heir and the request comes from its owner, which
// has just lost its state.
func (p *part) urged(t *turn, from peer.Instance) {
	if p.role != peer.Heir || p.owner.Instance != from || p.fresh || p.round != nil && p.round.kind != peer.Ask {
		return
	}
	p.round = nil
	p.takeOver(t)
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
