package replica

import (
	"math"
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Reply is a decision whose reply is withheld, perhaps by several partitions. Its
// methods may be called under the locks of any of them. Its wait ends once: by the last
// Release, or by the first Refuse.
type Reply interface {
	// Facts returns what the replica must know of it.
	Facts() *Withheld
	// Over reports whether its wait has ended, perhaps in another partition, and back whether its
	// charge is taken back. Each partition takes back that of its own keys.
	Over() (over, back bool)
	// TakeBack ends its wait because its charge is taken back. It reports false if the wait had
	// ended already.
	TakeBack() bool
}

// Withheld is what a replica knows of a reply that is withheld. It does not change.
type Withheld struct {
	Charge  *arith.Charge
	Receipt limiter.Receipt
	Reset   bool // it is the reply to a reset: nothing is charged
	// Amends means that it is the reply to an amendment of a reservation. What settles a reservation stands
	// whatever becomes of the reply. Late means that it has charged ids that were not known, at the instant
	// of the receipt, and Extension, unless nil, is what it has extended: both are taken back like a charge.
	Amends, Late bool
	Extension    *table.Extension
	// Admits means that it is an amendment that may have admitted something.
	Admits bool
	// Since is when it began to wait, Until the deadline of its request.
	Since, Until limiter.Tick
	// Several means that it has keys of several partitions, each of which has been told by [Await].
	Several bool
}

// withheldReply is a reply that this partition withholds.
type withheldReply struct {
	Reply
	stamp uint64
}

// release sends the withheld replies that need not wait any longer: the heir has their
// charges, or they fit within [Ownership.cap].
func (o *Ownership) release(t *Step) {
	acked := uint64(0)
	if o.heir != nil && !o.heir.lapsed {
		acked = o.heir.acked
	}
	n := 0
	for _, h := range o.withheld {
		switch {
		case isOver(h):
			wakeAttempts(t, o, h)
		case h.stamp <= acked || o.admits(t, h):
			t.release(h.Reply)
			wakeAttempts(t, o, h)
		default:
			o.withheld[n] = h
			n++
		}
	}
	o.keepWithheld(n)
}

// admits reports whether a withheld reply fits within what may be answered now. If so,
// it counts the reply as answered.
func (o *Ownership) admits(t *Step, h withheldReply) bool {
	if w := h.Facts(); w.Reset || w.Amends {
		return undoubted(t, o, w.Admits)
	}
	charge := h.Facts().Charge
	if charge.ID != nil && charge.ID.Lent && !o.isolated(t) {
		return false // the heir has it first
	}
	for i := range charge.Len() {
		k := charge.Key(i)
		if k.Cost == 0 || k.Rule.Replication == limiter.ReplicationOff || !o.holds(k) {
			continue
		}
		have := o.dirty.unacknowledged(k.Hash.Hi)
		if limit := o.cap(t, k.Rule); limit != math.MaxUint64 && have+k.Cost > limit {
			return false
		}
	}
	for i := range charge.Len() {
		k := charge.Key(i)
		if k.Cost == 0 || !o.holds(k) {
			continue
		}
		if d := o.dirty.find(k.Hash.Hi); d != nil {
			if d.newSeq >= h.stamp {
				d.new += k.Cost
			} else {
				d.old, d.oldSeq = d.old+k.Cost, max(d.oldSeq, h.stamp)
			}
		}
	}
	return true
}

// everyEpoch is a counter that no reset is newer than.
const everyEpoch = math.MaxUint64

// takeBack undoes the charges of withheld replies, and tells their askers that this node is
// not the owner, because the state of an owner of an epoch with a counter counts from now
// on. The reply to a reset that is newer than that state stays withheld, since the reset is
// not undone: its asker would repeat it, and what was charged in between would be forgotten.
func (o *Ownership) takeBack(t *Step, counter uint64, owner peer.Epoch) {
	n := 0
	for _, h := range o.withheld {
		switch {
		case o.resetStands(h.Facts(), counter):
			o.withheld[n] = h
			n++
		case h.TakeBack():
			undoAlone(t, o, h)
			t.refuseReply(h.Reply, peer.NotOwner, owner)
			wakeAttempts(t, o, h)
		}
	}
	o.keepWithheld(n)
	endAwaited(t, o)
}

// resetStands reports whether a reply is that to a reset whose keys are left out of the
// state of an epoch with a counter, see [resets].
func (o *Ownership) resetStands(w *Withheld, counter uint64) bool {
	for i := range w.Charge.Len() {
		if k := w.Charge.Key(i); w.Reset && o.holds(k) && !o.resetSince(k.Hash.Hi, counter) {
			return false
		}
	}
	return w.Reset
}

// keepWithheld forgets all withheld replies but the first n, which still wait.
func (o *withholding) keepWithheld(n int) {
	clear(o.withheld[n:])
	o.withheld = o.withheld[:n]
	if n == 0 {
		o.waitSince, o.byPolicy = 0, false
	} else {
		o.waitSince = o.withheld[0].Facts().Since
	}
}

// isOver reports whether the wait of a reply has ended.
func isOver(r Reply) bool {
	over, _ := r.Over()
	return over
}

// undo takes back what a reply has charged to keys of this partition. What a handover has with it
// stands: the receiver may own already. A reset is not undone, but its id is forgotten: the
// next owner may lack the reset, and would get the id with what this one pushes. Nor is a reservation
// that was settled made again: the next owner settles its own, before it merges the counters.
func (o *Ownership) undo(t *Step, r Reply) {
	w := r.Facts()
	if o.handover != nil {
		return
	}
	switch store := o.node.Store; {
	case w.Reset:
	case w.Late:
		store.UndoSettled(int(o.id), t.At, w.Charge, arith.Fields(&w.Receipt).Time)
	case w.Extension != nil:
		store.TakeBack(t.At, w.Charge, *w.Extension)
	case w.Amends:
		return
	default:
		store.UndoIn(int(o.id), t.At, w.Charge, w.Receipt)
	}
	for i := range w.Charge.Len() {
		if k := w.Charge.Key(i); o.holds(k) {
			if w.Reset {
				o.node.Store.ForgetID(t.At, w.Charge, i, arith.Fields(&w.Receipt).Time)
			}
			o.Charged(t, k, w.Charge.ID, false, 0)
		}
	}
}

// undoAlone is undo for a reply that no other partition waits for. The others are undone by [endAwaited].
func undoAlone(t *Step, o *Ownership, r Reply) {
	if !r.Facts().Several {
		o.undo(t, r)
	}
}

// silentHeir reports whether replies have waited so long that the policy decides: the
// heir answered no ping in time that was sent after the replies began to wait.
//
// After a pause of this node, the heir may have taken over, and its message may be late
// because both nodes first work off what has piled up. So until the heir has answered a
// later ping, or EaseFor has passed, silentHeir reports false.
func (o *Ownership) silentHeir(t *Step) bool {
	h := o.heir
	if since, ping := o.node.Pace.Awake(); t.Now-since < EaseFor && int32(o.heard-ping) <= 0 {
		return false
	}
	if h == nil {
		return t.Now-o.waitSince >= pingWithin
	}
	return h.waitSilent.since != 0 && h.waitSilent.since >= o.waitSince &&
		t.Now-h.waitSilent.since >= o.node.Peers.Patience(h.to, pingWithin)
}

// expireWithheld takes back the charges of withheld replies whose deadline has passed.
func (o *Ownership) expireWithheld(t *Step, owner peer.Epoch) {
	n := 0
	for _, h := range o.withheld {
		switch {
		case isOver(h):
			wakeAttempts(t, o, h)
		case t.Now >= h.Facts().Until:
			if h.TakeBack() {
				undoAlone(t, o, h)
				t.refuseReply(h.Reply, peer.Overloaded, owner)
			}
			wakeAttempts(t, o, h)
		default:
			o.withheld[n] = h
			n++
		}
	}
	clear(o.withheld[n:])
	o.withheld = o.withheld[:n]
	if n == 0 {
		o.waitSince, o.byPolicy = 0, false
	}
	endAwaited(t, o)
}

// Withhold keeps a reply until the heir has the charge. stamp is what
// [Ownership.Charged] returned.
func (o *Ownership) Withhold(t *Step, r Reply, stamp uint64) {
	o.withheld = append(o.withheld, withheldReply{Reply: r, stamp: stamp})
	if o.waitSince == 0 {
		o.waitSince = t.Now
	}
	o.makeUrgent(t)
	t.Watch = true
}

// Await records that the reply to a check with keys of several partitions is withheld by this
// one or by another. If it waits there until its deadline, the charge of all keys is taken back.
func Await(t *Step, o *Ownership, r Reply) {
	o.awaited = append(o.awaited, r)
	t.Watch = true
}

// EndAwaited takes back what has been charged here by replies whose wait has ended so in another
// partition, if this node owns the partition still: with the same state.
func (p *Replica) EndAwaited(t *Step) {
	if p.own != nil {
		endAwaited(t, p.own)
	}
}

// endAwaited ends the waits of the attempts for replies that are over, and takes back what was charged here.
func endAwaited(t *Step, o *Ownership) {
	o.awaited = slices.DeleteFunc(o.awaited, func(r Reply) bool {
		over, back := r.Over()
		if back {
			o.undo(t, r)
		}
		if over {
			wakeAttempts(t, o, r)
		}
		return over
	})
}

// Confirm makes the heir acknowledge all that was done so far, even if it has changed
// nothing. It returns the stamp of that, and whether a reply must wait for it. admits means that
// something may have been admitted.
func Confirm(t *Step, o *Ownership, admits bool) (stamp uint64, wait bool) {
	if undoubted(t, o, admits) {
		return 0, false
	}
	if o.dirtyAt == 0 {
		o.dirtyAt = t.Now
	}
	o.makeUrgent(t)
	t.Watch = true
	return o.open, true
}

// undoubted reports whether an owner says without its heir's word that a reset or an amendment
// is done: no member can be its heir, or the policy answers in place of a silent one and nothing
// was admitted.
func undoubted(t *Step, o *Ownership, admits bool) bool {
	return o.isolated(t) || o.byPolicy && !admits
}

// Awaits reports whether any reply is withheld, here or, of a check with keys of several partitions, by another.
func (o *withholding) Awaits() bool { return len(o.withheld)+len(o.awaited) > 0 }

// Congested reports whether no further reply may be withheld.
func (o *withholding) Congested() bool { return max(len(o.withheld), len(o.awaited)) >= maxWithheld }
