package cluster

import (
	"math"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// ownership is what an owner keeps of a partition, beside its counters.
type ownership struct {
	first    uint64       // counter of the epoch in which this node became owner
	since    limiter.Tick // when
	tookOver bool         // as heir
	// only tells that nobody else has or had a copy, which a closed partition
	// could be taken over with.
	only    bool
	aloneAt limiter.Tick  // when it asks again whether that is so
	giver   peer.Instance // who handed it over
	retired peer.Instance // the last heir, whose copy may go when the next has accepted

	// Changes are stamped with open, the sequence of the batch that is being
	// collected; the partition's seq is the last one that was cut.
	open  uint64
	dirty dirtyKeys
	// dirtyAt is since when a batch is being collected, 0: nothing is in it. With
	// urgent it does not wait for its time.
	dirtyAt limiter.Tick
	urgent  bool

	heir *target // appointed, and it accepted
	next *target // a copy in the making, or one about to be appointed
	// revoking: the heir has been asked to be none. renew: a new epoch is needed
	// before another heir can be appointed.
	revoking   bool
	revokeAt   limiter.Tick
	dropped    bool // it was asked to keep no copy
	renew      bool
	shunned    peer.Instance // an heir that was given up, until shunUntil
	shunUntil  limiter.Tick
	appointing uint32 // the last appointment's number within the epoch

	unsettled  []unsettled // charges of reservations, in the order in which they were made
	contenders []contender // requests that wait for those

	held      []waiter // replies that are withheld, in the order of their stamps
	waitSince limiter.Tick
	raised    bool
	heard     uint32 // the latest ping that an heir answered

	handover *handover
}

// target is a member that gets a copy.
type target struct {
	to     peer.Instance
	base   peer.Epoch // of what it acknowledged last
	begun  bool       // a snapshot was sent
	whole  bool       // and acknowledged
	sent   uint64
	acked  uint64
	sentAt limiter.Tick
	// appointment of the target, 0: none was sent. appointed is the sequence
	// that it names.
	appointment uint32
	appointed   uint64
	// ping numbers what was sent last, muteAt is since when nothing was
	// answered, 0: all was, and mutePing is what was sent first since then. quietAt
	// and quietPing are the same, of what was sent since replies began to wait.
	// sentAt is 0 where all that was sent was answered.
	ping, mutePing, quietPing uint32
	muteAt, quietAt           limiter.Tick
	tries                     int  // how often it was sent again in vain
	refusals                  int  // of its appointment, in a row
	counted                   bool // among the link's snapshots
}

// again has all that is not acknowledged sent again.
func (g *target) again() {
	g.sent = g.acked
	g.sentAt = 0
	if !g.whole {
		g.begun = false
	}
}

// waitFrom begins to wait anew for the answers to what is on its way: this node
// stood still, and they may be here already. Nothing is sent again for it: nodes that
// have too much to do would have more.
func (g *target) waitFrom(now limiter.Tick) {
	for _, at := range []*limiter.Tick{&g.sentAt, &g.muteAt, &g.quietAt} {
		if *at != 0 {
			*at = now
		}
	}
}

// held is a decision whose reply is withheld, in one partition or several.
type held struct {
	charge *limiter.Charge
	answer *limiter.Decision
	idle   *limiter.Decision // for a reservation
	reply  replyTo
	// receipt is the answer's, which a policy may write at the deadline.
	receipt limiter.Receipt
	since   limiter.Tick
	until   limiter.Tick
	waits   atomic.Int32 // partitions that withhold it still
	over    atomic.Bool  // sent, or taken back
}

// waiter is a reply that a partition withholds.
type waiter struct {
	*held
	stamp uint64
}

// busy tells whether the ownership needs looking after.
func (o *ownership) busy() bool {
	return o.shunned != 0 || o.dirtyAt != 0 || len(o.held)+len(o.unsettled)+len(o.contenders) > 0 || o.next != nil || o.revoking || o.renew || o.handover != nil ||
		o.heir != nil && o.heir.sent > o.heir.acked
}

// tracks tells whether changes are to be remembered: somebody has or gets a copy.
func (o *ownership) tracks() bool { return o.heir != nil || o.next != nil }

// lag returns D of a rule: how many units a key may have answered that its heir
// has not acknowledged.
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

// capacity returns what a limit admits at once, at most.
func capacity(l *limiter.Limit) uint64 {
	return uint64(min(l.Capacity(), l.Limit()))
}

// cap returns what a key may have answered and not acknowledged now.
func (p *part) cap(r *limiter.Rule) uint64 {
	if p.unguarded() {
		return math.MaxUint64
	}
	return p.capOver(r, lag(r))
}

// capOver is the same where the owner has or could have an heir; d is the rule's
// [lag].
func (p *part) capOver(r *limiter.Rule, d uint64) uint64 {
	switch {
	case !p.own.raised || p.closed:
		return d
	case r.OnUnreachable == limiter.UnreachableOpen:
		return math.MaxUint64
	}
	share := uint64(math.MaxUint64)
	n := uint64(max(1, p.c.view.Load().n0(false)))
	for _, l := range r.Limits {
		share = min(share, capacity(l)/n)
	}
	return max(d, share)
}

// unguarded tells whether the owner has nobody who could be its heir, so that
// nothing is withheld.
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
	return v.alone(p.c.self)
}

// charged takes note of a decision that changed a key, and reports whether its
// reply must wait: cost is 0 where nothing was admitted.
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

// hurry has the batch sent with the end of the turn.
func (o *ownership) hurry(t *turn, p *part) {
	if !o.urgent {
		o.urgent = true
		p.c.flushPart(t, p)
	}
}

// mark returns the entry of a key that changes now.
func (o *ownership) mark(hi uint64) *dirtyKey {
	if d := o.dirty.find(hi); d != nil {
		d.last = o.open
		return d
	}
	return o.dirty.add(dirtyKey{hi: hi, last: o.open})
}

// acknowledged takes note of what the heir has, and lets replies go.
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

// forget drops the entries of keys that every copy has.
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

// release lets those replies go that need not wait any longer.
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

// admits tells whether a withheld reply fits what may be answered now, and
// counts it as answered if so.
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

// letGo ends the wait in this partition; the reply goes with the last one.
func (p *part) letGo(t *turn, h waiter) {
	if h.waits.Add(-1) == 0 && h.over.CompareAndSwap(false, true) {
		p.c.ended(&h.reply)
		p.c.reply(t, h.held)
	}
}

// takeBack undoes the charges whose replies are withheld, and says so.
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

// undo takes the charge of a withheld reply back.
func (p *part) undo(t *turn, h waiter) {
	p.c.table.Refund(t.at, h.charge, h.receipt)
	for i := range h.charge.Len() {
		if k := h.charge.Key(i); p.c.part(k) == p {
			p.charged(t, k, 0)
		}
	}
}

// tickOwner sends what is due, and lets the policy speak where the heir does
// not.
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

// silentHeir tells whether replies have waited for so long that the policy
// decides: no ping that was sent after they began to wait was answered in time.
// Where this node may have stood still, the heir may own by now, and its word be late,
// since what piled up for both comes first: that is waited for longer.
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

// expireHeld takes back what nobody waits for any more.
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

// source tells as what this node decides: as heir until it has one of its own, or
// nobody could be, for then the takeover is over.
func (p *part) source() limiter.Source {
	if p.own != nil && p.own.tookOver && p.own.heir == nil && !p.unguarded() {
		return limiter.SourceHeir
	}
	return limiter.SourceOwner
}
