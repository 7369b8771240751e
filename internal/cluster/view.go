package cluster

import (
	"slices"
	"sort"

	"github.com/weirlimit/weir/internal/peer"
)

// View is the members as one node sees them, with the ring of the active ones. It is
// immutable.
type View struct {
	// Members are the members that are joining, active or leaving, this node included,
	// sorted by name.
	Members []peer.Member
	// Known is the number of members by name that have not left, in any state, this node
	// included. Majorities for closed partitions are counted of it (N0). Recent leaves
	// out members that have been dead for long; it is N0 for available partitions.
	Known, Recent int

	self  int
	ring  Ring
	names []peer.Instance // instances of the ring's members, in the order of RingNames
}

// NewView returns the view of the given members. ring must be made of the names that
// [RingNames] returns for them. known and recent are raised to the number of members if
// they are lower.
func NewView(self peer.Instance, members []peer.Member, ring Ring, known, recent int) *View {
	v := &View{Members: slices.Clone(members), ring: ring, self: -1}
	sort.Slice(v.Members, func(i, j int) bool { return v.Members[i].Name < v.Members[j].Name })
	for i := range v.Members {
		if v.Members[i].Instance == self {
			v.self = i
		}
	}
	for _, name := range RingNames(v.Members) {
		for i := range v.Members {
			if v.Members[i].Name == name {
				v.names = append(v.names, v.Members[i].Instance)
			}
		}
	}
	v.Known, v.Recent = max(known, len(v.Members)), max(recent, len(v.Members))
	return v
}

// RingNames returns the sorted names of the members in the ring: the active ones, or the
// leaving ones if none is active.
func RingNames(members []peer.Member) []string {
	for _, state := range []peer.State{peer.Active, peer.Leaving} {
		var names []string
		for _, m := range members {
			if m.State == state {
				names = append(names, m.Name)
			}
		}
		if len(names) > 0 {
			slices.Sort(names)
			return names
		}
	}
	return nil
}

// owner returns the member that should own a partition; 0 if there is none.
func (v *View) owner(p uint16) peer.Instance { return v.at(v.ring.Owner(ringPartition(p))) }

// successor returns the member that should own it without its owner; 0 if there is none.
func (v *View) successor(p uint16) peer.Instance { return v.at(v.ring.Successor(ringPartition(p))) }

func (v *View) at(i int) peer.Instance {
	if i < 0 || i >= len(v.names) {
		return 0
	}
	return v.names[i]
}

// member returns the member with that instance, or nil.
func (v *View) member(i peer.Instance) *peer.Member {
	for j := range v.Members {
		if v.Members[j].Instance == i {
			return &v.Members[j]
		}
	}
	return nil
}

// has reports whether an instance is in the view.
func (v *View) has(i peer.Instance) bool { return i != 0 && v.member(i) != nil }

// active reports whether an instance is in the view and active.
func (v *View) active(i peer.Instance) bool {
	m := v.member(i)
	return m != nil && m.State == peer.Active
}

// alone reports whether no member other than this node is active.
func (v *View) alone(self peer.Instance) bool {
	for i := range v.Members {
		if m := &v.Members[i]; m.State == peer.Active && m.Instance != self {
			return false
		}
	}
	return true
}

// othersLeave reports whether every member that counts is in the view, and all but this
// node are leaving.
func (v *View) othersLeave(self peer.Instance) bool {
	for i := range v.Members {
		if m := &v.Members[i]; m.Instance != self && m.State != peer.Leaving {
			return false
		}
	}
	return v.Known == len(v.Members)
}

// joining returns how many members are joining, and so may soon be active.
func (v *View) joining() (n int) {
	for i := range v.Members {
		if v.Members[i].State == peer.Joining {
			n++
		}
	}
	return n
}

// n0 returns how many members count for the majority of a class of partitions.
func (v *View) n0(closed bool) int {
	if closed {
		return v.Known
	}
	return v.Recent
}

// minority reports whether no more than half of the members that count are in the view.
func (v *View) minority() bool { return 2*len(v.Members) <= v.Recent }
