package replica

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A panic in a step, or under the lock of the partition, breaks the partition: the state
// held may be the cause, or may be half changed. So it is dropped, as if the node had
// restarted without it, and only what was promised is kept: the highest counters and
// owners, and the grants. The heir continues from its copy. If the copied state makes
// the heir panic too, it is dropped there as well, and the partition starts empty. A
// partition that breaks twice within a minute is given up for a minute, so that members
// do not pass it round for ever.

const (
	// giveUpFor is how long a partition is given up after it has broken twice within as
	// long.
	giveUpFor = limiter.Minute
	// maxUrges is how often the heir of a broken ownership is asked to take over.
	maxUrges = 64
)

// Break drops what is held after a panic. Waiting askers learn that their requests were
// not executed. If this node was the owner, its heir is asked to take over. Another
// panic skips a part of that, but each effect is whole.
func (p *Replica) Break(t *Step) {
	t.event(Broken)
	again := p.breakage.brokeAt != 0 && t.Now-p.breakage.brokeAt < giveUpFor
	p.breakage.brokeAt = t.Now
	if again {
		p.breakage.givenUp = true
		t.event(GivenUp)
	}
	own, parked := p.own, p.waiting
	p.forgetHeld(t, own)
	p.watch(t)
	defer p.point(t)
	defer p.refuseAll(t, own, parked)
	if own != nil {
		own.end()
	}
	p.node.Store.Drop(int(p.id))
}

// forgetHeld clears the state held, the waiting requests and the work in progress. own
// is the former ownership, or nil.
func (p *Replica) forgetHeld(t *Step, own *Ownership) {
	p.own, p.waiting, p.claiming.round = nil, nil, nil
	p.role, p.epoch, p.seq, p.appointment = peer.Nothing, peer.Epoch{}, 0, 0
	p.saving.replaced()
	p.pushing.unpushed, p.pushing.pushedTo, p.pushing.pushes = false, 0, 0
	p.arriving.pushFrom, p.arriving.pushNext = 0, 0
	p.staging.stagedSeq, p.staging.stagedNext = 0, 0
	p.staging.unstage(p.node)
	p.claiming.tries, p.seeking.seekAt, p.seeking.seekIn, p.claiming.quiet = 0, 0, 0, 0
	p.seeking.lost = [2]lostOwner{}
	if own == nil {
		return
	}
	p.breakage.yields, p.breakage.urgeAt, p.breakage.urges = true, t.Now, 0
	switch {
	case own.heir != nil:
		p.heir = own.heir.to
	case own.next != nil && own.next.appointment != 0:
		p.heir = own.next.to // it may have accepted
	}
}

// refuseAll tells everyone who waits for a broken partition that nothing was executed
// here.
func (p *Replica) refuseAll(t *Step, own *Ownership, waiting []Request) {
	for _, q := range waiting {
		t.refuse(q, peer.NotOwner, p.owner)
	}
	if own == nil {
		return
	}
	for i := range own.Waits.waiters {
		t.refuse(own.Waits.waiters[i].Request, peer.NotOwner, p.owner)
	}
	for _, h := range own.withheld {
		if h.TakeBack() {
			t.refuseReply(h.Reply, peer.NotOwner, p.owner)
		}
	}
}

// tickBroken does the work that is due after the partition broke.
func (p *Replica) tickBroken(t *Step) {
	if p.breakage.givenUp && t.Now-p.breakage.brokeAt >= giveUpFor {
		p.breakage.givenUp = false
		t.Routed = true
	}
	if p.breakage.yields && (p.owner != p.mine || t.Now >= p.breakage.urgeAt) {
		p.urge(t)
	}
}

// urge asks the heir of a broken ownership to take over. It stops if another member owns
// by now, or if there is no heir in the view; then the view owner asks all members and
// continues from the best copy.
func (p *Replica) urge(t *Step) {
	heir := p.heir
	if p.owner != p.mine || heir == 0 || heir == p.node.Self || p.breakage.urges >= maxUrges || !t.View.Has(heir) {
		p.breakage.yields = false
		return
	}
	p.breakage.urgeAt = t.Now + p.node.Pace.Stretched(backedOff(resendAfter, p.breakage.urges))
	p.breakage.urges++
	q := peer.Claim{Partition: p.id, Kind: peer.Takeover, For: heir}
	t.sendClaim(heir, q)
}

// urged takes over if this node is the heir and the request comes from its owner, which
// has just lost its state.
func (p *Replica) urged(t *Step, from peer.Instance) {
	if p.role != peer.Heir || p.owner.Instance != from || p.fresh ||
		p.claiming.round != nil && p.claiming.round.kind != peer.Ask || t.Now < p.claiming.quiet {
		return
	}
	p.claiming.round = nil
	p.takeOver(t)
}
