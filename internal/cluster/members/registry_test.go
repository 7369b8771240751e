package members

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Names that come and go are bounded. A name that counts is never dropped for one that
// does not.
func TestNamesHaveABound(t *testing.T) {
	const other peer.Instance = 2
	now := 1_700_000_000 * limiter.Second
	base := []peer.Member{
		{Name: "a", Instance: 1, State: peer.Active}, {Name: "b", Instance: other, State: peer.Active},
		{Name: "c", Instance: 3, State: peer.Active},
	}
	r := NewRegistry("a")
	r.Set(base, nil, now)
	r.Set(base[:2], nil, now) // "c" is dead, and counts
	for n := range 3 * maxNames {
		i := peer.Instance(0x1000 + n)
		m := peer.Member{Name: fmt.Sprintf("pod-%05d", n), Instance: i, State: peer.Active}
		r.Set([]peer.Member{base[0], base[1], m}, nil, now)
		known, _ := r.Set(base[:2], []peer.Known{{Name: m.Name, Instance: i, Gone: true}}, now)
		if known != 3 || len(r.census.known) > maxNames {
			t.Fatalf("after %d names: %d count, want 3; %d are known", n+1, known, len(r.census.known))
		}
		now += limiter.Second
	}
	if _, known, _ := r.Hear(other, []peer.Known{{Name: "e", Instance: 0xe}}, 0, now); known != 4 {
		t.Errorf("%d count, want the one too that another member knows of", known)
	}
	now += keepGone
	r.Set(base[:2], nil, now)
	if n := len(r.census.known); n != 4 {
		t.Errorf("a day later %d names are known, want the four that count", n)
	}
	dead := make([]peer.Known, 0, maxNames)
	for n := range maxNames {
		dead = append(dead, peer.Known{Name: fmt.Sprintf("dead-%d", n), Instance: peer.Instance(0x9000 + n)})
	}
	_, known, _ := r.Hear(other, dead, 0, now)
	if r.Set(base, nil, now); known != 3+maxUnproven || !r.census.known["c"].live {
		t.Errorf("%d count, want no more than the bound of one member's word, and who is live", known)
	}
	r.Set(append(base[:3:3], peer.Member{Name: "new", Instance: 0xf}), nil, now)
	if a := r.census.known["new"]; a == nil || !a.live {
		t.Error("a live member is refused at the bound")
	}
}

// A member that starts is on no other side of a split: it does not make a minority of the
// others, unless it does not enter the view for two seconds.
func TestWhoStartsMakesNoMinority(t *testing.T) {
	const a, b, c, d peer.Instance = 1, 2, 3, 4
	began := 1_700_000_000 * limiter.Second
	for name, one := range map[string]struct {
		heard  []peer.Known // from b
		recent int
	}{
		"it says so itself":                  {[]peer.Known{{Name: "b", Instance: b}}, 1},
		"another member is said to be there": {[]peer.Known{{Name: "b", Instance: b}, {Name: "d", Instance: d}}, 2},
		"another member is said to start": {[]peer.Known{{Name: "b", Instance: b},
			{Name: "d", Instance: d, Joining: true}}, 1},
		"who left starts again": {[]peer.Known{{Name: "b", Instance: b}, {Name: "c", Instance: c}}, 1},
	} {
		r := NewRegistry("a")
		r.Set([]peer.Member{{Name: "a", Instance: a, State: peer.Active}}, []peer.Known{{Name: "c", Instance: 9, Gone: true}},
			began)
		_, known, recent := r.Hear(b, one.heard, 0, began)
		if want := 1 + len(one.heard); known != want || recent != one.recent {
			t.Errorf("%s: %d and %d count, want %d and %d", name, known, recent, want, one.recent)
		}
		if _, recent := r.Count(began + arrivesWithin); recent != 1+len(one.heard) {
			t.Errorf("%s: %d count two seconds later, want all", name, recent)
		}
	}
	r := NewRegistry("a")
	both := []peer.Member{{Name: "a", Instance: a, State: peer.Active}, {Name: "b", Instance: b, State: peer.Active}}
	r.Set(both, nil, began)
	r.Set(both[:1], nil, began)
	if _, _, recent := r.Hear(b, []peer.Known{{Name: "b", Instance: b}}, 0, began); recent != 2 {
		t.Errorf("%d count, want the one too that was in the view", recent)
	}
}

