package replica

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// claimRound is one question to all members, and their answers. With a counter it is a claim.
type claimRound struct {
	kind    peer.ClaimKind
	id      uint32
	counter uint64
	owner   peer.Instance // the member that is to own; 0 for a question
	base    peer.Epoch    // an owner with a later epoch ends the claim
	doubts  peer.Epoch    // the owner that a doubt is about; zero otherwise
	started limiter.Tick
	sentAt  limiter.Tick
	sends   int          // number of sends
	repeats int          // earlier rounds of this question that failed
	retryAt limiter.Tick // when a refused claim is repeated; 0 if it was not refused
	before  vote         // what this node had granted before this claim, and before what it repeats
	granted bool         // a majority has granted the claim, and is asked to record its epoch
	whom    []peer.Instance
	answers []answer // by index of whom
}

type answer struct {
	peer.Answer
	has bool
}

// startRound starts a round, and ends any other. It asks every member of the view and the last
// known owner, and for a question also the heir. base is the epoch above which an owner
// ends the claim.
func (p *Replica) startRound(t *Step, kind peer.ClaimKind, owner peer.Instance, base peer.Epoch) {
	p.claiming.rounds++
	r := &claimRound{kind: kind, id: p.claiming.rounds, owner: owner, base: base, before: p.pledged(), started: t.Now}
	p.claiming.round = r
	r.invite(t, p)
	if kind != peer.Ask {
		r.counter = max(p.top, p.grant, p.owner.Counter) + 1
		p.top = r.counter
		p.vote = vote{r.counter, p.node.Self, owner, kind}
	}
	r.send(t, p)
	p.watch(t)
	r.evaluate(t, p)
}

// invite adds the members to ask. Members that were asked before stay.
func (r *claimRound) invite(t *Step, p *Replica) {
	v := t.View
	for i := range v.Members {
		r.add(p, v.Members[i].Instance)
	}
	r.add(p, p.owner.Instance)
	if r.kind == peer.Ask {
		r.add(p, p.heir)
	}
}

// add adds a member to ask. It reports false if it is there already, or is this node.
func (r *claimRound) add(p *Replica, i peer.Instance) bool {
	if i == 0 || i == p.node.Self || slices.Contains(r.whom, i) {
		return false
	}
	r.whom, r.answers = append(r.whom, i), append(r.answers, answer{})
	return true
}

func (r *claimRound) send(t *Step, p *Replica) {
	r.sentAt = t.Now
	r.sends++
	for i, w := range r.whom {
		switch a := &r.answers[i]; {
		case r.granted && a.has && a.Granted:
			if a.Owner != r.epoch(p) {
				t.sendAnnounce(w, peer.Announce{Partition: p.id, Epoch: r.epoch(p)})
				r.sendTo(t, p, w)
			}
		case !a.has || r.kind != peer.Ask && a.Fresh:
			r.sendTo(t, p, w)
		}
	}
}

// epoch returns the epoch that is claimed for this node.
func (r *claimRound) epoch(p *Replica) peer.Epoch {
	return peer.Epoch{Counter: r.counter, Instance: p.node.Self}
}

func (r *claimRound) sendTo(t *Step, p *Replica, to peer.Instance) {
	t.sendClaim(to, peer.Claim{Partition: p.id, Kind: r.kind, Round: r.id, Counter: r.counter, For: r.owner})
}

// lacks reports whether a member was asked and has not answered.
func (r *claimRound) lacks(i peer.Instance) bool {
	j := slices.Index(r.whom, i)
	return j >= 0 && !r.answers[j].has
}

func (r *claimRound) viewChanged(t *Step, p *Replica) {
	n := len(r.whom)
	r.invite(t, p)
	if r.anothers(t, p) {
		p.claiming.round = nil
		return
	}
	for _, w := range r.whom[n:] {
		r.sendTo(t, p, w)
	}
	r.evaluate(t, p)
}

// restart restarts the wait for answers, because this node was paused and may have
// missed them.
func (r *claimRound) restart(t *Step, p *Replica) {
	r.started = t.Now
	if t.Now-r.sentAt >= p.node.Pace.Stretched(backedOff(claimAgain, r.sends-1)) {
		r.send(t, p)
	}
}

