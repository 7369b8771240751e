package view

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/peer"
)

// second is a ring whose second member owns every partition and whose first would own it
// otherwise.
type second struct{}

func (second) Owner(int) int     { return 1 }
func (second) Successor(int) int { return 0 }

func member(name string, i peer.Instance, s peer.State) peer.Member {
	return peer.Member{Name: name, Instance: i, State: s}
}

// Only active members are in the ring, by name, and leaving ones if none is active.
func TestTheRingIsOfTheActiveMembers(t *testing.T) {
	all := []peer.Member{
		member("d", 4, peer.Leaving), member("c", 3, peer.Active), member("b", 2, peer.Joining), member("a", 1, peer.Active),
	}
	if got := RingNames(all); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("the ring is of %v", got)
	}
	if got := RingNames([]peer.Member{all[0], all[2]}); !slices.Equal(got, []string{"d"}) {
		t.Errorf("without active members the ring is of %v", got)
	}
	v := New(1, all, second{}, 0, 0)
	if v.Owner(7) != 3 || v.Successor(7) != 1 || v.RingOwner(7) != 2 {
		t.Errorf("owner %v, successor %v, index %d", v.Owner(7), v.Successor(7), v.RingOwner(7))
	}
	if shares := v.Shares(); len(shares) != 1 || shares[3] != 1 {
		t.Errorf("shares %v", shares)
	}
}

// A view answers who is in it and in which state, and its counts are never below the
// number of its members.
func TestAViewKnowsItsMembers(t *testing.T) {
	v := New(1, []peer.Member{
		member("a", 1, peer.Active), member("b", 2, peer.Joining), member("c", 3, peer.Leaving),
	}, second{}, 7, 2)
	if v.Known != 7 || v.Recent != 3 || v.N0(true) != 7 || v.N0(false) != 3 {
		t.Errorf("counts %d and %d", v.Known, v.Recent)
	}
	if !v.Has(3) || v.Has(4) || v.Has(0) || !v.Active(1) || v.Active(2) || v.Joining() != 1 || v.Member(2).Name != "b" ||
		v.Self().Name != "a" {
		t.Error("the members are not those that it was made of")
	}
	if v.Minority() {
		t.Error("three of three are a minority")
	}
	if !v.NoOtherActive() {
		t.Error("no other is active")
	}
	w := v.Recounted(3, 6)
	if w.Known != 3 || w.Recent != 6 || v.Known != 7 || !w.Minority() {
		t.Errorf("recounted %d and %d, and the first view %d", w.Known, w.Recent, v.Known)
	}
}

// A view without members has no owner.
func TestNoneHasNoOwner(t *testing.T) {
	if v := None(1); v.Owner(0) != 0 || v.Successor(0) != 0 || v.RingOwner(0) != -1 || v.Self() != nil {
		t.Error("a view without members has an owner")
	}
}
