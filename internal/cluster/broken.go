package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A panic ends what was under way and nothing else. Under the lock of a partition it
// breaks the partition: what this node holds of it may be what made it panic, and may be
// half changed. So the node drops it, as if it had been restarted without, and keeps only
// what it has promised: the highest counters and owners, and what it granted. The heir
// goes on from its copy. That may panic in turn, if the state was copied; then it is
// dropped there as well, and the partition starts empty. What breaks a second time within
// a minute is given up for a minute, so that nobody hands it round for ever.
//
// Anything else that panics ends one call, one callback or one frame. What was put off to
// the end of a turn is done all the same, and an operation that was begun is answered at
// its deadline.

const (
	// giveUpFor is how long a partition is given up that has broken twice within as long.
	giveUpFor = limiter.Minute
	// maxUrges is how often the heir of a broken ownership is asked to take over.
	maxUrges = 64
)

// caught records a panic, whose value is v.
func (c *Core) caught(v any) { c.config.Panicked(v) }

// catch ends a panic. It is deferred, directly.
func (c *Core) catch() {
	if c.config.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		c.caught(v)
	}
}

// catch ends a panic, after which the memory of the turn is not used for another one. It
// is deferred, directly.
func (t *turn) catch() {
	if t.c.config.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		t.broken = true
		t.c.caught(v)
	}
}

// in runs f under the lock of a partition, which breaks if f panics.
func (c *Core) in(t *turn, p *part, f func(*part)) {
	p.mu.Lock()
	defer p.leave(t)
	p.fault()
	f(p)
}

// fault lets a test panic here.
func (p *part) fault() {
	if f := p.c.config.Fault; f != nil {
		f(int(p.id))
	}
}

// leave unlocks a partition. It is deferred, directly: a panic ends here, and the
// partition is broken.
func (p *part) leave(t *turn) {
	if p.c.config.Panicked != nil {
		if v := recover(); v != nil {
			p.c.broke(t, []*part{p}, v)
			return
		}
	}
	p.mu.Unlock()
}

// leaveAll does the same for the partitions of one request, of which it makes the verdict
// that it was not executed.
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

// broke records a panic under the locks of partitions, breaks them, and unlocks them.
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

// breakDown drops what is held of a partition, which is locked. Whoever waits for it is
// told that nothing was executed. The heir of an ownership is asked to take over.
func (p *part) breakDown(t *turn) {
	defer t.catch() // what follows a second panic is left: there is less to give back, or to say
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

// forgetHeld forgets what is held, what waits and what is going on. own is the ownership
// that there was, or nil.
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

// refuseAll tells those who wait for a broken partition that nothing was executed here.
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

// tickBroken does what time calls for after the partition broke. It reports whether there
// will be more.
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

// urge asks the heir of an ownership that broke to take over, unless somebody owns by now
// or there is no heir: then whoever should own finds out, and goes on from the best copy.
func (p *part) urge(t *turn) {
	heir := p.heir
	if p.owner != p.mine || heir == 0 || heir == p.c.self || p.urges >= maxUrges || !p.c.view.Load().has(heir) {
		p.yields = false
		return
	}
	p.urgeAt = t.now + p.c.eased(backedOff(resendAfter, p.urges))
	p.urges++
	q := peer.Claim{Partition: p.id, Kind: peer.Takeover, For: heir}
	p.c.send(t, heir, 40, true, func(_ *link, f *peer.Frame) { f.Claims = append(f.Claims, q) })
}

// urged takes over, as the heir of an owner that says itself that it owns no more.
func (p *part) urged(t *turn, from peer.Instance) {
	if p.role != peer.Heir || p.owner.Instance != from || p.fresh || p.round != nil && p.round.kind != peer.Ask {
		return
	}
	p.round = nil
	p.takeOver(t)
}

// deserted reports whether nobody is expected to decide about a key before its partition,
// which this node has given up, is taken up again. It does not wait for the partition.
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

// tickSafely is tick, of which a panic ends no more than that.
func (o *op) tickSafely(t *turn) {
	defer t.catch()
	o.tick(t)
}

// answerByPolicy has the policy of its rule answer a check, and denies it where even that
// panics.
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