func (r *claimRound) tick(t *Step, p *Replica) {
	switch {
	case r.retryAt != 0:
		if t.Now >= r.retryAt {
			p.startRound(t, r.kind, r.owner, r.base)
		}
		return
	case t.Now-r.sentAt >= p.node.Pace.Stretched(backedOff(resendAfter, r.sends-1)):
		r.send(t, p)
	}
	r.evaluate(t, p)
}

// backedOff returns span, doubled for each earlier time, at most eight times span, so
// that a node that is overloaded does not get more load.
func backedOff(span limiter.Tick, times int) limiter.Tick { return span << min(max(times, 0), 3) }

// onClaim answers a claim or a question. A claim is granted if its counter is above
// every owner and every grant known here, or if it repeats the last grant. It is not
// granted if this node is fresh, or decides and would be fenced.
func (p *Replica) onClaim(t *Step, from peer.Instance, c peer.Claim) {
	granted := false
	if c.Counter > 0 {
		switch {
		case p.fresh:
		case c.Counter == p.grant && p.grantTo == from:
			granted = true
		case c.Counter > p.grant && c.Counter > p.owner.Counter && !p.holdsAgainst(c):
			granted = true
			p.vote = vote{c.Counter, from, c.For, c.Kind}
			if r := p.claiming.round; r != nil && r.kind != peer.Ask && r.counter < c.Counter {
				// This node's own lower claim would be refused elsewhere.
				p.refused(t)
			}
		}
	}
	owner := p.owner
	if r := p.claiming.round; r != nil && r.granted && r.retryAt == 0 {
		owner = r.epoch(p) // others may have recorded it, and doubt it otherwise
	}
	a := peer.Answer{
		Partition: p.id, Round: c.Round, Granted: granted, Fresh: p.fresh,
		Role: p.role, Epoch: p.epoch, Seq: p.seq, FromDisk: p.FromDisk(), Ended: p.node.Ended, Owner: owner, Heir: p.heir,
		Top: max(p.top, p.grant), Grant: p.grant, GrantKind: p.grantKind, GrantFor: p.grantFor,
	}
	p.top = max(p.top, c.Counter)
	t.sendAnswer(from, a)
	if c.Kind == peer.LastResort && c.For == p.node.Self && c.Counter == 0 {
		p.nominated(t)
	}
	if c.Kind == peer.Takeover && c.For == p.node.Self && c.Counter == 0 {
		p.urged(t, from)
	}
}

// holdsAgainst reports whether this node decides, or has sealed, and the claim would
// overtake it.
func (p *held) holdsAgainst(c peer.Claim) bool {
	return p.role >= peer.Sealed && (c.Kind == peer.Takeover || c.Kind == peer.LastResort)
}

func (p *Replica) onAnswer(t *Step, from peer.Instance, a peer.Answer) {
	r := p.claiming.round
	p.top = max(p.top, a.Top)
	if r != nil && a.Round == r.id {
		for i, w := range r.whom {
			if w == from && (!r.answers[i].has || !r.answers[i].Granted || r.granted) {
				r.answers[i] = answer{a, true}
			}
		}
	}
	p.learn(t, a.Owner, a.Heir)
	if p.claiming.round == r && r != nil && a.Round == r.id {
		r.evaluate(t, p)
	}
}

// evaluate ends the round as soon as the answers allow.
func (r *claimRound) evaluate(t *Step, p *Replica) {
	if p.claiming.round != r || r.retryAt != 0 {
		return
	}
	if r.doubts.Instance != 0 {
		p.doubted(t, r)
		return
	}
	if r.kind == peer.Ask {
		p.evaluateQuestion(t, r)
		return
	}
	if r.kind == peer.Transfer && !r.hands(t, p) {
		p.abandon(t, 0)
		return
	}
	holder := p.role >= peer.Sealed
	for i := range r.answers {
		a := &r.answers[i]
		if !a.has {
			continue
		}
		switch {
		case !holder && a.Role >= peer.Sealed && !r.granted: // later it is too late: some have recorded the new epoch
			p.abandon(t, r.whom[i])
			return
		case r.kind == peer.LastResort && p.behind(a):
			p.abandon(t, 0)
			return
		case p.closed && r.replaces(p) && a.Role == peer.Heir && !r.granted:
			p.abandon(t, 0)
			return
		case p.supersedes(r, a):
			p.abandon(t, 0)
			return
		case !a.Granted && !a.Fresh && (a.Grant >= r.counter || a.Owner.Counter >= r.counter):
			p.refused(t)
			return
		}
	}
	if r.complete(t, p) && r.recorded(t, p) {
		p.claimed(t, r)
	}
}

