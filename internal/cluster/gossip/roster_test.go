package gossip

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/peer"
)

var someday = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// run is a member's run. Runs of one name start one after the other.
func run(name string, n uint64) about {
	return about{Member: peer.Member{Name: name, Instance: peer.Instance(100 - n), State: peer.Active,
		GossipAddr: "127.0.0.1:1"}, started: n}
}

func departed(name string, n uint64, f fate) gone {
	return gone{about: run(name, n), fate: f, since: someday}
}

func believed(*gone) bool { return true }

func (r *roster) show() string { return show(r.members(peer.Member{Name: "self", State: peer.Active})) }

func TestRoster(t *testing.T) {
	type step struct {
		what string
		do   func(r *roster) bool
		news bool
		want string
	}
	alive := func(name string, n uint64) func(*roster) bool {
		return func(r *roster) bool { return r.alive(run(name, n)) }
	}
	lost := func(name string) func(*roster) bool {
		return func(r *roster) bool { return r.lost(name, someday, believed) }
	}
	told := func(name string, n uint64, f fate) func(*roster) bool {
		return func(r *roster) bool { return r.merge(departed(name, n, f), someday) }
	}
	forget := func(name string) func(*roster) bool {
		return func(r *roster) bool { _, err := r.forget(name, someday); return err == nil }
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"death and return", []step{
			{"joins", alive("a", 1), true, "a, self"},
			{"says the same again", alive("a", 1), false, "a, self"},
			{"dies", lost("a"), true, "a dead, self"},
			{"dies again", lost("a"), false, "a dead, self"},
			{"returns", alive("a", 1), true, "a, self"},
			{"restarts", alive("a", 2), true, "a, self"},
		}},
		{"leave, heard before memberlist has it", []step{
			{"joins", alive("a", 1), true, "a, self"},
			{"leaves", told("a", 1, left), true, "self"},
			{"is heard of late", alive("a", 1), false, "self"},
			{"memberlist has it", lost("a"), false, "self"},
			{"another still holds it for dead", told("a", 1, dead), false, "self"},
			{"restarts", alive("a", 2), true, "a, self"},
		}},
		{"leave, heard after memberlist has it", []step{
			{"joins", alive("a", 1), true, "a, self"},
			{"is lost", lost("a"), true, "a dead, self"},
			{"had left", told("a", 1, left), true, "self"},
		}},
		{"what others say of the living is for memberlist to say", []step{
			{"joins", alive("a", 2), true, "a, self"},
			{"is held for dead", told("a", 2, dead), false, "a, self"},
			{"is forgotten elsewhere", told("a", 2, forgotten), false, "a, self"},
			{"its former run left", told("a", 1, left), false, "a, self"},
			{"its next run left, they say", told("a", 3, left), false, "a, self"},
		}},
		{"forgetting", []step{
			{"a live one cannot be forgotten", forget("a"), false, "self"},
			{"joins", alive("a", 1), true, "a, self"},
			{"still not", forget("a"), false, "a, self"},
			{"dies", lost("a"), true, "a dead, self"},
			{"now", forget("a"), true, "self"},
			{"another still holds it for dead", told("a", 1, dead), false, "self"},
			{"it comes back", alive("a", 1), true, "a, self"},
			{"and dies again", lost("a"), true, "a dead, self"},
		}},
		{"the later of two runs holds", []step{
			{"the second died", told("a", 2, dead), true, "a dead, self"},
			{"the first left", told("a", 1, left), false, "a dead, self"},
			{"the third left", told("a", 3, left), true, "self"},
			{"the second was forgotten", told("a", 2, forgotten), false, "self"},
			{"the fourth died", told("a", 4, dead), true, "a dead, self"},
		}},
		{"oneself", []step{
			{"is not among them", alive("self", 1), false, "self"},
			{"nor dead", told("self", 1, dead), false, "self"},
			{"nor gone", told("self", 1, left), false, "self"},
			{"nor to be forgotten", forget("self"), false, "self"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRoster("self")
			for _, s := range c.steps {
				if got := s.do(r); got != s.news {
					t.Errorf("%s: news %v, want %v", s.what, got, s.news)
				}
				if got := r.show(); got != s.want {
					t.Errorf("%s: members %s, want %s", s.what, got, s.want)
				}
			}
		})
	}
}

