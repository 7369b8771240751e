package replica

import (
	"math"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Ownership is what an owner does and knows: what changed, who has a copy, which replies
// wait for the heir, and which charges may be taken back. It sees the state held, but no
// claims and no other owners: who owns is the replica's concern.
type Ownership struct {
	held *state // the replica's

	tenure
	resets
	changes
	succession
	preparations
	withholding

	handover *handover // nil unless this node has sealed
}

// tenure is how this node became owner.
type tenure struct {
	from     start
	at       limiter.Tick // when it did, by the counters' clock
	tookOver bool         // it took over as heir
	// took is when it last took counters of another owner, by the counters' clock: when it became
	// owner, or a push came later. Ids among them were charged then or earlier.
	took limiter.Tick
}

// start is when an ownership began, and by whom.
type start struct {
	since limiter.Tick
	giver peer.Instance // the member that handed over; 0 if none did
}

// recent reports whether a member has just handed over.
func (s start) recent(now limiter.Tick) bool { return s.giver != 0 && now-s.since <= backAfter }

// changes are the keys that some copy lacks changes of. open is the sequence of the batch
// that is being collected; changes are stamped with it. The partition's seq is the
// sequence of the last batch that was cut.
type changes struct {
	open  uint64
	dirty dirtyKeys
	ids   newIDs
	// dirtyAt is when the first change entered the batch; 0 if the batch is empty.
	// urgent means that the batch is sent at the end of the turn.
	dirtyAt limiter.Tick
	urgent  bool
}

// succession is who has a copy, and who is to become heir.
type succession struct {
	identity
	heir    *target  // the heir, which accepted its appointment
	next    *target  // the member that is to become heir: it gets a copy, then the appointment
	retired retirees // members whose copies are not needed once there is an heir
	// revoking means that the heir was asked to give up its appointment. renew means
	// that this node must claim a new epoch before it can appoint another heir.
	revoking       bool
	revokeAt       limiter.Tick
	renew          bool
	suspended      peer.Instance // a member that is not made heir before suspendedUntil
	suspendedUntil limiter.Tick
	appointing     uint32 // number of the last appointment within the epoch
	// soleCopy means that no other member has or had a copy. A closed partition cannot be
	// taken over then, so its owner may decide without an heir.
	soleCopy     bool
	seekCopiesAt limiter.Tick // when the owner asks again whether another has a copy
}

// preparations are the charges of checks over several owners that may be taken back.
type preparations struct {
	count   Counter    // of those of all replicas of the node
	inDoubt []prepared // oldest first
	late    []prepared // whose askers have given up; oldest first
	Waits   Waits
}

// withholding is the replies that wait for the heir.
type withholding struct {
	withheld  []withheldReply // by ascending stamp
	waitSince limiter.Tick    // since when the first of them waits; 0 if none does
	byPolicy  bool            // the heir is silent: the policy bounds what may be answered, instead of D
	heard     uint32          // the last ping that an heir answered
	awaited   []Reply         // replies with keys of several partitions, which one of those withholds
}

// newOwnership returns an ownership that begins now.
func (p *Replica) newOwnership(t *Step) *Ownership {
	own := &Ownership{held: &p.state, succession: succession{identity: p.identity}}
	own.count = p.node.Prepared
	own.open, own.from.since, own.at, own.took = p.seq+1, t.Now, t.At, t.At
	own.ids.start(own)
	return own
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
	// builtOn is the sequence that the last changes which were sent build on.
	builtOn uint64
	// appointment is the number of the appointment sent to the target; 0 if none was
	// sent. appointed is the sequence that the appointment requires.
	appointment uint32
	appointed   uint64
	// ping is the number of the last message sent. sentAt is when it was sent, 0 if all was acknowledged or it is to be
	// sent again at once. silent is of all messages, waitSilent of those that were sent after replies began to wait.
	ping               uint32
	silent, waitSilent silence
	tries              int  // resends without an answer
	refusals           int  // refusals of its appointment in a row
	counted            bool // counted among the snapshots under way to the member
	counters           int  // with so many counters
	unfit              bool // it answered that it could not accept an appointment yet
	// lapsed means that the heir has answered that it is not heir any more: what it has does
	// not count, until it accepts again. It is asked to do so even if nothing changes.
	lapsed bool
}

// silence is of a member that has not answered: since is when the oldest unanswered message was sent, 0 if all were
// answered, and ping the number of that message.
type silence struct {
	since limiter.Tick
	ping  uint32
}

// resend resets the target so that everything unacknowledged is sent again.
func (g *target) resend() {
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
	for _, at := range []*limiter.Tick{&g.sentAt, &g.silent.since, &g.waitSilent.since} {
		if *at != 0 {
			*at = now
		}
	}
}

// busy reports whether the ownership has pending work.
func (o *Ownership) busy(t *Step) bool {
	return o.suspended != 0 || o.dirtyAt != 0 && !onlyForDisk(t, o) ||
		len(o.withheld)+len(o.awaited)+len(o.inDoubt)+len(o.late)+len(o.Waits.waiters) > 0 || o.next != nil || o.revoking ||
		o.renew || o.handover != nil ||
		o.heir != nil && (o.heir.lapsed || o.heir.sent > o.heir.acked)
}

// tracks reports whether changes must be recorded because a member has, or is getting, a
// copy.
func (o *succession) tracks() bool { return o.heir != nil || o.next != nil }

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
	return min(l.Capacity(), l.Limit())
}