// A member says over its own link that it leaves. For two seconds after it is out of sight, nobody
// counts as a minority because of it: it may be taken for dead, or have started anew and not be met
// yet. For closed partitions it still counts.
func TestWhoDepartsMakesNoMinority(t *testing.T) {
	const a, b peer.Instance = 1, 2
	began := 1_700_000_000 * limiter.Second
	leaves, joins := peer.Known{Name: "b", Instance: b, Gone: true}, peer.Known{Name: "b", Instance: b, Joining: true}
	for name, test := range map[string]struct {
		say    func(r *Registry)
		lost   limiter.Tick // when it leaves the view
		recent int
	}{
		"it said so":        {func(r *Registry) { r.Hear(b, []peer.Known{leaves}, 0, began) }, began, 1},
		"it said nothing":   {func(r *Registry) { r.Hear(b, []peer.Known{{Name: "b", Instance: b}}, 0, began) }, began, 2},
		"by a relay":        {func(r *Registry) { r.Hear(b, []peer.Known{leaves}, 7, began) }, began, 2},
		"it said so once":   {func(r *Registry) { r.Hear(b, []peer.Known{leaves}, 0, began) }, began + believedLeaving, 2},
		"it is to count on": {func(r *Registry) { r.Hear(b, []peer.Known{leaves, joins}, 0, began) }, began, 1},
		"another instance said so": {func(r *Registry) {
			r.Hear(b+1, []peer.Known{{Name: "b", Instance: b + 1, Gone: true}}, 0, began)
		}, began, 2},
	} {
		r := NewRegistry("a")
		both := []peer.Member{{Name: "a", Instance: a, State: peer.Active}, {Name: "b", Instance: b, State: peer.Active}}
		r.Set(both, nil, began)
		test.say(r)
		if known, recent := r.Count(began); known != 2 || recent != 2 {
			t.Errorf("%s: %d and %d count while it is in the view, want both", name, known, recent)
		}
		if known, recent := r.Set(both[:1], nil, test.lost); known != 2 || recent != test.recent {
			t.Errorf("%s: %d and %d count, want 2 and %d", name, known, recent, test.recent)
		}
		if _, recent := r.Count(test.lost + arrivesWithin); recent != 2 {
			t.Errorf("%s: %d count two seconds later, want both", name, recent)
		}
	}
}

// A member that starts is asked for when it has not entered the view for a second, and makes
// no minority as long as it answers. One that was in the view before is not asked for.
func TestWhoStartsIsAwaited(t *testing.T) {
	const b, c peer.Instance = 2, 3
	now := 1_700_000_000 * limiter.Second
	r := NewRegistry("a")
	both := []peer.Member{{Name: "a", Instance: 1, State: peer.Active}, {Name: "c", Instance: c, State: peer.Joining}}
	r.Set(both, nil, now)
	r.Set(both[:1], nil, now)
	r.Hear(b, []peer.Known{{Name: "b", Instance: b}, {Name: "c", Instance: c, Joining: true}}, 0, now)
	if all := r.Awaited(now + arrivesWithin/2 - 1); len(all) != 0 {
		t.Errorf("awaited within a second: %v", all)
	}
	for range 5 {
		now += arrivesWithin / 2
		if all := r.Awaited(now); len(all) != 1 || all[0].Instance != b {
			t.Errorf("awaited are %v, want b", all)
		}
		r.Arrives("b", b+1, now+limiter.Second) // another instance
		r.Arrives("c", c, now)
		r.Arrives("b", b, now)
		if known, recent := r.Count(now); known != 3 || recent != 2 {
			t.Errorf("%d and %d count, want 3, and 2 without b, which answers", known, recent)
		}
	}
	if _, recent := r.Count(now + arrivesWithin); recent != 3 {
		t.Errorf("%d count when b has not answered for two seconds, want all", recent)
	}
}

