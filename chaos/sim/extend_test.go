package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// TestExtensionsAtATime: several extensions of a reservation with two owners are asked for at a time, at
// several nodes. Where one owner denies a raise, the other does not keep it, whatever the order in
// which they are taken back. A mere renewal among them stands.
func TestExtensionsAtATime(t *testing.T) {
	worlds(t)
	s := newSubject(t,
		"version: 1\nrules: [{name: login, keys: [[ip], [user]], limits: [{limit: 10, window: 1h, algorithm: "+
			"fixed_window}]}]\n").(*subject)
	several := 0
	for u := range 40 {
		r := limiter.Request{User: fmt.Sprint("u", u), IP: fmt.Sprint("10.0.0.", u), ID: "one", Hold: time.Minute,
			Cost: limiter.Units(8)}
		if d := asked(t, s, &r); !d.Allowed {
			t.Fatal("denied")
		} else if d.Limit(0).Owner != d.Limit(1).Owner {
			several++
		}
		asked(t, s, &limiter.Request{User: r.User + "x", IP: r.IP, Cost: limiter.Units(2)}) // the address has none left
		costs := [][]int64{{9, 9}, {9, 10}, {10, 9}, {9, 10, 9}, {9, 8}, {8, 10}}[u%6]
		states := make([]limiter.AmendState, len(costs))
		s.SetTime(s.clock + limiter.Second)
		for i, cost := range costs {
			r.Cost = limiter.Units(cost)
			c := new(arith.Charge)
			if _, err := s.set.Resolve(&r, c); err != nil {
				t.Fatal(err)
			}
			done := false
			s.node().core.Amend(c, limiter.Amend{Extend: true}, func(o route.Outcome) {
				done, states[i] = true, o.Amended.State
			})
			s.SetTime(s.clock + limiter.Tick(u%3)*ms)
			defer func() {
				if !done {
					t.Errorf("extension %d to %d was not answered", i, cost)
				}
			}()
		}
		if err := s.w.run(limiter.Second, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		for i, state := range states {
			want := limiter.AmendDenied
			if costs[i] == 8 {
				want = limiter.AmendDone
			}
			if state != want {
				t.Errorf("extension to %d: %v, want %v", costs[i], state, want)
			}
		}
		d := new(limiter.Decision)
		peek := limiter.Request{User: r.User, IP: r.IP}
		if err := s.PeekInto(t.Context(), &peek, d); err != nil || d.Limit(0).Remaining != 0 || d.Limit(1).Remaining != 2 {
			t.Errorf("extended to %v: %d and %d left, want 0 and 2 (%v)", costs, d.Limit(0).Remaining, d.Limit(1).Remaining, err)
		}
	}
	if several == 0 {
		t.Error("premise: some reservations have several owners")
	}
}

// TestTheEstimateIsThatOfTheFirstKey: who settles a reservation of several owners is told what the first key reserved,
// in the order of the keys, whoever owns it.
func TestTheEstimateIsThatOfTheFirstKey(t *testing.T) {
	worlds(t)
	s := newSubject(t, `
version: 1
rules:
  - {name: a, key: [ip], continue: true, limits: [1000/hour], cost: {from: "attr:a", min: 0}}
  - {name: b, key: [user], continue: true, limits: [1000/hour], cost: {from: "attr:b"}}
  - {name: c, key: [group], limits: [1000/hour], cost: {from: "attr:c"}}
`).(*subject)
	apart := 0
	for u := range 40 {
		r := limiter.Request{User: fmt.Sprint("u", u), IP: fmt.Sprint("10.0.0.", u), Group: fmt.Sprint("g", u), ID: "one",
			Hold: time.Minute, Attributes: map[string]string{"a": "0", "b": "5", "c": "7"}}
		d := asked(t, s, &r)
		if d.Limit(0).Owner == d.Limit(2).Owner && d.Limit(1).Owner != d.Limit(0).Owner {
			apart++
		}
		r.Hold = 0
		a, err := s.Amend(t.Context(), r, limiter.Settling{Amend: limiter.Amend{Named: true},
			Actual: map[string]int64{"a": 0, "b": 1, "c": 2}})
		if err != nil || a.State != limiter.AmendDone || a.Estimate != 5 {
			t.Errorf("%+v, %v", a, err)
		}
	}
	if apart == 0 {
		t.Error("premise: the first and the last key have one owner, and the second another one")
	}
}
