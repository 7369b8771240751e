package members

import (
	"fmt"
	"math/rand/v2"
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
	r.Hear(2, []peer.Known{{Name: "b", Instance: 2}}, 0, 10)
	r.Hear(9, []peer.Known{{Name: "m", Instance: 9}}, 0, 10)
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
	for _, via := range []peer.Instance{0, 2, 0} {
		news, known, recent := r.Hear(9, invented(1000), via, 20)
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
	if n := len(r.census.known); n > 3+maxUnproven {
		t.Errorf("%d names are remembered", n)
	}
}

// TestWhoIsNotMetIsNoWitness: several nodes start, and this one is connected to one of them, which tells of the
// others. They come into the view by its word, stay there together, and count for nothing once it is outvoted.
func TestWhoIsNotMetIsNoWitness(t *testing.T) {
	r := NewRegistry("a")
	r.Set([]peer.Member{{Name: "a", Instance: 1}, {Name: "b", Instance: 2}}, nil, 10)
	r.Hear(2, []peer.Known{{Name: "b", Instance: 2}, {Name: "c", Instance: 3}, {Name: "d", Instance: 4}}, 0, 10)
	all := []peer.Member{
		{Name: "a", Instance: 1}, {Name: "b", Instance: 2}, {Name: "c", Instance: 3}, {Name: "d", Instance: 4},
	}
	if known, _ := r.Set(all, nil, 20); known != 4 || !r.Met("c", 3) || !r.Met("d", 4) {
		t.Errorf("%d count when all are in the view, and those of whom one member tells leave it again", known)
	}
	r.Hear(5, []peer.Known{{Name: "e", Instance: 5}}, 0, 30)
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
	if _, known, _ := fresh.Hear(9, append([]peer.Known{{Name: "m", Instance: 9}}, invented(5)...), 0, 10); known != 7 {
		t.Fatalf("%d count of what the only other member says", known)
	}
	r := town()
	r.Hear(9, invented(5), 0, 20)
	if _, known, _ := r.Hear(3, append(fresh.All(20), peer.Known{Name: "b", Instance: 3}), 0, 20); known != 3 {
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
		if _, known, _ := r.Hear(told[from].Instance, told, 0, 10); known != 3 {
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
	r.Hear(9, append([]peer.Known{{Name: "m", Instance: 9}}, invented(5)...), 0, 10)
	r.Hear(2, []peer.Known{{Name: "b", Instance: 2}, {Name: "ghost-1", Instance: 1001}}, 0, 10)
	expel(t, r, "m", false, 20)
	if known, _ := r.Set([]peer.Member{{Name: "a", Instance: 1}}, nil, 30); known != 3 || !r.Counts("ghost-1") ||
		r.Counts("ghost-2") {
		t.Errorf("%d count: %v", known, r.All(30))
	}
}

// Who told a name on is kept, so it has the bounds of names.
func TestALongPathIsNotBelieved(t *testing.T) {
	k := peer.Known{Name: "x", Instance: 1, Path: slices.Repeat([]string{strings.Repeat("s", maxNameLen)}, maxPath)}
	if !Valid(&k) {
		t.Error("a path as long as it may be is refused")
	}
	for _, longer := range [][]string{append(k.Path, "s"), {k.Path[0] + "s"}} {
		if k.Path = longer; Valid(&k) {
			t.Errorf("a path of %d is believed", len(longer))
		}
	}
}

// beginners are the registries of members that start at once, by name.
type beginners struct {
	all  map[string]*Registry
	now  limiter.Tick
	view map[string][]string
}

var instances = map[string]peer.Instance{"a": 1, "b": 2, "c": 3, "m": 9}

func begin(names ...string) *beginners {
	b := &beginners{all: make(map[string]*Registry), now: 10, view: make(map[string][]string)}
	for _, name := range names {
		b.all[name] = NewRegistry(name)
		b.see(name, name)
	}
	return b
}

// see has a member see others, beside those that it saw before and that links have shown.
func (b *beginners) see(at string, names ...string) {
	b.view[at] = append(b.view[at], names...)
	var view []peer.Member
	for _, name := range b.view[at] {
		i := instances[name]
		if i == 0 {
			i = 1000
		}
		if name == at || b.all[at].Met(name, i) {
			view = append(view, peer.Member{Name: name, Instance: i, State: peer.Active})
		}
	}
	b.all[at].Set(view, nil, b.now)
}

// tells has a member tell another all that it knows, as on a new link, and what that passes on at once.
func (b *beginners) tells(from, to string, more ...peer.Known) {
	known := append([]peer.Known{{Name: from, Instance: instances[from]}}, more...)
	if r := b.all[from]; r != nil {
		known = append(known, r.All(b.now)...)
	}
	news, _, _ := b.all[to].Hear(instances[from], known, 0, b.now)
	b.see(to, from)
	for _, next := range b.view[to] {
		if b.all[next] != nil && next != from && next != to {
			b.all[next].Hear(instances[to], news, 0, b.now)
			b.see(next)
		}
	}
}

// TestNobodyProvesAnInventionByTellingItOn: members start at once, believe a liar while it is the only other one, and
// tell each other in any order, also of what gossip has brought into the view meanwhile. It stays one
// member's word, also when that is dead, and ends where it is expelled.
func TestNobodyProvesAnInventionByTellingItOn(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		b := begin("a", "b", "c")
		ghost := peer.Known{Name: "ghost", Instance: 1000}
		for range 12 {
			to := string(rune('a' + rng.IntN(3)))
			from := string(rune('a' + rng.IntN(3)))
			switch rng.IntN(4) {
			case 0:
				ghost.Path = [][]string{nil, {"a"}, {"b"}, {"c", "a"}, {"x"}, {"ghost"}}[rng.IntN(6)]
				b.tells("m", to, ghost)
			case 1:
				b.see(to, "ghost")
			default:
				if from != to {
					b.tells(from, to)
				}
			}
		}
		dies := rng.IntN(2) == 0
		for range 2 {
			for _, from := range []string{"a", "b", "c"} {
				for _, to := range []string{"a", "b", "c"} {
					if from != to {
						b.tells(from, to)
					}
				}
			}
		}
		for at, r := range b.all {
			if dies {
				b.view[at] = slices.DeleteFunc(b.view[at], func(name string) bool { return name == "m" })
				b.see(at)
			}
			if b.see(at); r.Counts("ghost") {
				t.Fatalf("seed %d: at %s an invented name counts", seed, at)
			}
			expel(t, r, "m", false, b.now)
			b.see(at)
			if a := r.census.known["ghost"]; a != nil && len(a.told()) > 0 {
				t.Fatalf("seed %d: at %s the word of an expelled member stays: %v", seed, at, a.told())
			}
		}
	}
}

// TestWhoIsToldOfAndDoesNotCount: a name that one of several members in the view tells of does not count, and may have
// been there. It was not once that is dead or expelled, or says that the name is gone.
func TestWhoIsToldOfAndDoesNotCount(t *testing.T) {
	both := []peer.Member{{Name: "a", Instance: 1}, {Name: "b", Instance: 2}}
	for name, test := range map[string]struct {
		then func(r *Registry)
		want int
	}{
		"in view":  {func(*Registry) {}, 1},
		"dead":     {func(r *Registry) { r.Set(both, nil, 30) }, 0},
		"expelled": {func(r *Registry) { expel(t, r, "m", false, 30) }, 0},
		"gone":     {func(r *Registry) { r.Hear(9, []peer.Known{{Name: "d", Instance: 7, Gone: true}}, 0, 30) }, 0},
		"met":      {func(r *Registry) { r.Hear(7, []peer.Known{{Name: "d", Instance: 7}}, 0, 30) }, 0},
		"back": {func(r *Registry) {
			r.Set(append(both[:2:2], peer.Member{Name: "m", Instance: 9}, peer.Member{Name: "d", Instance: 8}), nil, 30)
		}, 0},
	} {
		r := town()
		if _, known, _ := r.Hear(9, []peer.Known{{Name: "d", Instance: 7}}, 0, 20); known != 3 {
			t.Errorf("%s: %d count", name, known)
		}
		if test.then(r); r.Told() != test.want {
			t.Errorf("%s: %d may have been there beside those that count, want %d", name, r.Told(), test.want)
		}
	}
}

// TestWordsStayWordsOnADisk: what a member saved of names that another told it of is that one's word when it is read
// back: with others in the view it counts for nothing, and it ends with its teller.
func TestWordsStayWordsOnADisk(t *testing.T) {
	saved := NewRegistry("a")
	saved.Set([]peer.Member{{Name: "a", Instance: 1}, {Name: "m", Instance: 9}}, nil, 10)
	saved.Hear(9, append(invented(3), peer.Known{Name: "m", Instance: 9}), 0, 10)
	for _, out := range []bool{false, true} {
		r := NewRegistry("a")
		r.Restore(saved.All(20), 30)
		if out {
			expel(t, r, "m", false, 30)
		}
		known, _ := r.Set([]peer.Member{{Name: "a", Instance: 2}, {Name: "b", Instance: 3}}, nil, 40)
		if want := 2 + 1; known != want && !out || known != want-1 && out || r.Counts("ghost-1") {
			t.Errorf("m is expelled %v: %d count of a, b and m", out, known)
		}
	}
}

// TestWhoIsSaidToBeGoneCountsAgain: a hostile member says that a dead one is gone, or writes it into what it relays,
// and others tell it on. Once it is expelled the dead one counts again at all of them; what others say too, what the
// one said of itself and what an operator had forgotten stays.
func TestWhoIsSaidToBeGoneCountsAgain(t *testing.T) {
	gone := peer.Known{Name: "d", Instance: 4, Gone: true}
	toldOn := gone
	toldOn.Path = []string{"m"}
	for name, test := range map[string]struct {
		say  func(r *Registry)
		want int // of a, b, d and m once m is expelled
	}{
		"it says so":   {func(r *Registry) { r.Hear(9, []peer.Known{gone}, 0, 30) }, 3},
		"it relays it": {func(r *Registry) { r.Hear(2, []peer.Known{gone}, 9, 30) }, 3},
		"it relays the end": {func(r *Registry) {
			r.Hear(4, []peer.Known{gone}, 9, 30)
			r.Hear(9, []peer.Known{gone}, 0, 30)
		}, 3},
		"another tells it on": {func(r *Registry) { r.Hear(2, []peer.Known{toldOn}, 0, 30) }, 3},
		"it is judged": {func(r *Registry) {
			r.Hear(9, []peer.Known{gone}, 0, 30)
			r.Set(town3(), []peer.Known{gone}, 30)
		}, 3},
		"it says so afterwards": {func(*Registry) {}, 3},
		"another says so": {func(r *Registry) {
			r.Hear(9, []peer.Known{gone}, 0, 30)
			r.Hear(2, []peer.Known{gone}, 0, 30)
		}, 2},
		"d says so": {func(r *Registry) {
			r.Hear(4, []peer.Known{gone}, 0, 30)
			r.Hear(9, []peer.Known{gone}, 0, 30)
			r.Set(town3(), []peer.Known{gone}, 30)
		}, 2},
		"an operator": {func(r *Registry) { r.Forget("d"); r.Hear(9, []peer.Known{gone}, 0, 30) }, 2},
	} {
		r := town()
		r.Set(append(town3(), peer.Member{Name: "d", Instance: 4}), nil, 10)
		r.Set(town3(), nil, 20)
		test.say(r)
		expel(t, r, "m", false, 40)
		r.Hear(2, []peer.Known{toldOn}, 0, 50)
		r.Hear(2, []peer.Known{gone}, 9, 50)
		r.Hear(7, []peer.Known{gone}, 0, 50) // nobody knows whose instance that is
		if known, _ := r.Count(60); known != test.want {
			t.Errorf("%s: %d count, want %d", name, known, test.want)
		}
	}
}

// TestWordsOfAnEndAreToldOnAsSuch: who tells on that a member is gone says by whose word alone it knows.
func TestWordsOfAnEndAreToldOnAsSuch(t *testing.T) {
	r := town()
	r.Set(append(town3(), peer.Member{Name: "d", Instance: 4}), nil, 10)
	r.Set(town3(), nil, 20)
	gone := peer.Known{Name: "d", Instance: 4, Gone: true}
	news, _, _ := r.Hear(9, []peer.Known{gone}, 2, 30)
	said := func(all []peer.Known) (path []string) {
		for _, k := range all {
			if k.Name == "d" && k.Gone {
				return k.Path
			}
		}
		t.Fatalf("nothing is told of its end: %v", all)
		return nil
	}
	for _, path := range [][]string{said(news), said(r.All(30)), said([]peer.Known{r.Left("d", 4)})} {
		if !slices.Equal(path, []string{"m", "b"}) {
			t.Errorf("by the word of %v", path)
		}
	}
	r.Hear(4, []peer.Known{gone}, 0, 40)
	if path := said(r.All(40)); path != nil {
		t.Errorf("it says so itself, and it is the word of %v", path)
	}
}

// town3 is the view of [town].
func town3() []peer.Member {
	return []peer.Member{{Name: "a", Instance: 1}, {Name: "b", Instance: 2}, {Name: "m", Instance: 9}}
}
