// Package view has the members as one node sees them, and the ring of the active ones.
package view

import (
	"fmt"
	"slices"
	"sort"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter/table"
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

	self  peer.Instance
	wire  uint16 // the lowest version of the wire that a member speaks
	ring  Ring
	names []peer.Instance // instances of the ring's members, in the order of RingNames
}

// Ring assigns each partition to an active member. Owner returns the owner, Successor
// the member that would own the partition without that owner. Members are indices into
// the sorted names that the ring was made of; -1 is no member.
type Ring interface {
	Owner(partition int) int
	Successor(partition int) int
}

// ringPartition returns the partition of the ring for a partition number. The ring has
// one class of partitions; the closed and the available partition of the same index
// share its owner.
func ringPartition(id uint16) int { return int(id) % table.Partitions }

// None returns a view without members, in which no member owns anything.
func None(self peer.Instance) *View { return New(self, nil, noRing{}, 0, 0) }

type noRing struct{}

func (noRing) Owner(int) int     { return -1 }
func (noRing) Successor(int) int { return -1 }

// New returns the view of the given members as the node self sees them. ring must be made of the names that
// [RingNames] returns for them. known and recent are raised to the number of members if
// they are lower.
func New(self peer.Instance, members []peer.Member, ring Ring, known, recent int) *View {
	v := &View{Members: slices.Clone(members), ring: ring, self: self}
	sort.Slice(v.Members, func(i, j int) bool { return v.Members[i].Name < v.Members[j].Name })
	for _, name := range RingNames(v.Members) {
		for i := range v.Members {
			if v.Members[i].Name == name {
				v.names = append(v.names, v.Members[i].Instance)
			}
		}
	}
	v.Known, v.Recent = max(known, len(v.Members)), max(recent, len(v.Members))
	for i := range v.Members {
		if w := v.Members[i].Wire; i == 0 || w < v.wire {
			v.wire = w
		}
	}
	return v
}

// Speaks reports whether all members speak a version of the wire, or a later one.
func (v *View) Speaks(wire uint16) bool { return v.wire >= wire }

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

// Owner returns the member that should own a partition; 0 if there is none.
func (v *View) Owner(p uint16) peer.Instance { return v.at(v.ring.Owner(ringPartition(p))) }

// Successor returns the member that should own a partition without its owner; 0 if there
// is none.
func (v *View) Successor(p uint16) peer.Instance { return v.at(v.ring.Successor(ringPartition(p))) }

func (v *View) at(i int) peer.Instance {
	if i < 0 || i >= len(v.names) {
		return 0
	}
	return v.names[i]
}

// Self returns this node as it is in the view; nil if it is not in it.
func (v *View) Self() *peer.Member { return v.Member(v.self) }

// Recounted returns the same view with other counts. They are raised to the number of
// members if they are lower.
func (v *View) Recounted(known, recent int) *View {
	next := *v
	next.Known, next.Recent = max(known, len(v.Members)), max(recent, len(v.Members))
	return &next
}

// Member returns the member with that instance, or nil.
func (v *View) Member(i peer.Instance) *peer.Member {
	for j := range v.Members {
		if v.Members[j].Instance == i {
			return &v.Members[j]
		}
	}
	return nil
}

// NameOf returns the name of a member, or a word for one that is not in the view.
func (v *View) NameOf(i peer.Instance) string {
	if m := v.Member(i); m != nil {
		return m.Name
	}
	return fmt.Sprintf("instance %x", uint64(i))
}

// Has reports whether an instance is in the view.
func (v *View) Has(i peer.Instance) bool { return i != 0 && v.Member(i) != nil }

// Active reports whether an instance is in the view and active.
func (v *View) Active(i peer.Instance) bool {
	m := v.Member(i)
	return m != nil && m.State == peer.Active
}

// NoOtherActive reports whether no member other than this node is active.
func (v *View) NoOtherActive() bool {
	for i := range v.Members {
		if m := &v.Members[i]; m.State == peer.Active && m.Instance != v.self {
			return false
		}
	}
	return true
}

// Joining returns how many members are joining, and so may soon be active.
func (v *View) Joining() (n int) {
	for i := range v.Members {
		if v.Members[i].State == peer.Joining {
			n++
		}
	}
	return n
}

// N0 returns how many members count for the majority of a class of partitions.
func (v *View) N0(closed bool) int {
	if closed {
		return v.Known
	}
	return v.Recent
}

// Minority reports whether no more than half of the members that count are in the view.
func (v *View) Minority() bool { return 2*len(v.Members) <= v.Recent }

// Shares returns the share of the partitions, from 0 to 1, that each member should own.
// Members without any are left out.
func (v *View) Shares() map[peer.Instance]float64 {
	counts := make(map[peer.Instance]int)
	for p := range uint16(table.Partitions) {
		if i := v.Owner(p); i != 0 {
			counts[i]++
		}
	}
	out := make(map[peer.Instance]float64, len(counts))
	for i, n := range counts {
		out[i] = float64(n) / table.Partitions
	}
	return out
}

// RingOwner returns the index in Members of the member that should own a partition of
// the ring, in both classes; -1 if there is none.
func (v *View) RingOwner(p int) int {
	if i := v.Owner(uint16(p)); i != 0 {
		for at := range v.Members {
			if v.Members[at].Instance == i {
				return at
			}
		}
	}
	return -1
}
