package cluster

import (
	"fmt"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// PartitionInfo is what a node holds of a partition, for metrics, operators and
// the invariants of simulations.
type PartitionInfo struct {
	ID   int
	Role peer.Role
	// Epoch and Seq are of the state that is held.
	Epoch peer.Epoch
	Seq   uint64
	// Owner is the highest ownership known, Heir the heir announced for it; of an
	// owner, its own heir.
	Owner peer.Epoch
	Heir  peer.Instance
	// Appointment numbers the heir, of an owner and of the heir itself.
	Appointment uint32
	// Fresh tells that the node has not learned yet what others know. Busy tells
	// that something is under way.
	Fresh, Busy bool
	// Unacknowledged is the largest cost that a key has answered and its heir not
	// acknowledged, of keys whose rule has no policy at work; Lag the batches
	// that are not acknowledged.
	Unacknowledged uint64
	Withheld       int
	Parked         int
	Keys           int
	// WaitedFor is how long the oldest withheld reply has waited.
	WaitedFor limiter.Tick
}

// Partition returns what this node holds of a partition.
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

// Partitions returns the numbers of the partitions that are looked after.
func (c *Core) Partitions() []int {
	out := make([]int, len(c.parts))
	for i, p := range c.parts {
		out[i] = int(p.id)
	}
	return out
}

// View returns the view that is in force.
func (c *Core) View() *View { return c.view.Load() }

// Reaches tells whether there is a direct connection to a member.
func (c *Core) Reaches(i peer.Instance) bool { return c.reachable(i) }

// Settled tells whether every partition is as the view calls for: owned by its
// owner in the ring, with its successor as heir, as far as this node has a part
// in it.
func (c *Core) Settled() bool { return len(c.Unsettled(1)) == 0 }

// Unsettled returns partitions that are not yet as the view calls for, so many
// at most.
func (c *Core) Unsettled(most int) (ids []int) {
	v := c.view.Load()
	for _, p := range c.parts {
		if len(ids) < most && !p.settled(v) {
			ids = append(ids, int(p.id))
		}
	}
	return ids
}

func (p *part) settled(v *View) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := v.owner(p.id) == p.c.self
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

// Vacated tells whether a leaving node may go: it owns nothing, is nobody's
// heir, and what it gave away has an heir, if anyone is left to be one.
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
	if v.alone(p.c.self) && !v.active(v.owner(p.id)) && v.joining() == 0 {
		return true // nobody is left to take it, and nobody comes
	}
	return p.role < peer.Heir && !p.unpushed && p.round == nil
}

// Informed tells whether this node has learned what others know of every
// partition: it has a say, and may become heir.
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

// short returns the beginning of an instance.
func short(i peer.Instance) string { s := i.String(); return s[:4] }

// Describe tells in one line what this node holds and does of a partition, for
// people who look for what went wrong.
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
		s += fmt.Sprintf(" held %d rev %v renew %v want %s vo %s", len(o.held), o.revoking, o.renew, short(p.wanted(c.view.Load())), short(c.view.Load().owner(p.id)))
	}
	return s
}
