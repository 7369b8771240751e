package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Whoever names an owner under a higher epoch is believed, since it may be the only one
// that knows: what it takes to overtake an owner is known to the new one first. But it may
// be wrong, or lie, and then nobody decides. So a member that has reason to doubt asks all,
// and the one that is said to own among them. That one knows best: an epoch bears the
// instance that owns, which knew of it before anyone else, and keeps it in mind.

const (
	doubtEvery   = 500 * limiter.Millisecond // then ever later, while it comes to nothing
	doubtSlowest = 8 * limiter.Second
	doubtFor     = goneAfter + claimAgain // the owner is waited for no longer
	doubtAfter   = 4                      // pushes that the owner did not answer
	maxDisproved = 8
)

// doubt asks whether there is an owner as this node believes.
func (p *part) doubt(t *turn) {
	if p.givenUp || p.round != nil || p.role >= peer.Heir || p.fresh || p.owner.Instance == 0 || p.owner.Instance == p.c.self || t.now < p.doubtAt {
		return
	}
	if p.doubtOf != p.owner {
		p.doubtOf, p.doubtIn = p.owner, doubtEvery
	}
	p.doubtAt = t.now + p.doubtIn
	p.doubtIn = min(2*p.doubtIn, doubtSlowest)
	p.tell(t, p.owner.Instance) // so that it never claims the very epoch that it denies now
	p.rounds++
	r := &round{kind: peer.Ask, id: p.rounds, started: t.now, doubts: p.owner}
	p.round = r
	r.invite(p)
	r.send(t, p)
	p.watch(t)
}

// doubtOwner doubts the owner of a partition that did not answer, if it is out of sight. It
// does not wait for the partition.
func (c *Core) doubtOwner(t *turn, p *part) {
	if to := peer.Instance(p.to.Load()); to == 0 || to == c.self || c.view.Load().has(to) {
		return
	}
	t.later = append(t.later, func(t *turn) { c.in(t, p, func(p *part) { p.doubt(t) }) })
}

// doubted goes on with what a doubt brought up so far.
func (p *part) doubted(t *turn, r *round) {
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
		if t.now-r.started >= doubtFor {
			p.settleDoubt(t)
		}
		return
	}
	// It is gone. An owner before it, which does not know of it, must: it has to claim
	// above it.
	for i, w := range r.whom {
		if a := &r.answers[i]; a.has && a.Role >= peer.Sealed {
			p.tell(t, w)
		}
	}
	p.settleDoubt(t)
}

func (p *part) settleDoubt(t *turn) {
	p.round = nil
	p.manage(t)
}

// disprove forgets an owner that says itself that it is none: it names another one, before
// itself. What this node itself has owned is known all the same.
func (p *part) disprove(t *turn, owner peer.Epoch, heir peer.Instance) {
	if len(p.disproved) == maxDisproved {
		p.disproved = slices.Delete(p.disproved, 0, 1)
	}
	p.disproved = append(p.disproved, p.owner)
	if owner.Before(p.mine) || owner.Instance == p.c.self || slices.Contains(p.disproved, owner) {
		owner, heir = p.mine, 0
	}
	p.owner, p.heir = owner, heir
	// Nobody has merged what is here, and nobody will: it is a copy like others.
	p.unpushed, p.pushedTo, p.pushes = false, 0, 0
	p.seekAt, p.seekIn = 0, 0
	p.aim()
	p.settleParked(t)
}
