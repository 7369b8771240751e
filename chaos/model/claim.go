package model

// start starts a round of a member, under a counter above all that it granted or recorded.
func (w *world) start(m int, k kind, who instance, base epoch, counter uint8) {
	p := &w.members[m]
	p.round = round{kind: k, id: counter, base: base}
	if k == ask {
		p.asked++
		p.round.id = p.asked
		return
	}
	if k == takeover {
		p.round.before = p.grants
	}
	p.grants, p.top = grants{counter, w.self(m), who, k}, counter
}

// pledged returns what a member has granted but for a takeover of its own that it can still give up.
func (x *explorer) pledged(w *world, m int) grants {
	p := &w.members[m]
	if r := &p.round; r.kind == takeover && (!r.granted || x.without(RecordedClaimsBind)) && p.grantTo == w.self(m) &&
		p.grant == r.id {
		return r.before
	}
	return p.grants
}

// giveUp ends a round, and the member's own grant to it.
func (x *explorer) giveUp(w *world, m int) {
	p := &w.members[m]
	p.grants, p.round = x.pledged(w, m), round{}
}

// counters calls do with each counter that a member may claim. The program takes the lowest
// above all that it heard of.
func (x *explorer) counters(w *world, m int, do func(counter uint8)) {
	p := &w.members[m]
	for c := max(p.grant, p.owner.counter, p.top) + 1; c <= x.Counters; c++ {
		do(c)
	}
}

// claimed returns the epoch that a member claims for itself.
func (w *world) claimed(m int) epoch { return epoch{w.members[m].round.claim(), w.self(m)} }

// onClaim answers a claim or a question.
func (x *explorer) onClaim(w *world, m int, q *message) {
	p := &w.members[m]
	if q.answer.owner.counter != 0 {
		x.learn(w, m, q.answer.owner)
	}
	granted := false
	if q.kind > ask {
		holds := p.role >= sealed && q.kind == takeover
		switch {
		case p.fresh && !x.without(FreshMembersDoNotVote):
		case q.id == p.grant && p.grantTo == q.from:
			granted = true
		case (q.id > p.grant || x.without(GrantsBind)) && q.id > p.owner.counter && !holds:
			granted = true
			p.grants = grants{max(p.grant, q.id), q.from, q.who, q.kind}
			if p.round.kind > ask && p.round.id < q.id {
				p.round = round{}
			}
		}
	}
	a := answer{has: true, granted: granted, fresh: p.fresh, state: p.state, vote: p.vote}
	if p.round.granted {
		a.owner = w.claimed(m)
	}
	w.send(m, q.from, message{content: answers, id: q.id, kind: q.kind, answer: a})
}

// onAnswer records an answer, and ends the round if it must end.
func (x *explorer) onAnswer(w *world, m int, q *message) {
	p := &w.members[m]
	r := &p.round
	if r.kind == q.kind && r.id == q.id && w.knows(m, q.from.member()) == q.from {
		if a := &r.answers[q.from.member()]; !a.has || !a.granted || r.granted {
			*a = q.answer
		}
	}
	x.learn(w, m, q.answer.owner)
	if r.kind > ask {
		if x.ends(w, m) {
			x.giveUp(w, m)
		}
		r.forget(w.claimed(m))
	}
	if r.kind == ask {
		r.answers[q.from.member()].vote = vote{}
	}
	if r.kind == ask && r.heard() == size-1 {
		p.fresh, *r = false, round{}
	}
}

// forget keeps of the answers to a claim only what may matter later, so that there are
// fewer states.
func (r *round) forget(claimed epoch) {
	for i := range r.answers {
		a := &r.answers[i]
		kept := answer{has: a.has, granted: a.granted, fresh: a.fresh}
		if a.owner == claimed {
			kept.owner = claimed
		}
		*a = kept
	}
}

// heard returns how many members have answered.
func (r *round) heard() (n int) {
	for _, a := range r.answers {
		if a.has {
			n++
		}
	}
	return n
}

// ends reports whether the answers end a claim.
func (x *explorer) ends(w *world, m int) bool {
	p := &w.members[m]
	r := &p.round
	for _, a := range r.answers {
		if !a.has {
			continue
		}
		supersedes := r.kind == takeover && a.grant > p.epoch.counter && a.grantFor != w.self(m) &&
			(a.grantKind == renewal || a.grantKind == transfer || a.grantKind == reopening)
		switch {
		case p.role < sealed && a.role >= sealed && !r.granted,
			r.base.before(a.owner) && a.owner.of != w.self(m) && !x.without(LaterOwnersEndClaims),
			supersedes && !x.without(RenewalsAreNotOverruled),
			!a.granted && !a.fresh && (a.grant >= r.id || a.owner.counter >= r.id):
			return true
		}
	}
	return false
}

// complete reports whether a majority has granted a claim.
func (w *world) complete(m int) bool {
	n := 1
	for _, a := range w.members[m].round.answers {
		if a.has && a.granted {
			n++
		}
	}
	return n >= more
}

// recorded reports whether a majority has recorded the epoch of a claim.
func (x *explorer) recorded(w *world, m int) bool {
	r, n := &w.members[m].round, 1
	for _, a := range r.answers {
		if a.has && a.granted && a.owner == w.claimed(m) {
			n++
		}
	}
	return n >= more || r.kind == transfer || x.without(EpochsAreRecorded)
}

// succeed ends a claim that succeeded.
func (w *world) succeed(m int) {
	p := &w.members[m]
	e, k := w.claimed(m), p.round.kind
	p.round = round{}
	switch k {
	case takeover:
		p.role, p.epoch, p.owner, p.appointment, p.fresh = owned, e, e, 0, false
		p.own = ownership{}
	case renewal, reopening:
		p.role, p.epoch, p.owner = owned, e, e
		own := &p.own
		if own.heir != 0 {
			own.retired = own.heir
		}
		own.handover, own.renew, own.heir, own.heirHas, own.heirNumber, own.number, own.nextNumber = epoch{}, false, 0, false,
			0, 0, 0
	case transfer:
		if p.own.heir != 0 && p.own.heir == p.grantFor {
			p.role, p.own.handover = sealed, epoch{e.counter, p.own.heir}
		}
	}
}