// cap returns how many units a key may have answered at present that its heir has not
// acknowledged.
func (o *Ownership) cap(t *Step, r *limiter.Rule) uint64 {
	if o.isolated(t) {
		return math.MaxUint64
	}
	return o.capOver(t, r, lag(r))
}

// capOver is cap for an owner that has, or could have, an heir. d is the rule's [lag].
func (o *Ownership) capOver(t *Step, r *limiter.Rule, d uint64) uint64 {
	switch {
	case !o.byPolicy || o.closed:
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

// isolated reports whether no member can be this owner's heir, so that no reply is
// withheld. For a closed partition it is true only if no other member can have a copy.
func (o *succession) isolated(t *Step) bool {
	v := t.View
	if o.heir != nil || o.renew || o.revoking {
		return false
	}
	if o.closed {
		if o.n0(t, true) == 1 {
			o.soleCopy = true
		}
		return o.soleCopy
	}
	return v.NoOtherActive()
}

// Charged records that a decision changed a key and, unless id is nil, whether that id is
// remembered for it: the heir gets both in one batch, never one without the other. With came the id has just come
// to those of the partition. It returns
// the stamp of the change, and whether the reply must wait for the heir: that of a lease always does, if there could
// be an heir. cost is 0 if the decision admitted nothing.
func (o *Ownership) Charged(t *Step, k *arith.Key, id *arith.Idempotency, came bool,
	cost uint64) (stamp uint64, wait bool) {
	guarded := !o.isolated(t)
	o.held.saving.charged(k, id, cost)
	if !o.tracks() && !guarded {
		return forDisk(t, o), false
	}
	if id != nil && k.Cost > 0 {
		if o.ids.some = true; came && o.held.saving == nil {
			o.ids.open++
		} else {
			// Before its key, so that a copy that has no room for both takes the id alone.
			o.mark(table.IDOf(k, id.ID).Hi)
		}
	}
	d := o.mark(k.Hash.Hi)
	if d.newSeq != o.open {
		d.old, d.oldSeq = d.old+d.new, d.newSeq
		d.new, d.newSeq = 0, o.open
	}
	if o.dirtyAt == 0 {
		o.dirtyAt = t.Now
		t.Watch = true
	}
	if cost == 0 || k.Rule.Replication == limiter.ReplicationOff {
		return o.open, false
	}
	d.new += cost
	most := lag(k.Rule)
	if lent := id != nil && id.Lent; guarded && (lent || d.old+d.new > o.capOver(t, k.Rule, most)) {
		d.new -= cost
		o.makeUrgent(t)
		return o.open, true
	}
	if d.old+d.new >= most {
		o.makeUrgent(t)
	}
	return o.open, false
}

// Imported records that a key was changed by an operator. Its copies get that at the end of the turn.
func (o *Ownership) Imported(t *Step, hi uint64) {
	if o.Charged(t, &arith.Key{Hash: arith.Hash{Hi: hi}}, nil, false, 0); o.dirtyAt != 0 {
		o.makeUrgent(t)
	}
}

// makeUrgent makes the batch urgent: it is sent at the end of the turn.
func (o *changes) makeUrgent(t *Step) {
	if !o.urgent {
		o.urgent, t.Flush = true, true
	}
}

// mark returns the dirty entry of a key, stamped with the open batch; it adds one if
// there is none.
func (o *changes) mark(hi uint64) *dirtyKey {
	if d := o.dirty.find(hi); d != nil {
		d.last = o.open
		return d
	}
	return o.dirty.add(dirtyKey{hi: hi, last: o.open})
}

// acknowledged records that the heir has all changes up to seq, and releases replies
// that need not wait any longer.
func (o *Ownership) acknowledged(t *Step, seq uint64) {
	o.dirty.acknowledged(seq)
	o.forgetCopied()
	o.byPolicy = false
	o.release(t)
}

// copied returns the sequence up to which every copy has all changes.
func (o *succession) copied() uint64 {
	least := uint64(math.MaxUint64)
	if o.heir != nil {
		least = o.heir.acked
	}
	if o.next != nil && o.next.begun {
		least = min(least, o.next.acked)
	}
	return least
}

// tickOwner does the owner's work that is due. If an available partition's heir is
// silent for too long, it lets the policy decide which withheld replies may go.
func (p *Replica) tickOwner(t *Step) {
	own := p.own
	own.expireWithheld(t, p.owner)
	own.preparations.expire(t, p.owner)
	if own.waitSince != 0 && !own.byPolicy && !p.closed && own.silentHeir(t) {
		own.byPolicy = true
		t.event(Raised)
		own.release(t)
	}
	if own.suspended != 0 && t.Now >= own.suspendedUntil {
		own.suspended = 0
	}
	own.suspend(t)
	p.tickHandover(t)
	p.Flush(t)
}

// Source returns in which role this node decides. After a takeover it is the heir until
// an heir of its own has accepted, or no member could be its heir.
func (p *Replica) Source(t *Step) limiter.Source {
	if p.own != nil && p.own.tookOver && p.own.heir == nil && !p.own.isolated(t) {
		return limiter.SourceHeir
	}
	return limiter.SourceOwner
}

// RoomFor reports whether an admission of a key could be answered at once, without the
// heir's acknowledgement.
func (o *Ownership) RoomFor(t *Step, k *arith.Key) bool {
	limit := o.cap(t, k.Rule)
	if limit == math.MaxUint64 {
		return true
	}
	return k.Cost+o.dirty.unacknowledged(k.Hash.Hi) <= limit
}

// Lineage names the decisions of this node in receipts: its instance, which is random.
// Epochs would not do. Two sides of a split count them alike, and the partitions of one
// check have several.
func (p *identity) Lineage() uint64 { return uint64(p.node.Self) }

// Issued reports whether a receipt was given by this node under its present ownership.
func (o *Ownership) Issued(r limiter.Receipt) bool {
	f := arith.Fields(&r)
	return f.Epoch == o.Lineage() && f.Time >= o.at
}

// TookAfter reports whether this ownership began, or merged what another owner had, after an instant of the
// counters' clock.
func (o *tenure) TookAfter(at limiter.Tick) bool { return o.took > at }

// ChargedHere reports whether the charge of a remembered id, made at an instant, was made under this
// ownership for sure. What was charged elsewhere has the instant at which it came at the latest: what
// is under way gets no older.
func (o *tenure) ChargedHere(at limiter.Tick) bool { return at > o.took }