// behind reports whether an answer names a later state than this node holds. The member
// may have got it after it was asked what it holds, or was not asked.
func (p *held) behind(a *answer) bool {
	if a.Role < peer.Copy {
		return false
	}
	c := p.epoch.Compare(a.Epoch)
	return p.role < peer.Copy || c < 0 || c == 0 && p.seq < a.Seq
}

// supersedes reports whether an answer names a grant that a takeover of a closed
// partition must not overrule: the owner was renewing its epoch, or handing over,
// without this heir.
func (p *held) supersedes(r *claimRound, a *answer) bool {
	if !p.closed || r.kind != peer.Takeover || a.Grant <= p.epoch.Counter || a.GrantFor == p.node.Self {
		return false
	}
	return a.GrantKind == peer.Renew || a.GrantKind == peer.Transfer || a.GrantKind == peer.Reopen
}

// complete reports whether a claim may succeed. A closed partition needs grants of a
// majority of the members that count; a takeover or last resort of it also waits up to
// claimWithin for the last owner's answer. An available partition needs answers of all
// members in the view and of the last owner, or claimWithin. A transfer also needs the grant
// of the member that is to own.
func (r *claimRound) complete(t *Step, p *Replica) bool {
	v := t.View
	// The claim also probes the last owner, which gets claimWithin to answer.
	waited := t.Now-r.started >= claimWithin
	if p.closed {
		granted := 1
		for i := range r.answers {
			if r.answers[i].has && r.answers[i].Granted && v.Has(r.whom[i]) {
				granted++
			}
		}
		return granted >= p.grants(t, r) && r.receives() && (waited || !r.takes() || !r.lacks(p.owner.Instance))
	}
	if waited {
		return r.receives()
	}
	for i, w := range r.whom {
		if !r.answers[i].has && (v.Has(w) || w == p.owner.Instance) && !p.gaveUp(w) {
			return false
		}
	}
	return r.receives()
}

// receives reports whether the member that is to own has granted the claim, unless it is
// this node's own. So no claim of its own has the counter: to this node, the epoch of such a
// claim would mean that the member has taken the handover.
func (r *claimRound) receives() bool {
	if r.kind != peer.Transfer {
		return true
	}
	i := slices.Index(r.whom, r.owner)
	return i >= 0 && r.answers[i].has && r.answers[i].Granted
}

// recorded reports whether this node may act under the epoch that it was granted. For a
// closed partition a majority must have recorded it: it is announced to those that granted
// it, and they are asked once more. A member that has granted another claim meanwhile,
// perhaps on the other side of a split, refuses then; and one that has recorded this epoch
// names it in its answer to any later claim, which ends unless it builds on this epoch. So
// of two owners one knows of the other before it decides.
//
// A transfer needs no record: the receiver's first heir is the giver, which acknowledges
// nothing once it has taken the partition back.
func (r *claimRound) recorded(t *Step, p *Replica) bool {
	if !p.closed || r.kind == peer.Transfer {
		return true
	}
	n := 1
	for i := range r.answers {
		if a := &r.answers[i]; a.has && a.Granted && a.Owner == r.epoch(p) && t.View.Has(r.whom[i]) {
			n++
		}
	}
	if 2*n > p.n0(t, true) {
		return true
	}
	if !r.granted {
		r.granted, r.sends = true, 0
		r.send(t, p)
	}
	return false
}

