package replica

import (
	"fmt"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Info describes what a node holds of a partition, for metrics, operators and the
// invariants of simulations.
type Info struct {
	ID   int
	Role peer.Role
	// Epoch and Seq identify the state held.
	Epoch peer.Epoch
	Seq   uint64
	// Owner is the highest ownership known. Heir is the heir announced for it; at an
	// owner it is the owner's heir.
	Owner peer.Epoch
	Heir  peer.Instance
	// Appointment is the number of the heir's appointment, at the owner and at the heir.
	Appointment uint32
	// Fresh means that the node has not learned yet what others hold. Busy means that
	// work is in progress.
	Fresh, Busy bool
	// GivenUp means that it broke twice, and nothing is held of it for a while.
	GivenUp bool
	// Unacknowledged is the largest number of units that one key has answered and its
	// heir has not acknowledged.
	Unacknowledged uint64
	// Changed is the number of keys that some copy lacks changes of, or whose changes the
	// heir has not acknowledged. InDoubt is the number of charges that may be taken
	// back, without late ones.
	Changed, InDoubt int
	// Suspended is the member that is not made heir for a while; 0 if there is none.
	Suspended peer.Instance
	// Withheld is the number of withheld replies. Parked is the number of requests that
	// wait until the owner is known, Waiting of those that wait until charges are
	// settled.
	Withheld, Parked, Waiting int
	Keys                      int
	// WaitedFor is how long the oldest withheld reply has waited.
	WaitedFor limiter.Tick
}

// Role returns what this node holds.
func (s *state) Role() peer.Role { return s.role }

// Own returns the ownership of this node, nil if it has none. This node decides, or has
// sealed, as long as it has one.
func (p *Replica) Own() *Ownership { return p.own }

// Owner returns the highest ownership known.
func (k *knowledge) Owner() peer.Epoch { return k.owner }

// Fresh reports whether the node has not learned yet what others hold.
func (k *knowledge) Fresh() bool { return k.fresh }

// Info returns what the node holds at the time now.
func (p *Replica) Info(now limiter.Tick) Info {
	info := Info{
		ID: int(p.id), Seq: p.seq, Owner: p.owner, Fresh: p.fresh, GivenUp: p.breakage.givenUp, Parked: len(p.waiting),
		Keys: p.node.Store.Count(int(p.id)),
		Busy: p.claiming.round != nil || p.pushing.unpushed,
	}
	info.Role, info.Epoch, info.Heir, info.Appointment = p.Claim()
	own := p.own
	if own == nil {
		return info
	}
	info.Busy = info.Busy || own.next != nil || own.revoking || own.renew || own.handover != nil
	info.Withheld, info.Waiting = len(own.withheld), len(own.Waits.waiters)
	info.Suspended = own.suspended
	info.Changed, info.InDoubt = len(own.dirty.list)+own.ids.charges(), len(own.inDoubt)
	if own.waitSince != 0 {
		info.WaitedFor = now - own.waitSince
	}
	for i := range own.dirty.list {
		d := &own.dirty.list[i]
		info.Unacknowledged = max(info.Unacknowledged, d.old+d.new)
	}
	return info
}

// Claim returns what the node is to the partition, under which epoch, and, if it owns it or is
// heir, the heir and the number of its appointment. It is a cheap part of Info.
func (p *Replica) Claim() (role peer.Role, epoch peer.Epoch, heir peer.Instance, appointment uint32) {
	switch {
	case p.own == nil:
		return p.role, p.epoch, p.heir, p.appointment
	case p.own.heir == nil:
		return p.role, p.epoch, 0, 0
	}
	return p.role, p.epoch, p.own.heir.to, p.own.heir.appointment
}

// Settled reports whether the partition is as the view calls for, as far as it depends
// on this node: owned by its owner in the ring, with the wanted member as heir.
func (p *Replica) Settled(t *Step) bool {
	mine := t.View.Owner(p.id) == p.node.Self
	switch {
	case p.fresh || p.pushing.unpushed || p.role == peer.Sealed || mine != (p.role == peer.Owned):
		return false
	case !mine:
		return true
	}
	own := p.own
	if own.next != nil || own.revoking || own.renew || own.handover != nil {
		return false
	}
	want := own.wanted(t)
	return own.heir == nil && want == 0 || own.heir != nil && own.heir.to == want && !own.heir.lapsed
}

// Drained reports whether a leaving node may go, as far as this partition is concerned:
// it does not own it, is not heir, and has nothing left to push; and what it read from its disk is not
// the state that an owner has yet to find. It is also true if no member is left, or joining, that could take over.
func (p *Replica) Drained(v *view.View) bool {
	if v.NoOtherActive() && !v.Active(v.Owner(p.id)) && v.Joining() == 0 {
		return true // no member is left to take it, and none is joining
	}
	if p.FromDisk() && !(p.outdated() && v.Has(p.owner.Instance)) {
		return false
	}
	return p.role < peer.Heir && !p.pushing.unpushed && p.claiming.round == nil
}

// short returns the first four characters of an instance.
func short(i peer.Instance) string { s := i.String(); return s[:4] }

// Describe returns one line on what this node holds and does, for debugging.
func (p *Replica) Describe(t *Step) string {
	s := fmt.Sprintf("%v ep %d owner %d/%s heir %s", []string{"-", "copy", "HEIR", "SEALED", "OWNED"}[p.role],
		p.epoch.Counter, p.owner.Counter, short(p.owner.Instance), short(p.heir))
	if p.pushing.unpushed {
		s += " unpushed"
	}
	if p.fresh {
		s += " fresh"
	}
	if r := p.claiming.round; r != nil {
		s += fmt.Sprintf(" round %d c%d", r.kind, r.counter)
		for i, w := range r.whom {
			a := r.answers[i]
			s += " " + short(w)
			if a.has {
				s += fmt.Sprintf("=%d%v%v", a.Role, a.Granted, a.Fresh)
			}
		}
	}
	if o := p.own; o != nil {
		if o.heir != nil {
			s += fmt.Sprintf(" heir %s/%d", short(o.heir.to), o.heir.appointment)
		}
		if o.next != nil {
			s += fmt.Sprintf(" next %s/%d %v %v", short(o.next.to), o.next.appointment, o.next.begun, o.next.whole)
		}
		if o.handover != nil {
			s += fmt.Sprintf(" handover %d %s", o.handover.next.Counter, short(o.handover.next.Instance))
		}
		s += fmt.Sprintf(" held %d rev %v renew %v want %s vo %s", len(o.withheld), o.revoking, o.renew, short(o.wanted(t)),
			short(t.View.Owner(p.id)))
	}
	return s
}
