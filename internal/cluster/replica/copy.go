package replica

import (
	"math"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Flush sends the batches that are due to the members that have copies of a partition
// that this node owns.
func (p *Replica) Flush(t *Step) {
	if p.own != nil && p.role == peer.Owned {
		p.own.flush(t)
	}
}

// flush sends the batches that are due.
func (o *Ownership) flush(t *Step) {
	if !o.tracks() {
		if o.isolated(t) && !onlyForDisk(t, o) {
			if o.held.saving != nil {
				o.cut(o.held)
			}
			o.dirty.clear()
			o.ids.start(o)
			o.dirtyAt, o.urgent = 0, false
		}
		return
	}
	due := o.urgent || o.dirtyAt != 0 && t.Now-o.dirtyAt >= batchEvery
	if g := o.next; g != nil {
		o.feed(t, g, due)
	}
	if g := o.heir; g != nil {
		o.feed(t, g, due)
	}
}

// feed sends a target what it lacks, one message at a time. due means that the collected
// batch is due.
func (o *Ownership) feed(t *Step, g *target, due bool) {
	if g.sentAt != 0 {
		tries := g.tries
		if g == o.heir && g.sentAt < o.waitSince {
			tries = 0 // a reply waits and nothing was sent since it began to
		}
		if t.Now-g.sentAt < o.node.Peers.Patience(g.to, o.node.Pace.Stretched(backedOff(resendAfter, tries))) {
			return
		}
		g.tries++
		g.resend()
	}
	// A reply waits and the heir was asked nothing since. Its answer shows that it is
	// alive.
	pinging := g == o.heir && o.waitSince != 0 && (g.waitSilent.since == 0 || g.waitSilent.since < o.waitSince)
	switch {
	case !g.begun:
		o.snapshot(t, g)
	case due && o.dirtyAt != 0, g.acked < o.held.seq, pinging, g.lapsed, (g.appointment != 0 || g.unfit) && g != o.heir:
		o.cut(o.held)
		o.delta(t, g, peer.Delta, peer.Epoch{})
	}
}

// cut closes the batch that is being collected, if it has any change.
func (o *Ownership) cut(held *state) {
	if o.dirtyAt != 0 {
		held.seq = o.open
		if o.ids.some {
			o.ids.cut(o)
		}
		o.open++
		o.dirtyAt, o.urgent = 0, false
	}
}

// delta sends a target the keys that changed since what was sent to it.
func (o *Ownership) delta(t *Step, g *target, kind peer.BatchKind, next peer.Epoch) {
	b := peer.Batch{
		Partition: o.id, Kind: kind, Epoch: o.held.epoch, BaseEpoch: g.base, Base: g.sent, Seq: o.held.seq,
		Appointment: g.appointment, Appointed: g.appointed, Next: next,
	}
	b.Ping = g.sending(t.Now, o.waitSince, o.node.Pace)
	from := len(t.keys)
	for i := range o.dirty.list {
		if d := &o.dirty.list[i]; d.last > g.sent && d.last <= o.held.seq {
			t.keys = append(t.keys, d.hi)
		}
	}
	t.sendBatch(g.to, &b, t.keys[from:], o.ids.after(g.sent))
	g.builtOn, g.sent = g.sent, o.held.seq
}

// sending records that a message is sent which the target will answer, and returns the
// message's number. waitSince is since when replies wait.
func (g *target) sending(now, waitSince limiter.Tick, pace Pace) (ping uint32) {
	g.ping, g.sentAt = pace.NextPing(), now
	if g.silent.since == 0 {
		g.silent.since, g.silent.ping = now, g.ping
	}
	if g.waitSilent.since == 0 || g.waitSilent.since < waitSince {
		g.waitSilent.since, g.waitSilent.ping = now, g.ping
	}
	return g.ping
}

// snapshot sends a target all keys, unless too much of others is under way to that member.
func (o *Ownership) snapshot(t *Step, g *target) {
	if !g.counted {
		n := o.node.Store.Count(int(o.id))
		if !o.node.Peers.BeginSnapshot(g.to, n) {
			return
		}
		g.counted, g.counters = true, n
	}
	o.cut(o.held)
	o.ids.cut(o)
	o.soleCopy = false
	o.sendAll(t, g.to, peer.Batch{Kind: peer.Snapshot, Epoch: o.held.epoch, Seq: o.held.seq,
		Ping: g.sending(t.Now, o.waitSince, o.node.Pace)})
	g.begun, g.whole, g.sent, g.acked, g.base, g.builtOn = true, false, o.held.seq, 0, o.held.epoch, math.MaxUint64
}

// sendAll sends all keys, in batches of 512 at most. The ids of a push go first: its receiver settles what was
// settled here before it merges the counters, which have that.
func (p *identity) sendAll(t *Step, to peer.Instance, b peer.Batch) {
	const most = 512
	var ids, keys []uint64
	p.node.Store.Export(int(p.id), t.At, func(e table.Entry) {
		list := &keys
		if b.Kind == peer.Push && e.Limit.Algorithm() == arith.Remembered {
			list = &ids
		}
		if n := len(*list); n == 0 || (*list)[n-1] != e.Hi {
			*list = append(*list, e.Hi)
		}
	})
	keys = append(ids, keys...)
	b.Partition, b.First = p.id, true
	chunks := 0
	for {
		n := min(len(keys), most)
		b.Last = n == len(keys)
		b.Base = uint64(chunks)
		chunks++
		t.sendBatch(to, &b, keys[:n], table.NoIDs)
		if keys = keys[n:]; len(keys) == 0 {
			return
		}
		b.First = false
	}
}

// onBatch processes a batch from an owner, or a push from a former one.
func (p *Replica) onBatch(t *Step, from peer.Instance, m Message) {
	b := m.Batch
	if b.Kind == peer.Push {
		p.onPush(t, from, b, m.Keys)
		return
	}
	if b.Epoch.Before(p.owner) {
		p.ack(t, from, b, peer.Fenced)
		return
	}
	p.learn(t, b.Epoch, 0)
	if p.pushing.unpushed || p.role >= peer.Sealed {
		return // the owner resends; by then it may have merged what is here
	}
	if p.breakage.givenUp {
		if b.Kind == peer.Handover {
			p.ack(t, from, b, peer.Refused)
		} // without an answer the owner suspends this node as heir
		return
	}
	if p.epoch.Before(b.Epoch) && p.role == peer.Heir && b.Kind != peer.Delta {
		p.role, p.appointment = peer.Copy, 0
	}
	switch b.Kind {
	case peer.Snapshot:
		if !p.stage(t, b, m.Keys) {
			return
		}
	default:
		if !p.apply(t, m) {
			p.ack(t, from, b, peer.Gap)
			return
		}
	}
	if b.Kind == peer.Handover {
		p.receive(t, from, b)
		return
	}
	status := peer.Acked
	if b.Appointment != 0 && !p.accept(t, b) || b.Appointment == 0 && p.unfit(t) {
		status = peer.Refused
	}
	p.ack(t, from, b, status)
}

// stage collects the parts of a snapshot. It reports whether the snapshot is complete
// and its state, or a later one, is held.
func (p *held) stage(t *Step, b *peer.Batch, keys []Entries) bool {
	if !p.staging.next(t, p.node, b, keys) {
		return false
	}
	if p.epoch == b.Epoch && p.seq >= b.Seq {
		p.staging.unstage(p.node) // a later state is already here
		return true
	}
	p.node.Store.Drop(int(p.id))
	err := p.node.Store.Import(int(p.id), t.At, p.staging.staged, table.Replace)
	p.staging.unstage(p.node)
	if err != nil {
		t.problem("a snapshot of a partition cannot be kept", err)
		p.drop()
		return false
	}
	if p.role != peer.Heir || p.epoch != b.Epoch {
		p.role, p.appointment = peer.Copy, 0
	}
	p.epoch, p.seq, p.restored = b.Epoch, b.Seq, false
	p.saving.replaced()
	return true
}

// apply applies a batch of changes. It reports false if the batch does not build on the
// state held, or cannot be stored.
func (p *held) apply(t *Step, m Message) bool {
	b := m.Batch
	if p.role < peer.Copy || p.epoch == p.mine || p.epoch != b.BaseEpoch && p.epoch != b.Epoch || p.seq < b.Base {
		return false
	}
	if p.epoch == b.Epoch && p.seq >= b.Seq && len(m.Keys)+len(m.IDs) > 0 && b.Seq != b.Base {
		return true // a duplicate
	}
	if len(m.IDs) > 0 {
		if err := p.node.Store.ImportIDs(int(p.id), t.At, m.Source, m.IDs); err != nil {
			t.problem("ids of a batch cannot be kept", err)
			p.saving.replaced()
			return false
		}
		for i := range m.IDs {
			p.saving.changed(m.IDs[i].Hi)
		}
	}
	for _, k := range m.Keys {
		if err := p.node.Store.ReplaceKey(int(p.id), k.Hi, t.At, k.List); err != nil {
			t.problem("an update of a key cannot be kept", err)
			p.saving.replaced()
			return false
		}
		p.saving.changed(k.Hi)
	}
	if p.epoch != b.Epoch {
		p.epoch = b.Epoch
		if p.role == peer.Heir {
			p.role, p.appointment = peer.Copy, 0
		}
	}
	p.seq, p.restored = max(p.seq, b.Seq), false
	return true
}

// unfit reports whether this node refuses any appointment: it is fresh, or not active, unless no active
// member is left.
func (p *held) unfit(t *Step) bool { return p.fresh || t.State != peer.Active && !t.lastToLeave() }

// accept makes this node heir, and reports whether it is. It refuses if this node is
// unfit, has granted a later claim, has been revoked since, or lacks changes that the
// appointment requires.
func (p *held) accept(t *Step, b *peer.Batch) bool {
	switch {
	case p.role == peer.Heir && p.appointment == b.Appointment:
		return true
	case p.unfit(t) || p.grant > b.Epoch.Counter:
		return false
	case p.revoked == b.Epoch && b.Appointment <= p.revokedN:
		return false
	case p.seq < b.Appointed || b.Appointment < p.appointment:
		return false
	}
	p.role, p.appointment, p.heir = peer.Heir, b.Appointment, p.node.Self
	p.reroute(t)
	return true
}

func (p *held) ack(t *Step, to peer.Instance, b *peer.Batch, status peer.AckStatus) {
	a := peer.Ack{Partition: p.id, Status: status, Epoch: b.Epoch, Ping: b.Ping, Seq: p.seq, Owner: p.owner,
		Top: max(p.top, p.grant)}
	if status == peer.Gap && (p.role < peer.Copy || p.epoch == p.mine || p.epoch != b.Epoch && p.epoch != b.BaseEpoch) {
		a.Seq = 0 // as apply: what this node held as an owner may have changes that nobody else has
	}
	if p.role == peer.Heir && p.epoch == b.Epoch {
		a.Appointment = p.appointment
	}
	t.sendAck(to, a)
}

// onRevoke ends this node's appointment as heir, up to the number that the owner names.
func (p *Replica) onRevoke(t *Step, from peer.Instance, r peer.Revoke) {
	p.learn(t, r.Epoch, 0)
	if r.Epoch.Before(p.owner) {
		p.ack(t, from, &peer.Batch{Epoch: r.Epoch}, peer.Fenced)
		return
	}
	if p.revoked != r.Epoch || p.revokedN < r.Appointment {
		p.revoked, p.revokedN = r.Epoch, r.Appointment
	}
	if p.role == peer.Heir && p.epoch == r.Epoch && p.appointment <= r.Appointment {
		p.role, p.appointment = peer.Copy, 0
		if p.claiming.round != nil && p.claiming.round.kind == peer.Takeover {
			p.giveUp()
			p.answerParked(t, from)
		}
	}
	if r.Drop && p.role == peer.Copy && !p.pushing.unpushed {
		if p.epoch == r.Epoch {
			p.drop()
		} else {
			p.dropOutdated(t, from) // it has another heir
		}
	}
	if r.Appointment == 0 {
		return
	}
	a := peer.Ack{Partition: p.id, Status: peer.Revoked, Epoch: r.Epoch, Appointment: r.Appointment, Seq: p.seq,
		Owner: p.owner}
	t.sendAck(from, a)
}
