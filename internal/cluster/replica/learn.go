package replica

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// learn records an owner, and its heir, unless a later owner is known. An owner under a
// lower epoch stops deciding here.
func (p *Replica) learn(t *Step, owner peer.Epoch, heir peer.Instance) {
	p.top = max(p.top, owner.Counter)
	if owner.Instance == p.node.Self && p.owner.Before(owner) || slices.Contains(p.disproved, owner) {
		return // this node would have been the first to know of its own epoch
	}
	switch owner.Compare(p.owner) {
	case -1:
		return
	case 0:
		if p.heir == 0 && p.role < peer.Sealed {
			p.heir = heir // a known heir is replaced only by what the owner itself says
			p.reroute(t)
		}
		return
	}
	p.owner, p.heir, p.keptUntil = owner, heir, 0
	if p.role == peer.Heir && p.epoch.Before(owner) {
		// No appointment of an earlier epoch counts.
		p.role, p.appointment = peer.Copy, 0
	}
	if p.role >= peer.Sealed && owner.Instance != p.node.Self {
		p.fenced(t)
	}
	if r := p.claiming.round; r != nil && r.takes() && r.base.Before(owner) {
		p.giveUp() // whoever named the owner, in an answer or otherwise
		p.watch(t)
	}
	p.seeking.seekAt, p.seeking.seekIn = 0, 0
	p.reroute(t)
	p.settleParked(t)
}

// fenced ends this node's ownership because there is a later one, p.owner.
func (p *Replica) fenced(t *Step) {
	own := p.own
	if own.handover != nil && p.owner == own.handover.next {
		p.confirmed(t)
		return
	}
	own.handover = nil                   // it was not taken
	own.takeBack(t, everyEpoch, p.owner) // resets too: the later owner may not have them
	p.disown()
	p.claiming.round = nil
	p.role, p.appointment, p.pushing.unpushed, p.pushing.pushes = peer.Copy, 0, true, 0
	p.pushing.pushedTo = 0
	t.event(Fenced)
	p.push(t)
	p.watch(t)
}

// become makes this node the owner under an epoch.
func (p *Replica) become(t *Step, e peer.Epoch, tookOver bool) {
	before := p.owner.Instance
	p.role, p.epoch, p.owner, p.mine, p.heir = peer.Owned, e, e, e, 0
	p.top = max(p.top, e.Counter)
	p.appointment, p.fresh, p.pushing.unpushed, p.restored = 0, false, false, false
	p.staging.unstage(p.node)
	p.claiming.round, p.seeking.seekAt, p.seeking.seekIn = nil, 0, 0
	p.disown()
	p.own = p.newOwnership(t)
	p.own.tookOver, p.own.heard = tookOver, p.node.Pace.LastPing()
	if tookOver {
		// The former owner was just found silent, so another member becomes heir
		// meanwhile.
		p.own.suspended, p.own.suspendedUntil = before, t.Now+suspendFor
	}
	p.reroute(t)
	p.own.announce(t, 0)
	p.manage(t)
	p.settleParked(t)
	p.watch(t)
}

// announce tells a member, or all members if to is 0, who owns the partition and who is
// heir.
func (o *Ownership) announce(t *Step, to peer.Instance) {
	a := peer.Announce{Partition: o.id, Epoch: o.held.epoch}
	if h := o.heir; h != nil {
		a.Heir = h.to
	}
	if to != 0 {
		t.sendAnnounce(to, a)
		return
	}
	for i := range t.View.Members {
		if m := t.View.Members[i].Instance; m != o.node.Self {
			t.sendAnnounce(m, a)
		}
	}
}

func (p *Replica) onAnnounce(t *Step, from peer.Instance, a peer.Announce) {
	if a.Epoch.Before(p.owner) {
		// The sender has been fenced and does not know it.
		p.announceKnown(t, from)
		if from == p.owner.Instance {
			p.Doubt(t)
		}
		return
	}
	p.learn(t, a.Epoch, a.Heir)
	if p.owner == a.Epoch && from == a.Epoch.Instance && p.role < peer.Sealed && a.Heir != 0 {
		// An owner without an heir has said so before it had one: by a relay that may arrive
		// late. An heir that is none any more is a better guess than none.
		p.heir = a.Heir
		p.reroute(t)
	}
	p.dropOutdated(t, a.Heir)
	if p.pushing.unpushed {
		p.push(t)
	}
}

// keepFor is how long an owner whose claim this node did not grant must be in view before a copy of an
// earlier epoch is dropped at its word: what it says may be false, and then that copy is what is left. What this
// node decided itself is kept as long in any case: members grant claims whoever makes them, and it is the best copy.
// So is what was read from its disk: the owner may be one of before the end of all.
const keepFor = 10 * limiter.Second

// dropOutdated drops a copy of an earlier epoch once the present owner has an heir.
func (p *Replica) dropOutdated(t *Step, heir peer.Instance) {
	switch {
	case p.role != peer.Copy || p.pushing.unpushed || heir == 0 || heir == p.node.Self || !p.outdated():
	case p.epoch != p.mine && !p.FromDisk() && p.grant == p.owner.Counter && p.grantFor == p.owner.Instance:
		p.drop()
	case p.keptUntil == 0:
		p.keptUntil = t.Now + keepFor
		p.watch(t)
	}
}

// tickKept drops a copy that was kept long enough. A node that leaves keeps none: an owner may decide alone then.
func (p *Replica) tickKept(t *Step) {
	switch {
	case p.keptUntil == 0:
	case p.role != peer.Copy || !p.outdated():
		p.keptUntil = 0
	case !t.View.Has(p.owner.Instance):
		p.keptUntil = t.Now + keepFor
	case t.Now >= p.keptUntil || t.State == peer.Leaving:
		p.drop()
	}
}

// announceKnown sends a member the highest owner that this node knows.
func (p *held) announceKnown(t *Step, to peer.Instance) {
	a := peer.Announce{Partition: p.id, Epoch: p.owner, Heir: p.heir}
	t.sendAnnounce(to, a)
}