// Others are told that a member is joining while it is: in the view, or on its way to it,
// not once it is active, has died, or took too long.
func TestOthersAreToldWhoIsJoining(t *testing.T) {
	const b, d peer.Instance = 2, 4
	now := 1_700_000_000 * limiter.Second
	view := func(states ...peer.State) []peer.Member {
		all := []peer.Member{{Name: "a", Instance: 1, State: peer.Active}}
		for _, s := range states {
			all = append(all, peer.Member{Name: "d", Instance: d, State: s})
		}
		return all
	}
	r := NewRegistry("a")
	told := func(when string, want bool) {
		t.Helper()
		for _, k := range r.All(now) {
			if k.Name == "d" && k.Joining != want {
				t.Errorf("%s: told as joining %t, want %t", when, k.Joining, want)
			}
			if k.Name != "d" && k.Joining {
				t.Errorf("%s: %s is told as joining", when, k.Name)
			}
		}
	}
	r.Set(view(), nil, now)
	r.Hear(b, []peer.Known{{Name: "b", Instance: b}, {Name: "d", Instance: d, Joining: true}}, 0, now)
	told("heard of", true)
	now += arrivesWithin
	told("heard of two seconds ago", false)
	r.Set(view(peer.Joining), nil, now)
	told("in the view", true)
	r.Set(view(), nil, now)
	told("dead", false)
	r.Set(view(peer.Active), nil, now)
	told("active", false)
}

// A member that starts anew counts once, without a gap, in whatever order a node hears of its start
// and of its predecessor's end: a gap would make a majority of two members of five, of which
// two restart in turn.
func TestARestartLeavesNoGapInTheCount(t *testing.T) {
	const a, before, c, after peer.Instance = 1, 2, 3, 4
	now := 1_700_000_000 * limiter.Second
	left, starts := peer.Known{Name: "b", Instance: before, Gone: true},
		peer.Known{Name: "b", Instance: after, Joining: true}
	all := []peer.Member{{Name: "a", Instance: a, State: peer.Active}, {Name: "b", Instance: before, State: peer.Active},
		{Name: "c", Instance: c, State: peer.Active}}
	for name, said := range map[string]func(r *Registry){
		"it says that it starts": func(r *Registry) {
			r.Hear(after, []peer.Known{{Name: "b", Instance: after}}, 0, now)
		},
		"another says that it starts": func(r *Registry) { r.Hear(c, []peer.Known{starts}, 0, now) },
		"while the one before is in the view": func(r *Registry) {
			r.Set(all, nil, now)
			r.Hear(c, []peer.Known{starts}, 0, now)
			r.Set(all[:1], nil, now)
		},
	} {
		r := NewRegistry("a")
		r.Set(all, nil, now)
		r.Set(all[:1], nil, now) // the others are cut off
		said(r)
		if _, known, _ := r.Hear(c, []peer.Known{left}, 0, now); known != 3 {
			t.Errorf("%s: %d count once its predecessor has left, want 3", name, known)
		}
		if known, _ := r.Set([]peer.Member{all[0], {Name: "b", Instance: after, State: peer.Active}}, nil, now); known != 3 {
			t.Errorf("%s: %d count when it is in the view, want 3", name, known)
		}
		r.Hear(c, []peer.Known{{Name: "b", Instance: before, Joining: true}}, 0, now) // late
		if known, _ := r.Set(all[:1], []peer.Known{{Name: "b", Instance: after, Gone: true}}, now); known != 2 {
			t.Errorf("%s: %d count after it has left too, want 2", name, known)
		}
	}
	r := NewRegistry("a")
	r.Set(all, nil, now)
	r.Set(all[:1], nil, now)
	r.Hear(after, []peer.Known{{Name: "b", Instance: after}}, 0, now)
	r.Hear(c, []peer.Known{{Name: "b", Instance: after, Gone: true}}, 0, now)
	if _, known, _ := r.Hear(c, []peer.Known{left}, 0, now); known != 2 {
		t.Errorf("%d count after both have left, want 2", known)
	}
}

