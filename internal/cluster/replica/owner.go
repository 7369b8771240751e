package replica

import (
	"math"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// ownership is the state of an owner for one partition, besides the counters. The
// partition's lock guards it.
type ownership struct {
	first    uint64       // counter of the epoch in which this node became owner
	since    limiter.Tick // when this node became owner
	tookOver bool         // it took over as heir
	// only means that no other member has or had a copy. A closed partition cannot be
	// taken over then, so its owner may decide without an heir.
	only    bool
	aloneAt limiter.Tick  // when the owner asks again whether it is the only one
	giver   peer.Instance // the member that handed it over; 0 if none did
	retired peer.Instance // the last heir; it may drop its copy when the next heir has accepted

	// open is the sequence of the batch that is being collected; changes are stamped
	// with it. The partition's seq is the sequence of the last batch that was cut.
	open  uint64
	dirty dirtyKeys
	// dirtyAt is when the first change entered the batch; 0 if the batch is empty.
	// urgent means that the batch is sent at the end of the turn.
	dirtyAt limiter.Tick
	urgent  bool

	heir *target // the heir, which accepted its appointment
	next *target // the member that is to become heir: it gets a copy, then the appointment
	// revoking means that the heir was asked to give up its appointment. renew means
	// that this node must claim a new epoch before it can appoint another heir.
	revoking   bool
	revokeAt   limiter.Tick
	dropped    bool // the revoked heir was asked to drop its copy too
	renew      bool
	shunned    peer.Instance // a member that is not made heir before shunUntil
	shunUntil  limiter.Tick
	appointing uint32 // number of the last appointment within the epoch

	unsettled  []unsettled // charges of reservations, oldest first
	contenders []contender // requests that wait until those are settled

	held      []waiter // withheld replies by ascending stamp
	waitSince limiter.Tick
	raised    bool
	heard     uint32 // the last ping that an heir answered

	handover *handover
}

// target is a member that receives a copy from the owner: its heir, or the next one.
type target struct {
	to     peer.Instance
	base   peer.Epoch // epoch of the state that it acknowledged last
	begun  bool       // a snapshot was sent completely
	whole  bool       // the snapshot was acknowledged
	sent   uint64
	acked  uint64
	sentAt limiter.Tick
	// appointment is the number of the appointment sent to the target; 0 if none was
	// sent. appointed is the sequence that the appointment requires.
	appointment uint32
	appointed   uint64
	// ping is the number of the last message sent. muteAt is when the oldest unanswered
	// message was sent, 0 if all were answered; mutePing is its number. quietAt and
	// quietPing are the same for messages sent after replies began to wait. sentAt is
	// when the last message was sent, 0 if all was acknowledged or it is to be sent
	// again at once.
	ping, mutePing, quietPing uint32
	muteAt, quietAt           limiter.Tick
	tries                     int  // resends without an answer
	refusals                  int  // refusals of its appointment in a row
	counted                   bool // counted among the link's snapshots
}

// again resets the target so that everything unacknowledged is sent again.
func (g *target) again() {
	g.sent = g.acked
	g.sentAt = 0
	if !g.whole {
		g.begun = false
	}
}

// waitFrom restarts the waits for answers after this node was paused: the answers may
// have arrived already. It sends nothing again, because that would add load to nodes
// that are overloaded.
func (g *target) waitFrom(now limiter.Tick) {
	for _, at := range []*limiter.Tick{&g.sentAt, &g.muteAt, &g.quietAt} {
		if *at != 0 {
			*at = now
		}
	}
}

// busy reports whether the ownership has pending work.
func (o *ownership) busy() bool {
	return o.shunned != 0 || o.dirtyAt != 0 || len(o.held)+len(o.unsettled)+len(o.contenders) > 0 || o.next != nil || o.revoking || o.renew || o.handover != nil ||
		o.heir != nil && o.heir.sent > o.heir.acked
}

// tracks reports whether changes must be recorded because a member has, or is getting, a
// copy.
func (o *ownership) tracks() bool { return o.heir != nil || o.next != nil }

// lag returns D of a rule: how many units a key may have answered that its heir has not
// acknowledged. It is 0 for strict replication, unbounded if replication is off, and
// otherwise 5 % of the smallest limit of the rule, rounded up, at least 1.
func lag(r *limiter.Rule) uint64 {
	switch r.Replication {
	case limiter.ReplicationStrict:
		return 0
	case limiter.ReplicationOff:
		return math.MaxUint64
	}
	least := uint64(math.MaxUint64)
	for _, l := range r.Limits {
		least = min(least, max(1, (5*capacity(l)+99)/100))
	}
	return least
}

// capacity returns the most units that a limit admits at once.
func capacity(l *limiter.Limit) uint64 {
	return uint64(min(l.Capacity(), l.Limit()))
}

// cap returns how many units a key may have answered at present that its heir has not
// acknowledged.
func (p *Replica) cap(t *Turn, r *limiter.Rule) uint64 {
	if p.unguarded(t) {
		return math.MaxUint64
	}
	return p.capOver(t, r, lag(r))
}

// capOver is cap for an owner that has, or could have, an heir. d is the rule's [lag].
func (p *Replica) capOver(t *Turn, r *limiter.Rule, d uint64) uint64 {
	switch {
	case !p.own.raised || p.closed:
		return d
	case r.OnUnreachable == limiter.UnreachableOpen:
		return math.MaxUint64
	}
	share := uint64(math.MaxUint64)
	n := uint64(max(1, t.View.N0(false)))
	for _, l := range r.Limits {
		share = min(share, capacity(l)/n)
	}
	return max(d, share)
}

// unguarded reports whether no member can be this owner's heir, so that no reply is
// withheld. For a closed partition it is true only if no other member can have a copy.
func (p *Replica) unguarded(t *Turn) bool {
	v := t.View
	own := p.own
	if own.heir != nil || own.renew || own.revoking {
		return false
	}
	if p.closed {
		if p.n0(t, true) == 1 {
			own.only = true
		}
		return own.only
	}
	return v.NoOtherActive()
}

// Charged records that a decision changed a key. It returns the stamp of the change, and
// whether the reply must wait for the heir. cost is 0 if the decision admitted nothing.
func (p *Replica) Charged(t *Turn, k *limiter.Key, cost uint64) (stamp uint64, wait bool) {
	own := p.own
	guarded := !p.unguarded(t)
	if !own.tracks() && !guarded {
		return 0, false
	}
	d := own.mark(k.Hash.Hi)
	if d.newSeq != own.open {
		d.old, d.oldSeq = d.old+d.new, d.newSeq
		d.new, d.newSeq = 0, own.open
	}
	if own.dirtyAt == 0 {
		own.dirtyAt = t.Now
		p.watch(t)
	}
	if cost == 0 || k.Rule.Replication == limiter.ReplicationOff {
		return own.open, false
	}
	d.new += cost
	most := lag(k.Rule)
	if guarded && d.old+d.new > p.capOver(t, k.Rule, most) {
		d.new -= cost
		own.hurry(t)
		return own.open, true
	}
	if d.old+d.new >= most {
		own.hurry(t)
	}
	return own.open, false
}

// hurry makes the batch urgent: it is sent at the end of the turn.
func (o *ownership) hurry(t *Turn) {
	if !o.urgent {
		o.urgent, t.Flush = true, true
	}
}

// mark returns the dirty entry of a key, stamped with the open batch; it adds one if
// there is none.
func (o *ownership) mark(hi uint64) *dirtyKey {
	if d := o.dirty.find(hi); d != nil {
		d.last = o.open
		return d
	}
	return o.dirty.add(dirtyKey{hi: hi, last: o.open})
}

// acknowledged records that the heir has all changes up to seq, and releases replies
// that need not wait any longer.
func (p *Replica) acknowledged(t *Turn, seq uint64) {
	own := p.own
	for i := range own.dirty.list {
		d := &own.dirty.list[i]
		if d.oldSeq <= seq {
			d.old = 0
		}
		if d.newSeq <= seq {
			d.old, d.new = 0, 0
		}
	}
	p.forget()
	own.raised = false
	p.release(t)
}

// forget drops the dirty entries of keys that every copy has.
func (p *Replica) forget() {
	own := p.own
	least := uint64(math.MaxUint64)
	if own.heir != nil {
		least = own.heir.acked
	}
	if own.next != nil && own.next.begun {
		least = min(least, own.next.acked)
	}
	own.dirty.keep(func(d *dirtyKey) bool { return d.last > least || d.old+d.new > 0 })
}

// tickOwner does the owner's work that is due. If an available partition's heir is
// silent for too long, it lets the policy decide which withheld replies may go.
func (p *Replica) tickOwner(t *Turn) {
	own := p.own
	p.expireHeld(t)
	p.tickUnsettled(t)
	if own.waitSince != 0 && !own.raised && !p.closed && p.silentHeir(t) {
		own.raised = true
		t.event(Raised)
		p.release(t)
	}
	if own.shunned != 0 && t.Now >= own.shunUntil {
		own.shunned = 0
	}
	p.shun(t)
	p.tickHandover(t)
	p.Flush(t)
}

// Source returns in which role this node decides. After a takeover it is the heir until
// an heir of its own has accepted, or no member could be its heir.
func (p *Replica) Source(t *Turn) limiter.Source {
	if p.own != nil && p.own.tookOver && p.own.heir == nil && !p.unguarded(t) {
		return limiter.SourceHeir
	}
	return limiter.SourceOwner
}

// RoomFor reports whether an admission of a key could be answered at once, without the
// heir's acknowledgement. The replica must own.
func (p *Replica) RoomFor(t *Turn, k *limiter.Key) bool {
	limit := p.cap(t, k.Rule)
	if limit == math.MaxUint64 {
		return true
	}
	have := uint64(k.Cost)
	if d := p.own.dirty.find(k.Hash.Hi); d != nil {
		have += d.old + d.new
	}
	return have <= limit
}

// Issued reports whether a receipt was given under the present ownership. The replica
// must own.
func (p *Replica) Issued(r limiter.Receipt) bool {
	return r.Epoch >= p.own.first && r.Epoch <= p.epoch.Counter
}
