package model

// learn records an owner.
func (x *explorer) learn(w *world, m int, e epoch) {
	p := &w.members[m]
	if !p.owner.before(e) || e.of == w.self(m) {
		return
	}
	p.owner = e
	if p.role == heir && p.epoch.before(e) {
		p.role, p.appointment = copied, 0
	}
	if p.role >= sealed {
		w.fenced(m)
	}
}

// fenced ends an ownership.
func (w *world) fenced(m int) {
	p := &w.members[m]
	own := p.own
	p.own, p.round = ownership{}, round{}
	p.role, p.appointment = copied, 0
	if own.handover.counter == 0 || own.handover != p.owner {
		if own.withheld {
			p.used = false
		}
		return
	}
	// The receiver has confirmed.
	if own.withheld {
		w.answered++
	}
	if p.revoked != p.owner || p.revokedNumber < 1 {
		p.role, p.appointment, p.epoch = heir, 1, p.owner // the receiver's first
	}
}

// onBatch takes a state, and perhaps an appointment or the ownership.
func (x *explorer) onBatch(w *world, m int, q *message) {
	p := &w.members[m]
	e, used := q.answer.epoch, q.answer.used
	if e.before(p.owner) && !x.without(EarlierOwnersAreFenced) {
		w.ack(m, q)
		return
	}
	x.learn(w, m, e)
	if p.role >= sealed {
		return
	}
	if p.epoch != e || p.role == nothing {
		p.role, p.appointment, p.epoch, p.used = copied, 0, e, used
	}
	p.used = p.used || used
	switch {
	case q.next.counter != 0:
		x.receive(w, m, q)
		return
	case q.number == 0 || p.role == heir && p.appointment == q.number:
	case p.fresh, p.grant > e.counter && !x.without(GrantsBindHeirs), p.revoked == e && q.number <= p.revokedNumber,
		q.needs && !p.used, q.number < p.appointment:
	default:
		p.role, p.appointment = heir, q.number
	}
	w.ack(m, q)
}

// receive takes the ownership over from the giver of a handover, or does not: the giver
// takes it back when it pleases.
func (x *explorer) receive(w *world, m int, q *message) {
	p := &w.members[m]
	if q.next.of != w.self(m) || p.fresh || x.pledged(w, m).grant > q.next.counter || !p.owner.before(q.next) ||
		p.role != heir || p.used != q.answer.used {
		return
	}
	x.giveUp(w, m)
	p.role, p.epoch, p.owner, p.appointment = owned, q.next, q.next, 0
	p.own = ownership{heir: q.from, heirNumber: 1, number: 1, heirHas: p.used}
}

// ack answers a batch.
func (w *world) ack(m int, q *message) {
	p := &w.members[m]
	a := message{content: acks}
	a.answer.epoch, a.answer.used, a.answer.owner = q.answer.epoch, p.used, p.owner
	if p.role == heir && p.epoch == q.answer.epoch {
		a.number = p.appointment
	}
	w.send(m, q.from, a)
}

// onAck records how far a copy has come.
func (x *explorer) onAck(w *world, m int, q *message) {
	p := &w.members[m]
	if p.epoch.before(q.answer.owner) {
		x.learn(w, m, q.answer.owner)
	}
	own := &p.own
	if p.role != owned || q.answer.epoch != p.epoch || p.epoch.before(q.answer.owner) {
		return
	}
	switch q.from {
	case own.next:
		own.nextWhole = own.nextWhole || q.answer.used == p.used
		if own.nextNumber != 0 && q.number == own.nextNumber {
			own.heir, own.heirNumber, own.heirHas = own.next, own.nextNumber, q.answer.used
			own.next, own.nextNumber, own.nextWhole = 0, 0, false
			w.release(m)
		}
	case own.heir:
		own.heirHas = own.heirHas || q.answer.used
		if q.number == own.heirNumber || x.without(AppointmentsCount) {
			w.release(m)
		}
	}
}

// release answers the withheld unit if the heir has it.
func (w *world) release(m int) {
	if own := &w.members[m].own; own.withheld && own.heirHas {
		own.withheld = false
		w.answered++
	}
}

// onRevoke ends an appointment, or has a copy dropped.
func (x *explorer) onRevoke(w *world, m int, q *message) {
	p := &w.members[m]
	e := q.answer.owner
	x.learn(w, m, e)
	if e.before(p.owner) {
		return
	}
	if p.revoked != e || p.revokedNumber < q.number {
		p.revoked, p.revokedNumber = e, q.number
	}
	if p.role == heir && p.epoch == e && p.appointment <= q.number {
		p.role, p.appointment = copied, 0
		if p.round.kind == takeover {
			x.giveUp(w, m)
		}
	}
	if q.drop && p.role == copied && !e.before(p.epoch) {
		p.state = state{}
	}
	if q.number != 0 {
		back := message{content: revokes, number: q.number, back: true}
		back.answer.owner = e
		w.send(m, q.from, back)
	}
}

// onRevoked records that the heir is none any more.
func (w *world) onRevoked(m int, q *message) {
	p := &w.members[m]
	if own := &p.own; p.role == owned && q.answer.owner == p.epoch && own.heir == q.from && q.number >= own.heirNumber {
		own.retired, own.heir, own.heirHas, own.heirNumber = own.heir, 0, false, 0
	}
}

// onAnnounce records an owner, and drops a copy that is not needed.
func (x *explorer) onAnnounce(w *world, m int, q *message) {
	p := &w.members[m]
	e := q.answer.owner
	if e.before(p.owner) {
		return
	}
	x.learn(w, m, e)
	if p.role == copied && q.who != 0 && q.who != w.self(m) && p.epoch.before(e) {
		p.state = state{}
	}
}
