package members

import (
	"maps"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Gossip proposes members and their addresses. Unless gossip is encrypted, anyone who
// reaches its port may send anything. Links exist only between members, because both
// sides of a link have proved that they know the secret. So links decide that a name is
// a member's, that a member leaves or is forgotten, and that it is alive. A member
// reports over its links about itself, and about others of which links have told it. See
// docs/decisions.md, "Gossip finds members, links judge them".

// roll decides which of the members that gossip reports count, by what links say:
//
//   - A name counts once an instance of it has shown itself over a link.
//   - A member that is in the view and answers on its link stays, whatever gossip says,
//     until the link says that it leaves.
//   - A member that is not live any more has left if its link said so, or if a link said
//     that it leaves and gossip says that it is gone. Otherwise it is dead, and counts.
type roll struct {
	live  []peer.Member          // those that count as live, by name, without this node
	heard []peer.Member          // live according to gossip, sorted by name, without this node
	dead  map[string]peer.Member // dead according to gossip
	// sighted are the members of heard that no link has shown yet. This node connects to
	// them.
	sighted []peer.Member
	// kept are in the view although gossip does not report them as live.
	kept []peer.Member
	// lost were in the view, and count as dead.
	lost map[string]peer.Member
	// contested means that gossip and links disagree, so that the judgement must be
	// repeated.
	contested bool
}

// hear records what gossip reports now.
func (r *roll) hear(self string, members []peer.Member) {
	r.heard, r.dead = nil, make(map[string]peer.Member)
	for i := range members {
		switch o := members[i]; {
		case o.Name == self:
		case o.State == peer.Dead:
			r.dead[o.Name] = o
		default:
			r.heard = append(r.heard, o)
		}
	}
	slices.SortFunc(r.heard, byName)
}

func byName(a, b peer.Member) int { return strings.Compare(a.Name, b.Name) }

// judge decides anew which members count as live. It returns the members that links and
// gossip agree to be gone. self is this node.
func (r *roll) judge(c Core, self peer.Member, now limiter.Tick) (gone []peer.Known) {
	was := make(map[string]peer.Member, len(r.live))
	for _, o := range r.live {
		was[o.Name] = o
	}
	if r.lost == nil {
		r.lost = make(map[string]peer.Member)
	}
	known := c.Registry()
	r.live, r.sighted, r.kept, r.contested = nil, nil, nil, false
	said := make(map[string]bool, len(r.heard)) // names that gossip reports as live
	for _, o := range r.heard {
		said[o.Name] = true
		old, had := was[o.Name]
		if known.Expelled(o.Name) {
			continue
		}
		switch another := had && old.Instance != o.Instance; {
		case another && c.Answers(old.Instance, true):
			r.keep(known, old, now) // a name does not pass to another instance while the present one answers
		case !c.Met(o.Name, o.Instance):
			r.sighted = append(r.sighted, o)
			if had {
				r.lost[o.Name] = old
			} else {
				r.back(c, o.Name, now)
			}
		default:
			if had && !another && c.Reaches(o.Instance) {
				o.State = known.statedBy(old, o)
			}
			if o.State < peer.Leaving && known.Leaves(o.Name, o.Instance, now) {
				o.State, r.contested = peer.Leaving, true // until gossip knows, or it is believed no more
			}
			r.live = append(r.live, o)
			delete(r.lost, o.Name)
		}
		delete(was, o.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		old := was[name]
		_, dead := r.dead[name]
		if known.Expelled(name) {
			continue
		}
		if left := known.SaidGone(name, old.Instance, dead); !left && c.Answers(old.Instance, true) {
			r.keep(known, old, now)
		} else {
			r.lost[name] = old
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.lost)) {
		old := r.lost[name]
		_, dead := r.dead[name]
		switch _, evicted := was[name]; {
		case known.Expelled(name):
			delete(r.lost, name)
		case said[name]:
		case known.SaidGone(name, old.Instance, dead):
			gone = append(gone, known.Left(name, old.Instance))
			delete(r.lost, name)
		case evicted:
			r.contested = r.contested || c.Reaches(old.Instance) // it may have been paused only
		case !known.Counts(name):
			delete(r.lost, name)
		default:
			r.back(c, name, now)
		}
	}
	r.await(c, self, now)
	slices.SortFunc(r.live, byName)
	slices.SortFunc(gone, func(a, b peer.Known) int { return strings.Compare(a.Name, b.Name) })
	return gone
}

// back restores a lost member that answers: it was paused, or gossip is wrong.
func (r *roll) back(c Core, name string, now limiter.Tick) {
	old, ok := r.lost[name]
	if !ok || !c.Reaches(old.Instance) {
		return
	}
	r.contested = true
	if c.Answers(old.Instance, false) {
		r.keep(c.Registry(), old, now)
		delete(r.lost, name)
	}
}

// await asks the members that start and that gossip does not report, over their links. One
// that answers may be suspected here, or its gossip blocked, but it is on no other side of a
// split: it must not make a minority of this node. And if this node leaves and sees no other
// member that stays, one that answers enters the view: it can take the counters, which would be lost. A link
// does not say whether it remembers ids: a member of its name did, or this node does.
func (r *roll) await(c Core, self peer.Member, now limiter.Tick) {
	isolated := self.State == peer.Leaving && !r.anyStays()
	for _, k := range c.Registry().Awaited(now) {
		switch {
		case !c.Reaches(k.Instance):
		case c.Answers(k.Instance, false):
			if isolated {
				r.keep(c.Registry(), peer.Member{Name: k.Name, Instance: k.Instance, State: peer.Active,
					Wire: c.Registry().Wire(k.Name, self.Wire)}, now)
			}
			c.Registry().Arrives(k.Name, k.Instance, now)
		default:
			r.contested = true
		}
	}
}

// anyStays reports whether any other member is in the view that does not leave.
func (r *roll) anyStays() bool {
	return slices.ContainsFunc(r.live, func(o peer.Member) bool { return o.State != peer.Leaving })
}

// shutOut takes all members out of the view, since none has a link to this node. They count, and are tried again.
func (r *roll) shutOut() {
	for _, o := range r.live {
		if slices.Contains(r.kept, o) {
			r.lost[o.Name] = o
		} else {
			r.sighted = append(r.sighted, o)
		}
	}
	r.live, r.kept = nil, nil
	slices.SortFunc(r.sighted, byName)
}

// heirless reports whether this node would have no heir if it were active: gossip has told it of no
// active member, though one that counts, and does not leave, is connected.
func (r *roll) heirless(c Core, now limiter.Tick) bool {
	known := c.Registry()
	return !slices.ContainsFunc(r.live, func(o peer.Member) bool { return o.State == peer.Active }) &&
		slices.ContainsFunc(known.Dead(), func(k peer.Known) bool {
			return c.Reaches(k.Instance) && !known.Leaves(k.Name, k.Instance, now)
		})
}

// keep keeps a member in the view although gossip does not report it. Gossip cannot tell
// then that it leaves, so its link does.
func (r *roll) keep(known *Registry, o peer.Member, now limiter.Tick) {
	if known.Leaves(o.Name, o.Instance, now) {
		o.State = peer.Leaving
	}
	r.live = append(r.live, o)
	r.kept = append(r.kept, o)
	r.contested = true
}

// statedBy returns the state of a connected member whose state according to gossip is that
// of next. An instance never goes back to joining. Gossip is not believed that it leaves, if
// its link does not say so.
func (known *Registry) statedBy(old, next peer.Member) peer.State {
	switch {
	case old.State != peer.Leaving && next.State < old.State, next.State == peer.Leaving &&
		!known.SaidGone(next.Name, next.Instance, false):
		return old.State
	default:
		return next.State
	}
}

// Listed returns all members that this node knows except itself, by name: those that
// count as live, those that gossip reports as live and no link has shown yet, and the
// dead. They are also the members to connect to. One name may occur twice: first the
// instance that counts, then the one that gossip reports.
func (m *Membership) Listed() []peer.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Concat(m.roll.live, m.roll.sighted)
	kept := make(map[string]bool)
	for _, o := range m.roll.kept {
		kept[o.Name] = true
	}
	for _, o := range m.roll.heard {
		if kept[o.Name] && !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	for _, k := range m.config.Core.Registry().Dead() {
		if slices.ContainsFunc(out, func(o peer.Member) bool { return o.Instance == k.Instance }) {
			continue // gossip has it alive, and where it listens, which the registry of a node that starts does not know
		}
		o, ok := m.roll.lost[k.Name]
		if d, told := m.roll.dead[k.Name]; told && d.Instance == k.Instance {
			o, ok = d, true
		}
		if !ok {
			o = peer.Member{Name: k.Name, Instance: k.Instance}
		}
		o.State = peer.Dead
		out = append(out, o)
	}
	slices.SortStableFunc(out, byName)
	return out
}
