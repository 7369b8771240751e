package cluster

import "github.com/weirlimit/weir/internal/peer"

// learnFirst asks others what there is to know, before a fresh node has a say.
func (p *part) learnFirst(t *turn) {
	if p.round != nil || !p.c.mayLearn() || t.now < p.seekAt {
		return
	}
	p.ask(t, peer.Ask, 0, peer.Epoch{})
}

// seek is what the view owner does that holds nothing and knows of nobody who
// does: it asks, with a back-off while somebody answers who holds.
func (p *part) seek(t *turn) {
	if p.round != nil || p.unpushed && p.owner.Instance != 0 && p.c.view.Load().has(p.owner.Instance) {
		return
	}
	if p.seekAt != 0 && t.now < p.seekAt {
		p.watch(t)
		return
	}
	p.ask(t, peer.Ask, 0, peer.Epoch{})
}

// seekLater has the view owner ask again after a while.
func (p *part) seekLater(t *turn) {
	p.seekIn = min(max(2*p.seekIn, resendAfter), askSlowest)
	p.seekAt = t.now + p.seekIn
	p.watch(t)
}

// asked goes on with what a question brought up so far.
func (p *part) asked(t *turn, r *round) {
	if p.fresh && !p.informed(r) {
		p.again(t, r)
		return
	}
	p.fresh = false
	if p.role == peer.Owned {
		p.alone(t, r)
		return
	}
	v := p.c.view.Load()
	if p.role >= peer.Heir || v.owner(p.id) != p.c.self || p.c.state() == peer.Joining {
		p.round = nil
		p.seekAt = 0
		p.manage(t)
		return
	}
	holder, heir := r.holders()
	if !holder && p.role == peer.Copy && p.owner == p.epoch && p.owner == p.mine {
		// It stopped deciding for somebody who never owned. Its heir waits for it.
		p.lastResort(t, r)
		return
	}
	if holder || heir {
		// The holder pushes; an heir takes over when its owner is gone. One that does not
		// know of a later owner must, for its own may have stopped for that.
		for i, w := range r.whom {
			if a := &r.answers[i]; a.has && a.Role >= peer.Heir && a.Owner.Before(p.owner) {
				p.tell(t, w)
			}
		}
		p.round = nil
		p.seekLater(t)
		return
	}
	if !p.hopeless(t, r) {
		p.again(t, r)
		return
	}
	p.lastResort(t, r)
}

// again repeats a question to all after a while: soon where all have answered, and
// not what it takes, else later each time, for an answer to the question before does
// not count. Those who have not answered are asked again meanwhile.
func (p *part) again(t *turn, r *round) {
	after, repeats := claimAgain, 0
	if !r.answered(p) {
		repeats = r.repeats + 1
		after = p.c.eased(backedOff(claimAgain, repeats))
	}
	if t.now-r.started < after {
		return
	}
	p.round = nil
	if p.own != nil {
		return
	}
	p.ask(t, peer.Ask, 0, peer.Epoch{})
	if p.round != nil {
		p.round.repeats = repeats
	}
}

// answered tells whether all have answered that are in view.
func (r *round) answered(p *part) bool {
	v := p.c.view.Load()
	for i, w := range r.whom {
		if !r.answers[i].has && v.has(w) {
			return false
		}
	}
	return true
}

// holders tells whether anybody answered that it decides, or is heir.
func (r *round) holders() (holder, heir bool) {
	for i := range r.answers {
		if a := &r.answers[i]; a.has {
			holder = holder || a.Role >= peer.Sealed
			heir = heir || a.Role == peer.Heir
		}
	}
	return holder, heir
}

// informed tells whether enough members have told a fresh node what they know:
// a majority, itself not counted, or all others if they are fewer; for an
// available partition every live one.
func (p *part) informed(r *round) bool {
	v := p.c.view.Load()
	told, live := 0, true
	for i, w := range r.whom {
		switch {
		case !v.has(w):
		case r.answers[i].has:
			told++
		default:
			live = false
		}
	}
	n := p.c.n0(v, p.closed)
	if !p.closed {
		return live && told+1 >= min(len(v.Members), n)
	}
	return told >= min(n/2+1, n-1)
}

// hopeless tells whether nobody who could hold or inherit the partition is left.
func (p *part) hopeless(t *turn, r *round) bool {
	if p.closed {
		return p.hopelessClosed(t, r)
	}
	v := p.c.view.Load()
	if v.minority() || p.c.state() == peer.Joining {
		return false
	}
	for i, w := range r.whom {
		if !r.answers[i].has && v.has(w) {
			return false
		}
	}
	return p.gone(t, r, 0, p.owner.Instance) && p.gone(t, r, 1, p.heir)
}

// gone tells whether a former owner or heir has said that it is none, or was out
// of view and silent for long.
func (p *part) gone(t *turn, r *round, slot int, i peer.Instance) bool {
	if i == 0 || i == p.c.self {
		return true
	}
	for j, w := range r.whom {
		if w == i && r.answers[j].has {
			return true
		}
	}
	if p.c.view.Load().has(i) {
		return false
	}
	since := p.c.outOfView(i)
	if since == 0 {
		// It was never seen: the time runs from when it was first asked.
		if p.lost[slot].owner != i {
			p.lost[slot] = lostOwner{i, t.now}
		}
		since = p.lost[slot].since
	} else if p.lost[slot].owner == i {
		since = max(since, p.lost[slot].since)
	}
	return t.now-since >= goneAfter
}

// hopelessClosed is the rule for closed partitions: every member that counts has
// answered, or all but the last known owner, which is silent, and none of them
// fresh; and then only if there is a copy.
func (p *part) hopelessClosed(t *turn, r *round) bool {
	v := p.c.view.Load()
	told, fresh, copies := 1, false, p.role >= peer.Copy
	for i, w := range r.whom {
		if a := &r.answers[i]; a.has && v.has(w) {
			told++
			fresh = fresh || a.Fresh
			copies = copies || a.Role >= peer.Copy
		}
	}
	n := p.c.n0(v, true)
	if told >= n {
		return !fresh || !copies
	}
	return told >= n-1 && copies && !fresh && p.owner.Instance != 0 && p.gone(t, r, 0, p.owner.Instance) && !v.has(p.owner.Instance)
}

// lastResort claims with the best copy that is left: its own, or by asking
// whoever has it; or begins with nothing.
func (p *part) lastResort(t *turn, r *round) {
	best, at, seq := peer.Epoch{}, peer.Instance(0), uint64(0)
	if p.role >= peer.Copy {
		best, at, seq = p.epoch, p.c.self, p.seq
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
	p.round = nil
	if at != 0 && at != p.c.self {
		c := peer.Claim{Partition: p.id, Kind: peer.LastResort, For: at}
		p.c.send(t, at, 40, true, func(_ *link, f *peer.Frame) { f.Claims = append(f.Claims, c) })
		p.seekLater(t)
		return
	}
	p.ask(t, peer.LastResort, p.c.self, p.owner)
}

// nominated claims with the copy that is held here: the view owner found none
// that is better.
func (p *part) nominated(t *turn) {
	if p.givenUp || p.role != peer.Copy || p.round != nil && p.round.kind != peer.Ask || p.fresh {
		return
	}
	p.round = nil
	p.ask(t, peer.LastResort, p.c.self, p.owner)
}
