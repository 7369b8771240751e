package replica

import "github.com/weirlimit/weir/internal/peer"

// learnFirst asks the other members what they know of a fresh partition. Until enough of
// them have answered, this node grants no claim and accepts no appointment for it.
func (p *Replica) learnFirst(t *Step) {
	if p.claiming.round != nil || !t.mayLearn() || t.Now < p.seeking.seekAt {
		return
	}
	p.startRound(t, peer.Ask, 0, peer.Epoch{})
}

// seek asks the other members about a partition that this node should own by the view,
// and neither owns nor is heir of. It backs off while the answers name a member that
// decides or is heir.
func (p *Replica) seek(t *Step) {
	if p.claiming.round != nil || p.pushing.unpushed && p.owner.Instance != 0 && t.View.Has(p.owner.Instance) {
		return
	}
	if p.seeking.seekAt != 0 && t.Now < p.seeking.seekAt {
		p.watch(t)
		return
	}
	p.startRound(t, peer.Ask, 0, peer.Epoch{})
}

// seekLater schedules the next question of the view owner, or the next takeover of an heir,
// with a doubled back-off.
func (p *Replica) seekLater(t *Step) {
	p.seeking.seekIn = min(max(2*p.seeking.seekIn, resendAfter), askSlowest)
	p.seeking.seekAt = t.Now + p.seeking.seekIn
	p.watch(t)
}

// evaluateQuestion evaluates the answers to a question so far, and decides what to do next.
func (p *Replica) evaluateQuestion(t *Step, r *claimRound) {
	if p.fresh && !p.informed(t, r) {
		p.repeatLater(t, r)
		return
	}
	p.fresh = false
	if p.role == peer.Owned {
		p.soughtCopies(t, r)
		return
	}
	v := t.View
	if p.role >= peer.Heir || v.Owner(p.id) != p.node.Self || t.State != peer.Active {
		p.claiming.round = nil
		p.seeking.seekAt = 0
		if t.State != peer.Active && p.role < peer.Heir && v.Owner(p.id) == p.node.Self {
			p.seekLater(t) // manage would ask again at once, without end where there is nobody to ask
			return
		}
		p.manage(t)
		return
	}
	holder, heir := r.holders()
	if !holder && p.role == peer.Copy && p.owner == p.epoch && p.owner == p.mine {
		// This node stopped deciding for an owner that never owned. Its heir waits for
		// it.
		p.lastResort(t, r)
		return
	}
	if holder || heir {
		// A holder hands the partition over, and an heir takes over when its owner is
		// gone. If one of them does not know of a later owner, tell it: its own owner
		// may have stopped because of that one.
		for i, w := range r.whom {
			if a := &r.answers[i]; a.has && a.Role >= peer.Heir && a.Owner.Before(p.owner) {
				p.announceKnown(t, w)
			}
		}
		p.claiming.round = nil
		p.seekLater(t)
		return
	}
	if !p.lastResortDue(t, r) {
		p.repeatLater(t, r)
		return
	}
	p.lastResort(t, r)
}

// repeatLater repeats a question to all members after a while. If all have answered and the
// answers do not suffice, it repeats after claimAgain. Otherwise it waits longer each
// time, because an answer to an earlier round is ignored. During the wait, members that
// have not answered are asked again.
func (p *Replica) repeatLater(t *Step, r *claimRound) {
	after, repeats := claimAgain, 0
	if !r.answered(t) {
		repeats = r.repeats + 1
		after = p.node.Pace.Stretched(backedOff(claimAgain, repeats))
	}
	if t.Now-r.started < after {
		return
	}
	p.claiming.round = nil
	if p.own != nil {
		return
	}
	p.startRound(t, peer.Ask, 0, peer.Epoch{})
	if p.claiming.round != nil {
		p.claiming.round.repeats = repeats
	}
}

// answered reports whether all members in the view that were asked have answered.
func (r *claimRound) answered(t *Step) bool {
	v := t.View
	for i, w := range r.whom {
		if !r.answers[i].has && v.Has(w) {
			return false
		}
	}
	return true
}

// holders reports whether any member answered that it decides or has sealed, and whether
// any answered that it is heir.
func (r *claimRound) holders() (holder, heir bool) {
	for i := range r.answers {
		if a := &r.answers[i]; a.has {
			holder = holder || a.Role >= peer.Sealed
			heir = heir || a.Role == peer.Heir
		}
	}
	return holder, heir
}

// informed reports whether enough members have answered a fresh node. For a closed
// partition that is a majority of the members that count, this node excluded, or all
// others if they are fewer. For an available partition it is every member in the view.
func (p *Replica) informed(t *Step, r *claimRound) bool {
	v := t.View
	answered, live := 0, true
	for i, w := range r.whom {
		switch {
		case !v.Has(w):
		case r.answers[i].has:
			answered++
		default:
			live = false
		}
	}
	n := p.n0(t, p.closed)
	if !p.closed {
		return live && answered+1 >= min(len(v.Members), n)
	}
	return answered >= min(n/2+1, n-1)
}

// anothers reports whether the claim is a last resort that is not this node's any more: another member does it now, or,
// where all leave, none does.
func (r *claimRound) anothers(t *Step, p *Replica) bool {
	return r.kind == peer.LastResort && (p.role < peer.Copy && t.View.Owner(p.id) != p.node.Self ||
		t.State == peer.Leaving && t.View.NoOtherActive())
}

