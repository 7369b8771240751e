package cluster

import (
	"fmt"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// PartitionInfo describes what a node holds of a partition, for metrics, operators and
// the invariants of simulations.
type PartitionInfo struct {
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
	// Unacknowledged is the largest number of units that one key has answered and its
	// heir has not acknowledged.
	Unacknowledged uint64
	Withheld       int
	Parked         int
	Keys           int
	// WaitedFor is how long the oldest withheld reply has waited.
	WaitedFor limiter.Tick
}

// Partition returns what this node holds of a partition. ok is false if the core does
// not manage it.
func (c *Core) Partition(id int) (info PartitionInfo, ok bool) {
	if id < 0 || id >= len(c.byID) || c.byID[id] == nil {
		return PartitionInfo{}, false
	}
	p := c.byID[id]
	p.mu.Lock()
	defer p.mu.Unlock()
	info = PartitionInfo{
		ID: id, Role: p.role, Epoch: p.epoch, Seq: p.seq, Owner: p.owner, Heir: p.heir,
		Appointment: p.appointment, Fresh: p.fresh, Parked: len(p.parked), Keys: c.table.Count(id),
		Busy: p.round != nil || p.unpushed,
	}
	own := p.own
	if own == nil {
		return info, true
	}
	info.Heir, info.Appointment = 0, 0
	if own.heir != nil {
		info.Heir, info.Appointment = own.heir.to, own.heir.appointment
	}
	info.Busy = info.Busy || own.next != nil || own.revoking || own.renew || own.handover != nil
	info.Withheld = len(own.held)
	if own.waitSince != 0 {
		info.WaitedFor = c.sched.Now() - own.waitSince
	}
	for i := range own.dirty.list {
		d := &own.dirty.list[i]
		info.Unacknowledged = max(info.Unacknowledged, d.old+d.new)
	}
	return info, true
}

// Partitions returns the numbers of the partitions that the core manages.
func (c *Core) Partitions() []int {
	out := make([]int, len(c.parts))
	for i, p := range c.parts {
		out[i] = int(p.id)
	}
	return out
}

// View returns the present view.
func (c *Core) View() *view.View { return c.view.Load() }

// Reaches reports whether there is a direct connection to a member.
func (c *Core) Reaches(i peer.Instance) bool { return c.reachable(i) }

// Settled reports whether every partition is as the view calls for, as far as it depends
// on this node: owned by its owner in the ring, with the wanted member as heir.
func (c *Core) Settled() bool { return len(c.Unsettled(1)) == 0 }

// Unsettled returns the numbers of partitions that are not as the view calls for, at
// most as many as most.
func (c *Core) Unsettled(most int) (ids []int) {
	v := c.view.Load()
	for _, p := range c.parts {
		if len(ids) < most && !p.settled(v) {
			ids = append(ids, int(p.id))
		}
	}
	return ids
}

func (p *part) settled(v *view.View) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := v.Owner(p.id) == p.c.self
	switch {
	case p.fresh || p.unpushed || p.role == peer.Sealed || mine != (p.role == peer.Owned):
		return false
	case !mine:
		return true
	}
	own := p.own
	if own.next != nil || own.revoking || own.renew || own.handover != nil {
		return false
	}
	want := p.wanted(v)
	return own.heir == nil && want == 0 || own.heir != nil && own.heir.to == want
}

// Vacated reports whether a leaving node may go: it owns nothing, is no heir, and has
// nothing left to push. So what it handed over has another heir. It is also true if no
// member is left, or joining, that could take over.
func (c *Core) Vacated() bool {
	for _, p := range c.parts {
		if !p.vacated() {
			return false
		}
	}
	return true
}

func (p *part) vacated() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.c.view.Load()
	if v.NoOtherActive() && !v.Active(v.Owner(p.id)) && v.Joining() == 0 {
		return true // no member is left to take it, and none is joining
	}
	return p.role < peer.Heir && !p.unpushed && p.round == nil
}

// Informed reports whether this node has learned what others hold of every partition, so
// that it may grant claims and become heir.
func (c *Core) Informed() bool {
	for _, p := range c.parts {
		p.mu.Lock()
		fresh := p.fresh
		p.mu.Unlock()
		if fresh {
			return false
		}
	}
	return true
}

// short returns the first four characters of an instance.
func short(i peer.Instance) string { s := i.String(); return s[:4] }

// Describe returns one line on what this node holds and does of a partition, for
// debugging.
func (c *Core) Describe(id int) string {
	p := c.byID[id]
	p.mu.Lock()
	defer p.mu.Unlock()
	s := fmt.Sprintf("%v ep %d owner %d/%s heir %s", []string{"-", "copy", "HEIR", "SEALED", "OWNED"}[p.role], p.epoch.Counter, p.owner.Counter, short(p.owner.Instance), short(p.heir))
	if p.unpushed {
		s += " unpushed"
	}
	if p.fresh {
		s += " fresh"
	}
	if r := p.round; r != nil {
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
		s += fmt.Sprintf(" held %d rev %v renew %v want %s vo %s", len(o.held), o.revoking, o.renew, short(p.wanted(c.view.Load())), short(c.view.Load().Owner(p.id)))
	}
	return s
}
