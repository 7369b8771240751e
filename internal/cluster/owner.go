package cluster

import (
	"math"
	"sync/atomic"

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

// held is a decision whose reply is withheld, in one partition or in several.
type held struct {
	charge *limiter.Charge
	answer *limiter.Decision
	idle   *limiter.Decision // only of a reservation
	reply  replyTo
	// receipt is a copy of the answer's receipt: a policy may overwrite the answer at
	// the deadline.
	receipt limiter.Receipt
	since   limiter.Tick
	until   limiter.Tick
	waits   atomic.Int32 // number of partitions that still withhold it
	over    atomic.Bool  // the reply was sent, or the charge taken back
}

// waiter is a reply that a partition withholds.
type waiter struct {
	*held
	stamp uint64
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
func (p *part) cap(r *limiter.Rule) uint64 {
	if p.unguarded() {
		return math.MaxUint64
	}
	return p.capOver(r, lag(r))
}

// capOver is cap for an owner that has, or could have, an heir. d is the rule's [lag].
func (p *part) capOver(r *limiter.Rule, d uint64) uint64 {
	switch {
	case !p.own.raised || p.closed:
		return d
	case r.OnUnreachable == limiter.UnreachableOpen:
		return math.MaxUint64
	}
	share := uint64(math.MaxUint64)
	n := uint64(max(1, p.c.view.Load().N0(false)))
	for _, l := range r.Limits {
		share = min(share, capacity(l)/n)
	}
	return max(d, share)
}

// unguarded reports whether no member can be this owner's heir, so that no reply is
// withheld. For a closed partition it is true only if no other member can have a copy.
func (p *part) unguarded() bool {
	v := p.c.view.Load()
	own := p.own
	if own.heir != nil || own.renew || own.revoking {
		return false
	}
	if p.closed {
		if p.c.n0(v, true) == 1 {
			own.only = true
		}
		return own.only
	}
	return v.NoOtherActive()
}

// charged records that a decision changed a key. It returns the stamp of the change, and
// whether the reply must wait for the heir. cost is 0 if the decision admitted nothing.
func (p *part) charged(t *turn, k *limiter.Key, cost uint64) (stamp uint64, wait bool) {
	own := p.own
	guarded := !p.unguarded()
	if !own.tracks() && !guarded {
		return 0, false
	}
	d := own.mark(k.Hash.Hi)
	if d.newSeq != own.open {
		d.old, d.oldSeq = d.old+d.new, d.newSeq
		d.new, d.newSeq = 0, own.open
	}
	if own.dirtyAt == 0 {
		own.dirtyAt = t.now
		p.watch(t)
	}
	if cost == 0 || k.Rule.Replication == limiter.ReplicationOff {
		return own.open, false
	}
	d.new += cost
	most := lag(k.Rule)
	if guarded && d.old+d.new > p.capOver(k.Rule, most) {
		d.new -= cost
		own.hurry(t, p)
		return own.open, true
	}
	if d.old+d.new >= most {
		own.hurry(t, p)
	}
	return own.open, false
}

// hurry makes the batch urgent: it is sent at the end of the turn.
func (o *ownership) hurry(t *turn, p *part) {
	if !o.urgent {
		o.urgent = true
		p.c.flushPart(t, p)
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
func (p *part) acknowledged(t *turn, seq uint64) {
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
func (p *part) forget() {
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

// release sends the withheld replies that need not wait any longer: the heir has their
// charges, or they fit within [part.cap].
func (p *part) release(t *turn) {
	own := p.own
	acked := uint64(0)
	if own.heir != nil {
		acked = own.heir.acked
	}
	n := 0
	for _, h := range own.held {
		switch {
		case h.over.Load():
		case own.heir != nil && h.stamp <= acked || p.admits(h):
			p.letGo(t, h)
		default:
			own.held[n] = h
			n++
		}
	}
	clear(own.held[n:])
	own.held = own.held[:n]
	if n == 0 {
		own.waitSince, own.raised = 0, false
	} else {
		own.waitSince = own.held[0].since
	}
}

// admits reports whether a withheld reply fits within what may be answered now. If so,
// it counts the reply as answered.
func (p *part) admits(h waiter) bool {
	for i := range h.charge.Len() {
		k := h.charge.Key(i)
		if k.Cost == 0 || k.Rule.Replication == limiter.ReplicationOff || p.c.part(k) != p {
			continue
		}
		var have uint64
		if d := p.own.dirty.find(k.Hash.Hi); d != nil {
			have = d.old + d.new
		}
		if limit := p.cap(k.Rule); limit != math.MaxUint64 && have+uint64(k.Cost) > limit {
			return false
		}
	}
	for i := range h.charge.Len() {
		k := h.charge.Key(i)
		if k.Cost == 0 || p.c.part(k) != p {
			continue
		}
		if d := p.own.dirty.find(k.Hash.Hi); d != nil {
			if d.newSeq >= h.stamp {
				d.new += uint64(k.Cost)
			} else {
				d.old, d.oldSeq = d.old+uint64(k.Cost), max(d.oldSeq, h.stamp)
			}
		}
	}
	return true
}

// letGo ends a reply's wait in this partition. The reply is sent when the last partition
// lets it go.
func (p *part) letGo(t *turn, h waiter) {
	if h.waits.Add(-1) == 0 && h.over.CompareAndSwap(false, true) {
		p.c.ended(&h.reply)
		p.c.reply(t, h.held)
	}
}

// takeBack undoes the charges of all withheld replies and answers their askers with
// status.
func (p *part) takeBack(t *turn, status peer.ReplyStatus) {
	own := p.own
	for _, h := range own.held {
		if h.over.CompareAndSwap(false, true) {
			p.c.ended(&h.reply)
			p.undo(t, h)
			p.c.refuse(t, h.reply, status, p)
		}
	}
	clear(own.held)
	own.held = own.held[:0]
	own.waitSince, own.raised = 0, false
}

// undo takes back the charge of a withheld reply.
func (p *part) undo(t *turn, h waiter) {
	p.c.table.Refund(t.at, h.charge, h.receipt)
	for i := range h.charge.Len() {
		if k := h.charge.Key(i); p.c.part(k) == p {
			p.charged(t, k, 0)
		}
	}
}

// tickOwner does the owner's work that is due. If an available partition's heir is
// silent for too long, it lets the policy decide which withheld replies may go.
func (p *part) tickOwner(t *turn) {
	own := p.own
	p.expireHeld(t)
	p.tickUnsettled(t)
	if own.waitSince != 0 && !own.raised && !p.closed && p.silentHeir(t) {
		own.raised = true
		p.c.event(EventRaised, int(p.id))
		p.release(t)
	}
	if own.shunned != 0 && t.now >= own.shunUntil {
		own.shunned = 0
	}
	p.shun(t)
	p.tickHandover(t)
	p.flush(t)
}

// silentHeir reports whether replies have waited so long that the policy decides: the
// heir answered no ping in time that was sent after the replies began to wait.
//
// After a pause of this node, the heir may have taken over, and its message may be late
// because both nodes first work off what has piled up. So until the heir has answered a
// later ping, or easeFor has passed, silentHeir reports false.
func (p *part) silentHeir(t *turn) bool {
	own := p.own
	h := own.heir
	if since, ping := p.c.awake(); t.now-since < easeFor && int32(own.heard-ping) <= 0 {
		return false
	}
	if h == nil {
		return t.now-own.waitSince >= pingWithin
	}
	return h.quietAt != 0 && h.quietAt >= own.waitSince && t.now-h.quietAt >= p.c.patience(h.to, pingWithin)
}

// expireHeld takes back the charges of withheld replies whose deadline has passed.
func (p *part) expireHeld(t *turn) {
	own, n := p.own, 0
	for _, h := range own.held {
		switch {
		case h.over.Load():
		case t.now >= h.until:
			if h.over.CompareAndSwap(false, true) {
				p.c.ended(&h.reply)
				p.undo(t, h)
				p.c.refuse(t, h.reply, peer.Overloaded, p)
			}
		default:
			own.held[n] = h
			n++
		}
	}
	clear(own.held[n:])
	own.held = own.held[:n]
	if n == 0 {
		own.waitSince, own.raised = 0, false
	}
}

// source returns in which role this node decides. After a takeover it is the heir until
// an heir of its own has accepted, or no member could be its heir.
func (p *part) source() limiter.Source {
	if p.own != nil && p.own.tookOver && p.own.heir == nil && !p.unguarded() {
		return limiter.SourceHeir
	}
	return limiter.SourceOwner
}