// A member that says that it leaves, and then that it joins, counts on when it has ended. Only its own
// link is believed, and only of a member that leaves.
func TestAMemberThatCountsOnHasNotLeft(t *testing.T) {
	const a, b peer.Instance = 1, 2
	now := 1_700_000_000 * limiter.Second
	leaves, joins := peer.Known{Name: "b", Instance: b, Gone: true}, peer.Known{Name: "b", Instance: b, Joining: true}
	for name, test := range map[string]struct {
		say  func(r *Registry)
		left bool
	}{
		"it leaves":    {func(r *Registry) { r.Hear(b, []peer.Known{leaves}, 0, now) }, true},
		"it counts on": {func(r *Registry) { r.Hear(b, []peer.Known{leaves, joins}, 0, now) }, false},
		"another says so": {func(r *Registry) {
			r.Hear(b, []peer.Known{leaves}, 0, now)
			r.Hear(a, []peer.Known{joins}, 0, now)
		}, true},
		"by a relay": {func(r *Registry) {
			r.Hear(b, []peer.Known{leaves}, 0, now)
			r.Hear(b, []peer.Known{joins}, 7, now)
		}, true},
		"it only introduces itself": {func(r *Registry) {
			r.Hear(b, []peer.Known{leaves, {Name: "b", Instance: b}}, 0, now)
		}, true},
		"it was forgotten": {func(r *Registry) {
			r.Hear(a, []peer.Known{leaves}, 0, now)
			r.Hear(b, []peer.Known{joins}, 0, now)
		}, true},
	} {
		r := NewRegistry("a")
		r.Set([]peer.Member{{Name: "a", Instance: a, State: peer.Active}, {Name: "b", Instance: b, State: peer.Active}}, nil,
			now)
		if test.say(r); r.SaidGone("b", b, false) != test.left {
			t.Errorf("%s: it has left %t, want %t", name, !test.left, test.left)
		}
	}
}

// What members say about two instances of a name that have both left is passed on once by each
// member, in whatever order it arrives. It must not go round for ever.
func TestNewsOfTwoThatLeftGoesRoundOnce(t *testing.T) {
	const first, second peer.Instance = 101, 102
	now := 1_700_000_000 * limiter.Second
	type word struct {
		from, to int
		known    peer.Known
	}
	const members = 5
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		var all [members]*Registry
		var under []word
		spread := func(from, except int, k peer.Known) {
			for to := range all {
				if to != from && to != except {
					under = append(under, word{from, to, k})
				}
			}
		}
		for i := range all {
			all[i] = NewRegistry(fmt.Sprint("m", i))
			for o := range all {
				all[i].Hear(peer.Instance(o+1), []peer.Known{{Name: fmt.Sprint("m", o), Instance: peer.Instance(o + 1)}}, 0, now)
			}
		}
		spread(0, 0, peer.Known{Name: "c", Instance: first, Gone: true})
		spread(1, 1, peer.Known{Name: "c", Instance: second, Gone: true})
		passed := 0
		for ; len(under) > 0 && passed < 1000; passed++ {
			i := random.IntN(len(under))
			w := under[i]
			under = append(under[:i], under[i+1:]...)
			news, _, _ := all[w.to].Hear(peer.Instance(w.from+1), []peer.Known{w.known}, 0, now)
			for _, k := range news {
				spread(w.to, w.from, k)
			}
		}
		if most := 2 * members * members; passed > most {
			t.Fatalf("seed %d: %d words and more were passed, want at most %d", seed, passed, most)
		}
	}
}