// gaveUp reports whether the owner has just suspended a member and is not connected to
// it. Its answer is not waited for again.
func (p *Replica) gaveUp(w peer.Instance) bool {
	return p.own != nil && p.own.suspended == w && !p.node.Peers.Reachable(w)
}

// takes reports whether the claim is for an ownership that another member has or had.
func (r *claimRound) takes() bool { return r.kind == peer.Takeover || r.kind == peer.LastResort }

// refused schedules the claim again, under a higher counter, after half of claimPause
// and a random time of up to claimPause * 2^tries.
func (p *Replica) refused(t *Step) {
	// Competing claims could collide for ever, so the pause grows.
	p.claiming.tries = min(p.claiming.tries+1, 5)
	p.claiming.round.retryAt = t.Now + claimPause/2 + p.node.Random(claimPause<<p.claiming.tries)
	p.watch(t)
}

// abandon ends a claim that is not needed: the owner is alive, or another member owns by
// now. alive is the member that decides, 0 if unknown.
func (p *Replica) abandon(t *Step, alive peer.Instance) {
	r := p.claiming.round
	p.giveUp()
	switch r.kind {
	case peer.Takeover:
		p.claiming.quiet = t.Now + resendAfter
		p.answerParked(t, alive)
		p.seekLater(t)
	case peer.LastResort:
		p.seekLater(t)
	}
	p.manage(t)
}

// pledged returns the highest claim that this node granted, but for a takeover of its own that
// it can still give up, as no member has been asked to record its epoch.
func (p *Replica) pledged() vote {
	if r := p.claiming.round; r != nil && r.kind == peer.Takeover && !r.granted && p.grantTo == p.node.Self &&
		p.grant == r.counter {
		return r.before
	}
	return p.vote
}

// giveUp ends the round, and this node's own grant to it. That grant counted for this claim alone,
// which never succeeds now: top keeps its counter from being used again.
func (p *Replica) giveUp() { p.vote, p.claiming.round = p.pledged(), nil }

// claimed ends a claim that succeeded.
func (p *Replica) claimed(t *Step, r *claimRound) {
	p.claiming.round, p.claiming.tries = nil, 0
	e := r.epoch(p)
	switch r.kind {
	case peer.Takeover:
		t.event(Takeover)
		p.become(t, e, true)
	case peer.LastResort:
		empty := p.role < peer.Copy
		switch {
		case empty:
			t.event(Emptied)
		case r.lossless(t, p):
			t.event(Renewal)
		default:
			t.event(Recovered)
		}
		p.become(t, e, false)
		p.own.soleCopy = empty && p.own.next == nil
	case peer.Renew:
		t.event(Renewal)
		p.renewed(t, e)
	case peer.Transfer:
		p.seal(t, peer.Epoch{Counter: r.counter, Instance: r.owner})
	case peer.Reopen:
		t.event(Reopened)
		p.reopened(t, e)
	}
}

// TakesOver starts a takeover if none is under way, and reports whether one is, or has
// just ended. The shell calls it for a request of another member, which cannot reach the
// owner; this node must be heir.
func (p *Replica) TakesOver(t *Step) bool {
	if p.claiming.round != nil && p.claiming.round.kind == peer.Takeover {
		return true
	}
	if p.claiming.round != nil || p.fresh {
		return false
	}
	if t.Now < p.claiming.quiet {
		return false
	}
	p.takeOver(t)
	return p.role == peer.Owned || p.claiming.round != nil
}

// takeOver claims the partition, as heir of an owner that cannot be reached.
func (p *Replica) takeOver(t *Step) {
	p.startRound(t, peer.Takeover, p.node.Self, p.epoch)
}

// missOwner takes over, as heir, from an owner that is out of the view. If the owner or
// another member ended the last takeover, missOwner starts the next one later, with a
// doubled back-off: an owner that is alive may stop without another change of the view.
func (p *Replica) missOwner(t *Step) {
	switch {
	case t.View.Has(p.owner.Instance):
		p.seeking.seekAt, p.seeking.seekIn = 0, 0
	case t.Now >= p.seeking.seekAt:
		p.takeOver(t)
	}
}
