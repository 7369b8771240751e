package members

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// town is a registry of node "a", which has met "b" and "m".
func town() *Registry {
	r := NewRegistry("a")
	r.Set([]peer.Member{{Name: "a", Instance: 1}, {Name: "b", Instance: 2}, {Name: "m", Instance: 9}}, nil, 10)
	r.Hear(2, []peer.Known{{Name: "b", Instance: 2}}, true, 10)
	r.Hear(9, []peer.Known{{Name: "m", Instance: 9}}, true, 10)
	return r
}

// invented are names that nobody has met.
func invented(n int) (all []peer.Known) {
	for i := range n {
		all = append(all, peer.Known{Name: fmt.Sprint("ghost-", i), Instance: peer.Instance(1000 + i), Joining: i%2 == 0})
	}
	return all
}

// TestInventedNamesDoNotCount: names that one member alone tells of count for nothing, are not
// told on, and are no members that gossip may bring, however often it says so, relayed too, and
// when it is dead.
func TestInventedNamesDoNotCount(t *testing.T) {
	r := town()
	for _, direct := range []bool{true, false, true} {
		news, known, recent := r.Hear(9, invented(1000), direct, 20)
		if known != 3 || recent != 3 || len(news) != 0 {
			t.Fatalf("%d and %d count, %d are told on", known, recent, len(news))
		}
	}
	if r.Met("ghost-1", 1001) || r.Counts("ghost-1") || len(r.Dead()) != 0 || len(r.Awaited(20+limiter.Minute)) != 0 {
		t.Error("an invented name is a member's")
	}
	known, recent := r.Set([]peer.Member{{Name: "a", Instance: 1}, {Name: "b", Instance: 2}}, nil, 30)
	if known != 3 || recent != 3 || len(r.All(30)) != 3 {
		t.Errorf("it is dead, and %d and %d count; %v", known, recent, r.All(30))
	}
	if n := len(r.known); n > 3+maxUnproven {
		t.Errorf("%d names are remembered", n)
	}
}

// TestWhoIsNotMetIsNoWitness: several nodes start, and this one is connected to one of them, which tells of the
// others. They come into the view by its word, stay there together, and count for nothing once it is outvoted.
func TestWhoIsNotMetIsNoWitness(t *testing.T) {
	r := NewRegistry("a")
	r.Set([]peer.Member{{Name: "a", Instance: 1}, {Name: "b", Instance: 2}}, nil, 10)
	r.Hear(2, []peer.Known{{Name: "b", Instance: 2}, {Name: "c", Instance: 3}, {Name: "d", Instance: 4}}, true, 10)
	all := []peer.Member{
		{Name: "a", Instance: 1}, {Name: "b", Instance: 2}, {Name: "c", Instance: 3}, {Name: "d", Instance: 4},
	}
	if known, _ := r.Set(all, nil, 20); known != 4 || !r.Met("c", 3) || !r.Met("d", 4) {
		t.Errorf("%d count when all are in the view, and those of whom one member tells leave it again", known)
	}
	r.Hear(5, []peer.Known{{Name: "e", Instance: 5}}, true, 30)
	view := append(slices.Clone(all[:2]), peer.Member{Name: "e", Instance: 5})
	if known, recent := r.Set(view, nil, 30); known != 3 || recent != 3 || r.Met("c", 3) {
		t.Errorf("%d and %d count once another member does not tell of two", known, recent)
	}
}

// TestWhoStartsDoesNotTellOnAnInvention: a node that has just started knows only the liar, whose
// names count there until it knows another, and what it tells on is that one member's word.
func TestWhoStartsDoesNotTellOnAnInvention(t *testing.T) {
	fresh := NewRegistry("b")
	fresh.Set([]peer.Member{{Name: "b", Instance: 3}, {Name: "m", Instance: 9}}, nil, 10)
	if _, known, _ := fresh.Hear(9, append([]peer.Known{{Name: "m", Instance: 9}}, invented(5)...), true, 10); known != 7 {
		t.Fatalf("%d count of what the only other member says", known)
	}
	r := town()
	r.Hear(9, invented(5), true, 20)
	if _, known, _ := r.Hear(3, append(fresh.All(20), peer.Known{Name: "b", Instance: 3}), true, 20); known != 3 {
		t.Errorf("%d count: a member that has just started told on what it was told", known)
	}
	if known, _ := fresh.Set([]peer.Member{{Name: "a", Instance: 1}, {Name: "b", Instance: 3}, {Name: "m", Instance: 9}},
		nil, 30); known != 3 {
		t.Errorf("it knows another, and %d count", known)
	}
}

// TestTheDeadOutliveRestarts: a dead member counts on though those that met it have restarted, one
// after another, while the others tell of it.
func TestTheDeadOutliveRestarts(t *testing.T) {
	told := []peer.Known{{Name: "a", Instance: 1}, {Name: "dead", Instance: 7}}
	for i := range 4 {
		self, other := []string{"b", "a"}[i%2], []string{"a", "b"}[i%2]
		from := slices.IndexFunc(told, func(k peer.Known) bool { return k.Name == other })
		r := NewRegistry(self)
		r.Set([]peer.Member{{Name: self, Instance: peer.Instance(20 + i)}, {Name: other, Instance: told[from].Instance}}, nil,
			10)
		if _, known, _ := r.Hear(told[from].Instance, told, true, 10); known != 3 {
			t.Fatalf("after %d restarts %d count", i+1, known)
		}
		told = r.All(20)
	}
}

// TestInventionsEndWithTheirTeller: what counted by an expelled member's word ends with it, and
// what another has said too stays.
func TestInventionsEndWithTheirTeller(t *testing.T) {
	r := NewRegistry("a")
	r.Set([]peer.Member{{Name: "a", Instance: 1}, {Name: "m", Instance: 9}}, nil, 10)
	r.Hear(9, append([]peer.Known{{Name: "m", Instance: 9}}, invented(5)...), true, 10)
	r.Hear(2, []peer.Known{{Name: "b", Instance: 2}, {Name: "ghost-1", Instance: 1001}}, true, 10)
	expel(t, r, "m", false, 20)
	if known, _ := r.Set([]peer.Member{{Name: "a", Instance: 1}}, nil, 30); known != 3 || !r.Counts("ghost-1") ||
		r.Counts("ghost-2") {
		t.Errorf("%d count: %v", known, r.All(30))
	}
}

// What a member says of its source is kept, so it has the bound of a name.
func TestALongSourceIsNotBelieved(t *testing.T) {
	k := peer.Known{Name: "x", Instance: 1, Source: strings.Repeat("s", maxNameLen)}
	if !Valid(&k) {
		t.Error("a source as long as a name may be is refused")
	}
	if k.Source += "s"; Valid(&k) {
		t.Error("a longer one is believed")
	}
}