// Nodes that exchanged reports agree on who is gone, whatever each saw and in whichever
// order they talk.
func TestOpinionsConverge(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		nodes := make([]*roster, 4)
		for i := range nodes {
			nodes[i] = newRoster(fmt.Sprint("self", i))
			for range 6 {
				name := string(rune('a' + rnd.IntN(4)))
				nodes[i].merge(departed(name, uint64(rnd.IntN(3)), fate(rnd.IntN(3))), someday)
			}
		}
		tell := func(from, to *roster) bool {
			news := false
			for _, g := range from.departed() {
				news = to.merge(g, someday) || news
			}
			return news
		}
		for range 3 {
			for _, i := range rnd.Perm(4) {
				for _, j := range rnd.Perm(4) {
					tell(nodes[i], nodes[j])
				}
			}
		}
		for i := range nodes {
			for j := range nodes {
				if tell(nodes[i], nodes[j]) {
					t.Fatalf("seed %d: node %d still has news for node %d", seed, i, j)
				}
			}
			a, b := show(nodes[i].members(peer.Member{})), show(nodes[0].members(peer.Member{}))
			if a != b {
				t.Fatalf("seed %d: node %d sees %s, node 0 %s", seed, i, a, b)
			}
		}
	}
}

func TestWhatIsRememberedForHowLong(t *testing.T) {
	r := newRoster("self")
	for f, name := range []string{"dead", "forgotten", "left"} {
		r.merge(departed(name, 1, fate(f)), someday)
	}
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{keepForgotten, 3}, {keepForgotten + 1, 2}, {keepLeft, 2}, {keepLeft + 1, 1}, {1000 * keepLeft, 1}} {
		r.expire(someday.Add(c.after), believed)
		if len(r.gone) != c.want {
			t.Errorf("after %v %d are remembered, want %d", c.after, len(r.gone), c.want)
		}
	}
	if _, ok := r.gone["dead"]; !ok {
		t.Error("the dead one is not remembered")
	}
	// What is too old is not learned again from a node that remembers it longer.
	if r.merge(departed("left", 1, left), someday.Add(keepLeft+1)) {
		t.Error("a node that left long ago is news")
	}
}

func TestAtTheBoundTheDeadStay(t *testing.T) {
	r := newRoster("self")
	for i := range maxGone {
		g := departed(fmt.Sprintf("left-%04d", i), 1, left)
		g.since = someday.Add(time.Duration(i) * time.Second)
		r.merge(g, someday)
	}
	for i := range maxGone {
		if !r.merge(departed(fmt.Sprintf("dead-%04d", i), 1, dead), someday) {
			t.Fatalf("dead member %d is not remembered", i)
		}
		if _, ok := r.gone[fmt.Sprintf("left-%04d", i)]; ok || len(r.gone) != maxGone {
			t.Fatalf("dead member %d: %d remembered, and the one that left first is among them: %v", i, len(r.gone), ok)
		}
	}
	if r.merge(departed("one more", 1, dead), someday) || len(r.gone) != maxGone {
		t.Errorf("beyond the bound: %d are remembered", len(r.gone))
	}
	if !r.merge(departed("dead-0000", 1, left), someday) {
		t.Error("at the bound, news of one that is remembered is not taken in")
	}
}

func TestForgetSaysWhy(t *testing.T) {
	r := newRoster("self")
	r.alive(run("a", 1))
	r.merge(departed("b", 1, left), someday)
	for name, want := range map[string]error{"self": ErrAlive, "a": ErrAlive, "b": ErrUnknown, "c": ErrUnknown} {
		if _, err := r.forget(name, someday); !errors.Is(err, want) {
			t.Errorf("forgetting %s: %v, want %v", name, err, want)
		}
	}
}
