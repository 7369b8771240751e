package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A member that names an owner under a higher epoch is believed, since it may be the
// only one that knows: the new owner is the first to know that it has overtaken another.
// But it may be wrong, or lie, and then no member decides. So a member with a reason to
// doubt asks all members, the alleged owner included. The alleged owner knows best: an
// epoch carries the instance that owns, which learned of it before any other member and
// remembers it.

const (
	doubtEvery   = 500 * limiter.Millisecond // first interval between doubts of one owner; it doubles each time
	doubtSlowest = 8 * limiter.Second
	doubtFor     = goneAfter + claimAgain // longest wait for the owner's answer
	doubtAfter   = 4                      // unanswered pushes after which the owner is doubted
	maxDisproved = 8
)

// doubt asks all members whether the owner that this node believes in exists.
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

// doubtOwner doubts the owner of a partition, which did not answer, if it is not in the
// view. It does not wait for the partition's lock.
func (c *Core) doubtOwner(t *turn, p *part) {
	if to := peer.Instance(p.to.Load()); to == 0 || to == c.self || c.view.Load().Has(to) {
		return
	}
	t.later = append(t.later, func(t *turn) { c.in(t, p, func(p *part) { p.doubt(t) }) })
}

// doubted evaluates the answers to a doubt so far.
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
	// The alleged owner is gone. An earlier owner that does not know of it must learn of
	// it, so that it claims a higher epoch.
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

// disprove forgets an owner that denies its ownership by naming an earlier one. What
// this node itself has owned stays known.
func (p *part) disprove(t *turn, owner peer.Epoch, heir peer.Instance) {
	if len(p.disproved) == maxDisproved {
		p.disproved = slices.Delete(p.disproved, 0, 1)
	}
	p.disproved = append(p.disproved, p.owner)
	if owner.Before(p.mine) || owner.Instance == p.c.self || slices.Contains(p.disproved, owner) {
		owner, heir = p.mine, 0
	}
	p.owner, p.heir = owner, heir
	// No later owner has merged the state held here, and none will. It is a copy like
	// any other.
	p.unpushed, p.pushedTo, p.pushes = false, 0, 0
	p.seekAt, p.seekIn = 0, 0
	p.aim()
	p.settleParked(t)
}
