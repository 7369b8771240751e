package cluster

import (
	"slices"
	"sort"

	"github.com/weirlimit/weir/internal/peer"
)

// View is the members as one node sees them, and the ring of the active ones.
// It is immutable.
type View struct {
	// Members are those that are joining, active or leaving, this node included,
	// sorted by name.
	Members []peer.Member
	// Known is how many members there are by name that have not left, in any
	// state, this node included: N0 for closed partitions. Recent leaves out
	// those that have been dead for long: N0 for the others.
	Known, Recent int

	self  int
	ring  Ring
	names []peer.Instance // the ring's members
}

// NewView returns the view of the given members; ring is made of the names that
// [RingNames] returns for them.
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

// RingNames returns the names of those members that the ring is made of,
// sorted: the active ones, or the leaving ones where none is active.
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

// owner returns who should own a partition, 0 for nobody.
func (v *View) owner(p uint16) peer.Instance { return v.at(v.ring.Owner(ringPartition(p))) }

// successor returns who should own it without its owner.
func (v *View) successor(p uint16) peer.Instance { return v.at(v.ring.Successor(ringPartition(p))) }

func (v *View) at(i int) peer.Instance {
	if i < 0 || i >= len(v.names) {
		return 0
	}
	return v.names[i]
}

// member returns the member of that instance, or nil.
func (v *View) member(i peer.Instance) *peer.Member {
	for j := range v.Members {
		if v.Members[j].Instance == i {
			return &v.Members[j]
		}
	}
	return nil
}

// has tells whether an instance is in the view.
func (v *View) has(i peer.Instance) bool { return i != 0 && v.member(i) != nil }

// active tells whether an instance is in the view and active.
func (v *View) active(i peer.Instance) bool {
	m := v.member(i)
	return m != nil && m.State == peer.Active
}

// alone tells whether this node is the only active member.
func (v *View) alone(self peer.Instance) bool {
	for i := range v.Members {
		if m := &v.Members[i]; m.State == peer.Active && m.Instance != self {
			return false
		}
	}
	return true
}

// othersLeave tells whether every member that counts is in the view, and all but
// this node are leaving.
func (v *View) othersLeave(self peer.Instance) bool {
	for i := range v.Members {
		if m := &v.Members[i]; m.Instance != self && m.State != peer.Leaving {
			return false
		}
	}
	return v.Known == len(v.Members)
}

// joining returns how many members may soon be active.
func (v *View) joining() (n int) {
	for i := range v.Members {
		if v.Members[i].State == peer.Joining {
			n++
		}
	}
	return n
}

// n0 returns how many members count for the majority of a class.
func (v *View) n0(closed bool) int {
	if closed {
		return v.Known
	}
	return v.Recent
}

// minority tells whether no more than half of the members are in view.
func (v *View) minority() bool { return 2*len(v.Members) <= v.Recent }
