package replica

import (
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// handover is an ownership on its way to the heir: this node has sealed the partition
// and the receiver has not confirmed yet.
type handover struct {
	next   peer.Epoch
	sentAt limiter.Tick // time of the last attempt; 0 if it is to be sent at once
	goneAt limiter.Tick // when the receiver was first found out of the view; 0 if it is in the view
	seq    uint64
}

// passOn starts a handoff to the heir, if the heir should own the partition and has
// every change.
func (p *Replica) passOn(t *Step, v *view.View) {
	own := p.own
	if v.Owner(p.id) != own.heir.to || own.heir.acked < p.seq {
		return
	}
	if own.heir.to == own.from.giver && t.Now-own.from.since < backAfter {
		p.watch(t)
		return
	}
	p.startRound(t, peer.Transfer, own.heir.to, p.epoch)
}

// hands reports whether a transfer is still wanted: its receiver is heir, in the view and
// named by the ring, and the owner does not do without it.
func (r *claimRound) hands(t *Step, p *Replica) bool {
	if p.own == nil {
		return false
	}
	h := p.own.heir
	return h != nil && h.to == r.owner && !p.own.renew && t.View.Has(r.owner) && t.View.Owner(p.id) == r.owner
}

// seal stops this node from deciding and sends the last batch together with the
// ownership.
func (p *Replica) seal(t *Step, next peer.Epoch) {
	own := p.own
	if own.heir == nil || own.heir.to != next.Instance {
		p.manage(t)
		return
	}
	own.cut(own.held)
	p.role = peer.Sealed
	own.handover = &handover{next: next, seq: p.seq}
	p.reroute(t)
	p.watch(t)
	p.tickHandover(t)
}

// tickHandover repeats the handover until it is confirmed. If the receiver is gone, it
// claims the partition back.
func (p *Replica) tickHandover(t *Step) {
	own := p.own
	h := own.handover
	if h == nil || p.role != peer.Sealed {
		return
	}
	g := own.heir
	if h.sentAt == 0 || t.Now-h.sentAt >= p.node.Peers.Patience(g.to, resendAfter) {
		g.sent = g.acked
		h.sentAt = t.Now
		own.delta(t, g, peer.Handover, h.next)
	}
	switch {
	case t.View.Has(h.next.Instance):
		h.goneAt = 0
	case h.goneAt == 0:
		// Send once more: the receiver has claimWithin to answer.
		h.goneAt, h.sentAt = t.Now, 0
	case t.Now-h.goneAt >= claimWithin && p.claiming.round == nil:
		p.startRound(t, peer.Reopen, p.node.Self, p.epoch)
	}
}

// confirmed ends a handover that the receiver has taken: p.owner is the receiver's
// epoch.
func (p *Replica) confirmed(t *Step) {
	own := p.own
	t.event(Handoff)
	for _, h := range own.withheld {
		t.release(h.Reply)
	}
	p.seq = own.handover.seq
	p.disown()
	p.claiming.round = nil
	p.role, p.appointment = peer.Copy, 0
	next := p.owner
	if p.revoked != next || p.revokedN < 1 {
		// The giver is the receiver's first heir.
		p.role, p.appointment, p.epoch, p.heir = peer.Heir, 1, next, p.node.Self
	}
	p.pushing.unpushed = false
	p.reroute(t)
	p.settleParked(t)
}

// receive takes the ownership over from the giver of a handover, or refuses it.
func (p *Replica) receive(t *Step, from peer.Instance, b *peer.Batch) {
	switch {
	case b.Next.Instance != p.node.Self || p.fresh || p.pledged().grant > b.Next.Counter || b.Next.Compare(p.owner) <= 0:
		p.ack(t, from, b, peer.Refused)
		return
	case p.role != peer.Heir || p.seq != b.Seq:
		p.ack(t, from, b, peer.Gap)
		return
	}
	p.take(t, from, b)
}

func (p *Replica) take(t *Step, giver peer.Instance, b *peer.Batch) {
	p.giveUp()
	p.role, p.epoch, p.owner, p.mine, p.heir = peer.Owned, b.Next, b.Next, b.Next, giver
	p.top = max(p.top, b.Next.Counter)
	p.appointment, p.seeking.seekAt, p.seeking.seekIn = 0, 0, 0
	p.own = p.newOwnership(t)
	p.own.from.giver, p.own.appointing = giver, 1
	p.own.heir = &target{to: giver, base: b.Epoch, begun: true, whole: true, sent: p.seq, acked: p.seq, appointment: 1}
	p.reroute(t)
	p.own.announce(t, 0)
	if !t.View.Has(giver) {
		// The giver must learn that its handover was taken before it hears of an epoch
		// after this one: what it withholds was handed over, and is answered then.
		p.own.announce(t, giver)
	}
	p.manage(t)
	p.settleParked(t)
	p.watch(t)
}

// GiverAnswers reports whether a check or reset that an earlier owner may have executed is
// left to that owner's reply: it handed over to this node within the given time and is
// connected. What it did came with the partition, and the reply leaves when the giver hears
// that its handover was taken. Executed here too, the check would be charged twice, and the
// reset would forget what was charged since.
func (p *Replica) GiverAnswers(t *Step, within limiter.Tick) bool {
	own := p.own
	return own.from.giver != 0 && t.Now-own.from.since < within && p.node.Peers.Reachable(own.from.giver)
}

// handoverRefused claims the partition back after the receiver said that it did not take
// it.
func (p *Replica) handoverRefused(t *Step, a *peer.Ack) {
	own := p.own
	if p.claiming.round != nil || a.Status == peer.Acked || own.handover.next.Compare(a.Owner) <= 0 {
		return
	}
	own.heir.heard(a.Ping)
	p.startRound(t, peer.Reopen, p.node.Self, p.epoch)
}

// reopened makes this node decide again after a handover that failed, under a new epoch.
func (p *Replica) reopened(t *Step, e peer.Epoch) {
	p.role, p.own.handover = peer.Owned, nil
	p.renewed(t, e)
	p.reroute(t)
	p.settleParked(t)
}

// push sends the present owner the counters that this node decided on before it was
// fenced.
func (p *Replica) push(t *Step) {
	to := p.owner.Instance
	if !p.pushing.unpushed || to == 0 || to == p.node.Self || p.pushing.pushedTo == to {
		return
	}
	p.pushing.pushedTo, p.pushing.pushedAt = to, t.Now
	p.sendAll(t, to, peer.Batch{Kind: peer.Push, Epoch: p.epoch, Seq: p.seq, Ping: p.node.Pace.NextPing()})
	p.watch(t)
}

// onPush merges the counters of an owner that was fenced.
func (p *Replica) onPush(t *Step, from peer.Instance, b *peer.Batch, keys []Entries) {
	if p.role != peer.Owned {
		if !p.owner.Before(b.Epoch) {
			p.announceKnown(t, from)
		}
		return
	}
	if p.arriving.pushFrom != from || b.First {
		p.arriving.pushFrom, p.arriving.pushNext = from, 0
	}
	if b.Base != p.arriving.pushNext {
		return // a part was lost; the sender repeats the push
	}
	p.arriving.pushNext++
	var all []table.Entry
	for _, k := range keys {
		if !p.own.resetSince(k.Hi, b.Epoch.Counter) {
			all = append(all, k.List...)
		}
	}
	// The askers of withheld replies ask again, and are answered from the merged state.
	p.own.takeBack(t, b.Epoch.Counter, p.owner)
	// The larger of two counts may lack a late charge: it stands, so that a late cancel
	// takes back nothing that the other owner admitted.
	p.own.forgetLate(0)
	p.own.awaited = nil // likewise what a reply has charged that another partition withholds
	p.own.took = t.At
	if err := p.node.Store.Import(int(p.id), t.At, all, table.Merge); err != nil {
		t.problem("the state of an owner that was fenced cannot be merged", err)
		keys = nil
	}
	for _, k := range keys {
		if len(k.List) > 0 {
			p.own.ids.some = true // of those that were pushed each is a dirty key, and is sent once
			p.own.Charged(t, &arith.Key{Hash: arith.Hash{Hi: k.Hi}}, nil, false, 0)
		}
	}
	if b.Last {
		t.event(Merged)
		a := peer.Ack{Partition: p.id, Status: peer.Merged, Epoch: b.Epoch, Ping: b.Ping, Owner: p.owner}
		t.sendAck(from, a)
	}
}

// pushed records that the later owner has merged what was decided here.
func (p *Replica) pushed(t *Step, from peer.Instance, a *peer.Ack) {
	if p.pushing.unpushed && a.Epoch == p.epoch && from == p.pushing.pushedTo {
		p.pushing.unpushed, p.pushing.pushedTo = false, 0
		p.dropOutdated(t, p.heir)
		p.manage(t)
	}
}
