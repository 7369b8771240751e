package replica

import (
	"slices"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// manageHeir works towards the heir that the view calls for. If another member should
// own the partition, that member becomes heir, as the first step of a handoff. Otherwise
// it is the ring's successor.
func (p *Replica) manageHeir(t *Step) {
	own, v := p.own, t.View
	if p.claiming.round != nil || own.handover != nil {
		return
	}
	want := own.wanted(t)
	h := own.heir
	if own.next != nil && (own.next.to != want || !v.Has(own.next.to)) {
		own.stopPreparing()
	}
	switch {
	case own.renew:
		p.startRound(t, peer.Renew, p.node.Self, p.epoch)
	case h != nil && h.to == want && own.revoking:
		own.revoke(t, false) // it has heard so perhaps: only its word says what it is, and it is appointed anew
	case h != nil && h.to == want:
		own.stopPreparing()
		own.retired.dismiss(t, own)
		p.passOn(t, v)
	case want != 0:
		p.prepare(t, want)
	case h == nil:
		p.seekCopies(t, v)
	case !v.Has(h.to):
		// Nobody else is left, and the old heir could still take over.
		own.renew = true
		p.manageHeir(t)
	case v.Member(h.to).State == peer.Leaving && v.Owner(p.id) == p.node.Self && v.Active(p.node.Self) && v.Joining() == 0:
		// No joining member could take its place. If this node leaves, too, the copy stays: either may go,
		// and the one that goes last hands over to a member that starts meanwhile.
		own.revoke(t, true)
	}
}

// noStandby reports whether a closed partition has no heir and none in preparation, while
// its owner does not know that no other member has a copy.
func (o *succession) noStandby() bool {
	return o.closed && !o.soleCopy && o.heir == nil && o.next == nil && !o.renew
}

// seekCopies asks the other members of a closed partition whether any of them has a
// copy. All members that count must be in the view or in reach. If none has a copy, no
// member can take over, so nothing need be withheld until one gets a copy.
func (p *Replica) seekCopies(t *Step, v *view.View) {
	if !p.own.noStandby() || t.Now < p.own.seekCopiesAt {
		return
	}
	near, all := p.node.Peers.Nearby(v)
	if !all {
		return
	}
	p.startRound(t, peer.Ask, 0, peer.Epoch{})
	if r := p.claiming.round; r != nil {
		for _, i := range near {
			if n := len(r.whom); r.add(p, i) {
				r.sendTo(t, p, r.whom[n])
			}
		}
	}
}

// soughtCopies evaluates the answers to seekCopies. It tells leaving members to drop their
// copies, unless this node leaves, too, and no member joins: then theirs may be the last one.
func (p *Replica) soughtCopies(t *Step, r *claimRound) {
	v := t.View
	near, all := p.node.Peers.Nearby(v)
	all = all && p.own.noStandby()
	for _, i := range near {
		all = all && slices.Contains(r.whom, i)
	}
	for i, w := range r.whom {
		a, m := &r.answers[i], v.Member(w)
		switch {
		case m == nil && !slices.Contains(near, w):
		case !a.has:
			p.repeatLater(t, r)
			return
		case a.Role != peer.Nothing:
			all = false
			stays := v.Active(p.node.Self) || v.Joining() > 0
			if m != nil && m.State == peer.Leaving && stays && a.Epoch.Compare(p.epoch) <= 0 && p.own.noStandby() {
				q := peer.Revoke{Partition: p.id, Epoch: p.epoch, Drop: true}
				t.sendRevoke(w, q, true)
			}
		}
	}
	p.claiming.round = nil
	p.own.seekCopiesAt = t.Now + resendAfter
	if all {
		p.own.soleCopy = true
		p.own.release(t)
	}
}

// wanted returns the member that should be heir, 0 if there is none.
func (o *Ownership) wanted(t *Step) peer.Instance {
	v := t.View
	want := v.Owner(o.id)
	if want == o.node.Self || want == o.from.giver && t.Now-o.from.since < backAfter {
		want = v.Successor(o.id)
	}
	if want == o.suspended && t.Now < o.suspendedUntil {
		want = o.other(v, want, int(o.id))
	}
	if want != o.node.Self && v.Active(want) {
		return want
	}
	if m := v.Member(o.from.giver); m != nil && m.State == peer.Joining {
		return o.from.giver // gossip is late: who handed over was active
	}
	return 0
}

// other returns an active member that is neither this node nor the member not. If there
// is none, it returns not. The search starts at the index from.
func (p *identity) other(v *view.View, not peer.Instance, from int) peer.Instance {
	n := len(v.Members)
	for i := range n {
		m := &v.Members[(from+i)%n]
		if m.State == peer.Active && m.Instance != not && m.Instance != p.node.Self {
			return m.Instance
		}
	}
	return not
}

// suspend gives up an heir, or the next heir, that has not answered for so long that
// replies would be late: it is not appointed again for suspendFor. After an heir's
// suspension the owner claims a new epoch. So another member takes its place before the
// view shows what became of it.
func (o *Ownership) suspend(t *Step) {
	if o.handover != nil || o.renew || o.suspended != 0 {
		return
	}
	for _, g := range []*target{o.heir, o.next} {
		if g == nil || g == o.heir && o.waitSince == 0 {
			continue
		}
		after := o.node.Peers.Patience(g.to, suspendAfter)
		if !o.node.Peers.Reachable(g.to) {
			after = suspendBroken // and no relay has brought an answer since
		}
		if g.silent.since == 0 || t.Now-g.silent.since < after || o.other(t.View, g.to, 0) == g.to {
			continue
		}
		o.suspended, o.suspendedUntil = g.to, t.Now+suspendFor
		o.renew = o.renew || g == o.heir
		return
	}
}

// stopPreparing stops preparing the next heir.
func (o *Ownership) stopPreparing() {
	if g := o.next; g != nil {
		o.next = nil
		g.uncount(o.node.Peers)
		if g.ping != 0 { // also if all is to be sent again: what was sent before may arrive
			o.retired.add(g.to)
		}
		if g.appointment != 0 {
			// It may have accepted. Only its own answer, or a new epoch, ends that
			// appointment.
			o.renew = true
		}
		o.forgetCopied()
	}
}

// end returns what counts in bounds of the whole node. Otherwise snapshots under way, for
// example, would reach their bound one day, and no member could be sent one.
func (o *Ownership) end() {
	o.heir.uncount(o.node.Peers)
	o.next.uncount(o.node.Peers)
	o.count.Add(-int64(len(o.inDoubt) + len(o.late)))
}

// disown ends this node's ownership.
func (p *Replica) disown() {
	if own := p.own; own != nil {
		p.saving.ended(&own.changes)
		own.end()
		for i := range own.Waits.waiters {
			p.waiting = append(p.waiting, own.Waits.waiters[i].Request)
		}
	}
	p.own = nil
}

// uncount makes room for another snapshot to the target, if its was counted.
func (g *target) uncount(peers Peers) {
	if g != nil && g.counted {
		g.counted = false
		peers.EndSnapshot(g.to, g.counters)
	}
}

// prepare makes a member heir in three steps: it gets a copy, the old heir is revoked,
// and the new one is appointed.
func (p *Replica) prepare(t *Step, want peer.Instance) {
	own := p.own
	if own.next == nil {
		own.retired.recall(want)
		own.next = &target{to: want}
		p.watch(t)
		p.Flush(t)
		return
	}
	g := own.next
	if !g.whole || g.appointment != 0 {
		return
	}
	switch {
	case own.heir == nil:
		own.appoint(t)
	case !t.View.Has(own.heir.to):
		// Without its word the owner renews.
		own.renew = true
		p.manageHeir(t)
	case g.unfit:
		// The old heir stays until this one can take its place.
	default:
		own.revoke(t, false)
	}
}

// appoint appoints the next heir. The appointment requires every change answered so far.
func (o *Ownership) appoint(t *Step) {
	o.appointing++
	o.cut(o.held)
	g := o.next
	g.appointment, g.appointed = o.appointing, o.held.seq
	g.sentAt = 0
	t.Watch = true
	o.flush(t)
}

// revoke asks the heir to give up its appointment, and to drop its copy if drop is set.
func (o *Ownership) revoke(t *Step, drop bool) {
	if o.revoking && t.Now-o.revokeAt < o.node.Peers.Patience(o.heir.to, resendAfter) {
		return
	}
	o.revoking, o.revokeAt = true, t.Now
	r := peer.Revoke{Partition: o.id, Epoch: o.held.epoch, Appointment: o.heir.appointment, Drop: drop}
	t.sendRevoke(o.heir.to, r, true)
	t.Watch = true
}

// onAck processes an acknowledgement of a member that has, or is getting, a copy.
func (p *Replica) onAck(t *Step, from peer.Instance, a *peer.Ack) {
	p.top = max(p.top, a.Top)
	if a.Status == peer.Merged {
		p.pushed(t, from, a)
		return
	}
	if p.epoch.Before(a.Owner) && a.Owner.Instance != p.node.Self {
		p.learn(t, a.Owner, 0)
	}
	if p.own != nil && a.Owner.Instance == p.node.Self && p.epoch.Before(a.Owner) && p.own.handover == nil {
		// The sender believes that this node owned under a later epoch than it ever did,
		// and accepts nothing lower.
		p.top = max(p.top, a.Owner.Counter)
		p.own.renew = true
		p.watch(t)
	}
	if p.own == nil || a.Epoch != p.epoch {
		if p.own != nil {
			p.own.answered(from, a)
		}
		return
	}
	if h := p.own.handover; h != nil && h.next.Instance == from && p.role == peer.Sealed {
		p.handoverRefused(t, a)
		return
	}
	own := p.own
	switch {
	case a.Status == peer.Revoked:
		if h := own.heir; h != nil && h.to == from && a.Appointment >= h.appointment {
			own.revocationAcked(t)
		}
	case own.next != nil && own.next.to == from:
		own.ackNext(t, own.next, a)
	case own.heir != nil && own.heir.to == from:
		own.ackHeir(t, own.heir, a)
	case a.Status != peer.Gap:
		// It has a copy. If it was told to drop it, a snapshot came after that: all else overtakes
		// snapshots.
		own.retired.again(from)
		own.retired.dismiss(t, own)
	}
	switch {
	case p.own == nil:
	case !p.settled(t):
		p.manage(t)
		t.Flush = true
	case p.own.copiesDue(t.Now, p.seq) == t.Now:
		t.Flush = true
	}
}

// answered records that a target answered, whatever the answer.
func (o *succession) answered(from peer.Instance, a *peer.Ack) {
	for _, g := range []*target{o.heir, o.next} {
		if g != nil && g.to == from {
			g.heard(a.Ping)
		}
	}
}

func (g *target) heard(ping uint32) {
	if g.silent.since != 0 && int32(ping-g.silent.ping) >= 0 {
		g.silent.since, g.tries = 0, 0
	}
	if g.waitSilent.since != 0 && int32(ping-g.waitSilent.ping) >= 0 {
		g.waitSilent.since = 0
	}
}

// revocationAcked continues after the heir has confirmed that it is heir no more.
func (o *Ownership) revocationAcked(t *Step) {
	old := o.heir
	o.heir.uncount(o.node.Peers)
	o.heir, o.revoking = nil, false
	o.retired.add(old.to)
	o.forgetCopied()
	o.release(t)
}

// reached records how far a copy has come. It reports false if the copy lacks something
// and must be sent more first. A member that has what the last message builds on, and did not take it, has no room: it
// is sent the same after a while, as one that does not answer is.
func (g *target) reached(a *peer.Ack, held *state, now limiter.Tick, peers Peers) bool {
	tries := g.tries
	g.heard(a.Ping)
	if a.Status == peer.Gap {
		if full := a.Ping == g.ping && a.Seq >= g.builtOn && a.Seq != 0; full {
			g.sentAt, g.tries = now, tries
		} else {
			g.sentAt = 0
		}
		g.sent, g.acked = a.Seq, a.Seq
		if a.Seq == 0 || a.Seq > held.seq {
			g.begun, g.whole, g.sent, g.acked = false, false, 0, 0
		}
		return false
	}
	if a.Ping == g.ping && g.sentAt != 0 {
		peers.Measured(g.to, now-g.sentAt)
	}
	g.base, g.acked = held.epoch, max(g.acked, min(a.Seq, held.seq))
	if g.acked >= g.sent {
		g.sentAt = 0
		g.whole = g.begun
	}
	if g.whole {
		g.uncount(peers)
	}
	return true
}

// ackNext processes an acknowledgement of the next heir.
func (o *Ownership) ackNext(t *Step, g *target, a *peer.Ack) {
	if !g.reached(a, o.held, t.Now, o.node.Peers) {
		return
	}
	g.unfit = g.appointment == 0 && a.Status == peer.Refused
	switch {
	case g.unfit:
		g.sentAt = t.Now // ask again after a while
	case g.appointment == 0:
	case a.Appointment == g.appointment:
		o.heir.uncount(o.node.Peers)
		o.heir, o.next = g, nil
		o.byPolicy = false
		o.announce(t, 0)
		o.retired.dismiss(t, o)
		o.heard = a.Ping
		o.acknowledged(t, g.acked)
	case a.Status == peer.Refused:
		o.refusedBy(g, a, o.held.epoch.Counter)
		g.sentAt = t.Now // resend the appointment after a while
	}
}

// refusedBy handles a refused appointment under the epoch with that counter. It renews the
// epoch if the member has granted a later claim, or after maxRefusals refusals in a row:
// whatever else the reason is, it ends with the epoch.
func (o *succession) refusedBy(g *target, a *peer.Ack, counter uint64) {
	if g.refusals++; a.Top > counter || g.refusals >= maxRefusals {
		g.refusals = 0
		o.renew = true
	}
}

// ackHeir processes an acknowledgement of the heir.
func (o *Ownership) ackHeir(t *Step, g *target, a *peer.Ack) {
	lapsed := a.Appointment != g.appointment
	if lapsed && a.Ping != g.ping {
		g.heard(a.Ping)
		return // it may have accepted since. Its answer to the last message says so
	}
	g.lapsed = lapsed
	if !g.reached(a, o.held, t.Now, o.node.Peers) {
		return
	}
	switch {
	case !g.lapsed:
		g.refusals = 0
		o.heard = a.Ping
		o.acknowledged(t, g.acked)
	case a.Status == peer.Refused: // it is not heir any more
		o.refusedBy(g, a, o.held.epoch.Counter)
		g.sentAt = t.Now // resend the appointment after a while
	}
}

// renewed continues under a new epoch. No appointment of an earlier epoch counts any
// more.
func (p *Replica) renewed(t *Step, e peer.Epoch) {
	own := p.own
	if h := own.heir; h != nil {
		own.retired.add(h.to)
	}
	own.heir.uncount(p.node.Peers)
	own.heir, own.revoking, own.renew, own.appointing = nil, false, false, 0
	if own.next != nil {
		own.next.appointment, own.next.sentAt = 0, 0
	}
	p.epoch, p.owner, p.mine, p.heir = e, e, e, 0
	own.announce(t, 0)
	own.forgetCopied()
	own.release(t)
	p.manage(t)
	p.watch(t)
}