// lastResortDue reports whether no member is left that could hold or inherit the partition,
// so that the last resort is due.
func (p *Replica) lastResortDue(t *Step, r *claimRound) bool {
	if p.closed {
		return p.lastResortDueClosed(t, r)
	}
	v := t.View
	if v.Minority() || t.State == peer.Joining {
		return false
	}
	for i, w := range r.whom {
		if !r.answers[i].has && v.Has(w) {
			return false
		}
	}
	// They are silent while others are awaited, too: so that comes last.
	return p.gone(t, r, 0, p.owner.Instance) && p.gone(t, r, 1, p.heir) && !p.awaits(t, r)
}

// gone reports whether a former owner or heir needs no more waiting for: it has answered
// in this round, or it has been out of the view and silent for GoneAfter. slot is 0 for
// the owner and 1 for the heir.
func (p *Replica) gone(t *Step, r *claimRound, slot int, i peer.Instance) bool {
	if i == 0 || i == p.node.Self {
		return true
	}
	for j, w := range r.whom {
		if w == i && r.answers[j].has {
			return true
		}
	}
	if t.View.Has(i) {
		return false
	}
	since := p.node.Peers.LeftView(i)
	if since == 0 {
		// This node never saw it in the view: the time runs from the first question.
		if p.seeking.lost[slot].owner != i {
			p.seeking.lost[slot] = lostOwner{i, t.Now}
		}
		since = p.seeking.lost[slot].since
	} else if p.seeking.lost[slot].owner == i {
		since = max(since, p.seeking.lost[slot].since)
	}
	return t.Now-since >= GoneAfter
}

// lastResortDueClosed is lastResortDue for closed partitions. It reports true if every
// member that may have been there has answered, unless one of them is fresh and a copy exists. It also
// reports true if all but the last known owner have answered, the owner is gone, none of
// the others is fresh, and a copy exists.
func (p *Replica) lastResortDueClosed(t *Step, r *claimRound) bool {
	v := t.View
	answered, fresh, copies := 1, false, p.role >= peer.Copy
	for i, w := range r.whom {
		if a := &r.answers[i]; a.has && v.Has(w) {
			answered++
			fresh = fresh || a.Fresh
			copies = copies || a.Role >= peer.Copy
		}
	}
	// Of members that end together and lose disks, one may be the only one to know another, which has the copy. A
	// member that invents names could as well withhold its answers.
	n := p.n0(t, true) + p.node.Peers.Told()
	if answered >= n {
		return !fresh || !copies
	}
	// The one that has not answered must be the owner. If the owner does not count any more,
	// it is another member, which may hold a later copy.
	owner := p.owner.Instance
	return answered >= n-1 && copies && !fresh && !p.anyFromDisk(r) &&
		owner != 0 && !v.Has(owner) && p.node.Peers.Counts(owner) &&
		p.gone(t, r, 0, owner)
}

// replaces reports whether the claim is a last resort in place of another member, which may
// still be there, and not of none or of this node.
func (r *claimRound) replaces(p *Replica) bool {
	return r.kind == peer.LastResort && r.base.Instance != 0 && r.base.Instance != p.node.Self
}

// grants returns how many members must grant a claim of a closed partition: a majority. A last
// resort in place of an owner needs all, or all but an owner that is out of the view. The
// owner may have appointed one of them since that one was asked what it holds. It answers
// that it is heir then, and once it has granted the claim it accepts no appointment of that
// owner.
func (p *Replica) grants(t *Step, r *claimRound) int {
	n, owner := p.n0(t, true), r.base.Instance
	majority := n/2 + 1
	switch {
	case !r.replaces(p):
		return majority
	case !t.View.Has(owner) && p.node.Peers.Counts(owner):
		return max(majority, n-1)
	}
	return n
}

// lastResort claims the partition with the best copy that is left: with this node's own
// copy, or by asking the member that has it to claim. If there is no copy, it claims the
// partition to start it empty.
func (p *Replica) lastResort(t *Step, r *claimRound) {
	best, at, seq := peer.Epoch{}, peer.Instance(0), uint64(0)
	if p.role >= peer.Copy {
		best, at, seq = p.epoch, p.node.Self, p.seq
	}
	for i := range r.answers {
		a := &r.answers[i]
		if !a.has || a.Role < peer.Copy {
			continue
		}
		if c := a.Epoch.Compare(best); at == 0 || c > 0 || c == 0 && a.Seq > seq {
			best, at, seq = a.Epoch, r.whom[i], a.Seq
		}
	}
	p.claiming.round = nil
	if at != 0 && at != p.node.Self {
		c := peer.Claim{Partition: p.id, Kind: peer.LastResort, For: at}
		t.sendClaim(at, c)
		p.seekLater(t)
		return
	}
	p.startRound(t, peer.LastResort, p.node.Self, p.owner)
}

// nominated claims the partition with this node's copy, because the view owner found no
// better one.
func (p *Replica) nominated(t *Step) {
	if p.breakage.givenUp || p.role != peer.Copy || p.claiming.round != nil && p.claiming.round.kind != peer.Ask ||
		p.fresh {
		return
	}
	p.claiming.round = nil
	p.startRound(t, peer.LastResort, p.node.Self, p.owner)
}
