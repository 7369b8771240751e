package replica

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A member that names an owner under a higher epoch is believed, since it may be the
// only one that knows: the new owner is the first to know that it has overtaken another.
// But it may be wrong, or lie, and then no member decides. So a member with a reason to
// Doubt asks all members, the alleged owner included. The alleged owner knows best: an
// epoch carries the instance that owns, which learned of it before any other member and
// remembers it.

const (
	doubtEvery   = 500 * limiter.Millisecond // first interval between doubts of one owner; it doubles each time
	doubtSlowest = 8 * limiter.Second
	doubtFor     = GoneAfter + claimAgain // longest wait for the owner's answer
	doubtAfter   = 4                      // unanswered pushes after which the owner is doubted
	maxDisproved = 8
)

// Doubt asks all members whether the owner that this node believes in exists.
func (p *Replica) Doubt(t *Step) {
	if p.breakage.givenUp || p.claiming.round != nil || p.role >= peer.Heir || p.fresh || p.owner.Instance == 0 ||
		p.owner.Instance == p.node.Self || t.Now < p.doubting.doubtAt {
		return
	}
	if p.doubting.doubtOf != p.owner {
		p.doubting.doubtOf, p.doubting.doubtIn = p.owner, doubtEvery
	}
	p.doubting.doubtAt = t.Now + p.doubting.doubtIn
	p.doubting.doubtIn = min(2*p.doubting.doubtIn, doubtSlowest)
	p.announceKnown(t, p.owner.Instance) // so that it never claims the very epoch that it denies now
	p.claiming.rounds++
	r := &claimRound{kind: peer.Ask, id: p.claiming.rounds, started: t.Now, doubts: p.owner}
	p.claiming.round = r
	r.invite(t, p)
	r.send(t, p)
	p.watch(t)
}

// doubted evaluates the answers to a doubt so far.
func (p *Replica) doubted(t *Step, r *claimRound) {
	if p.owner != r.doubts {
		p.settleDoubt(t)
		return
	}
	for i, w := range r.whom {
		if a := &r.answers[i]; a.has && w == r.doubts.Instance {
			if a.Owner.Before(r.doubts) {
				p.disprove(t, a.Owner, a.Heir)
			}
			p.settleDoubt(t)
			return
		}
	}
	if !p.gone(t, r, 0, r.doubts.Instance) {
		if t.Now-r.started >= doubtFor {
			p.settleDoubt(t)
		}
		return
	}
	// The alleged owner is gone. An earlier owner that does not know of it must learn of
	// it, so that it claims a higher epoch.
	for i, w := range r.whom {
		if a := &r.answers[i]; a.has && a.Role >= peer.Sealed {
			p.announceKnown(t, w)
		}
	}
	p.settleDoubt(t)
}

func (p *Replica) settleDoubt(t *Step) {
	p.claiming.round = nil
	p.manage(t)
}

// disprove forgets an owner that denies its ownership by naming an earlier one. What
// this node itself has owned stays known.
func (p *Replica) disprove(t *Step, owner peer.Epoch, heir peer.Instance) {
	if len(p.disproved) == maxDisproved {
		p.disproved = slices.Delete(p.disproved, 0, 1)
	}
	p.disproved = append(p.disproved, p.owner)
	if owner.Before(p.mine) || owner.Instance == p.node.Self || slices.Contains(p.disproved, owner) {
		if owner != p.mine {
			heir = 0
		}
		owner = p.mine
	}
	p.owner, p.heir, p.keptUntil = owner, heir, 0
	// No later owner has merged the state held here, and none will. It is a copy like
	// any other.
	p.pushing.unpushed, p.pushing.pushedTo, p.pushing.pushes = false, 0, 0
	p.seeking.seekAt, p.seeking.seekIn = 0, 0
	if p.role == peer.Copy && p.epoch == p.mine && p.owner == p.mine {
		// This node stopped deciding for that owner. Its heir waits for it.
		p.breakage.yields, p.breakage.urgeAt, p.breakage.urges = true, t.Now, 0
		p.watch(t)
	}
	p.dropOutdated(t, p.heir)
	p.reroute(t)
	p.settleParked(t)
}
