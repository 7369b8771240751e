package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
)

// A reservation is settled, extended and cancelled at whichever member is asked, also after a
// member has left. Those of several users have several owners.
func TestHoldsAcrossMembers(t *testing.T) {
	nodes := three(t, "version: 1\nrules: [{name: all, key: [user], limits: [40/day]}]\n")
	request := func(u int) weir.Request {
		return weir.Request{User: fmt.Sprint("user", u), ID: "7", Hold: time.Hour, Cost: weir.Units(10)}
	}
	left := func(u int, want uint64, when string) {
		t.Helper()
		if d, err := nodes[u%2].Peek(t.Context(), weir.Request{User: request(u).User}); err != nil ||
			d.Limit(0).Remaining != want {
			t.Errorf("user %d, %s: %d left, want %d (%v)", u, when, d.Limit(0).Remaining, want, err)
		}
	}
	is := func(a weir.Amended, err error, want interface{ String() string }) {
		t.Helper()
		if err != nil || a.State.String() != want.String() {
			t.Errorf("%v, %v, want %v", a.State, err, want)
		}
	}
	for u := range 12 {
		for i, n := range nodes {
			ds, err := n.CheckBatch(t.Context(), []weir.Request{request(u)})
			if err != nil || !ds[0].Allowed || ds[0].Repeated != (i > 0) || ds[0].Receipt != (weir.Receipt{}) {
				t.Fatalf("user %d: %+v, %v", u, ds, err)
			}
		}
		left(u, 30, "held")
	}
	if err := nodes[2].Cluster().Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	for u := range 12 {
		one, other, r := nodes[u%2], nodes[1-u%2], request(u)
		left(u, 30, "a member has left")
		r.Cost = weir.Units(15)
		a, err := one.Extend(t.Context(), r)
		is(a, err, weir.AmendDone)
		left(u, 25, "extended")
		r.Cost = weir.Units(99)
		a, err = other.Extend(t.Context(), r)
		is(a, err, weir.AmendDenied)
		if u%3 == 0 {
			a, err = other.Cancel(t.Context(), r)
			is(a, err, weir.AmendDone)
			left(u, 40, "cancelled")
			continue
		}
		a, err = one.Settle(t.Context(), r, 42)
		is(a, err, weir.AmendDone)
		if a.Estimate != 15 || a.Over != 2 {
			t.Errorf("user %d was settled: %+v", u, a)
		}
		left(u, 0, "settled")
		a, err = other.Settle(t.Context(), r, 42)
		is(a, err, weir.AmendRepeated)
		if a, err = other.Settle(t.Context(), r, 41); !errors.Is(err, weir.ErrSettled) || a.First != 42 {
			t.Errorf("user %d was settled with another number: %+v, %v", u, a, err)
		}
	}
}

// A limit on concurrency counts in a cluster as at one node: whichever member is asked, and also
// after the one that counted has left.
func TestSlotsAcrossMembers(t *testing.T) {
	nodes := three(t, "version: 1\nrules: [{name: slots, key: [user], hold: 1h, limits: [{limit: 2, algorithm: "+
		"concurrency}]}]\n")
	ctx := t.Context()
	for _, n := range nodes { // an optional id is one that no caller knows
		for _, r := range []weir.Request{{User: "ada"}, {User: "ada", ID: "own", IDOptional: true}} {
			if _, err := n.Check(ctx, r); !errors.Is(err, weir.ErrInvalid) ||
				!strings.Contains(err.Error(), "give the request an id") {
				t.Errorf("a check that nobody can end: %v", err)
			}
			ds, err := n.CheckBatch(ctx, []weir.Request{r, {User: "ada", Cost: weir.Units(0)}})
			if err == nil || ds[0].Allowed || !ds[1].Allowed {
				t.Errorf("in a batch: %v", err)
			}
		}
	}
	check := func(n, u, id int, want bool) {
		t.Helper()
		d, err := nodes[n].Check(ctx, weir.Request{User: fmt.Sprint("user", u), ID: fmt.Sprint(id)})
		if err != nil || d.Allowed != want || d.Receipt != (weir.Receipt{}) {
			t.Errorf("user %d, slot %d: %+v, %v, want %t", u, id, d, err, want)
		}
	}
	for u := range 12 {
		check(0, u, 1, true)
		check(1, u, 1, true) // again
		check(1, u, 2, true)
		check(2, u, 3, false)
	}
	if err := nodes[2].Cluster().Leave(ctx); err != nil {
		t.Fatal(err)
	}
	for u := range 12 {
		check(u%2, u, 3, false)
		if a, err := nodes[1-u%2].Cancel(ctx, weir.Request{User: fmt.Sprint("user", u), ID: "1"}); err != nil ||
			a.State != weir.AmendDone {
			t.Errorf("user %d gives back a slot: %+v, %v", u, a, err)
		}
		check(u%2, u, 3, true)
		check(u%2, u, 4, false)
		spent := []weir.Request{{User: fmt.Sprint("user", u), ID: "1"}}
		for _, n := range nodes[:2] {
			if _, err := n.Check(ctx, spent[0]); !errors.Is(err, weir.ErrSettled) {
				t.Errorf("user %d checks with a spent id: %v", u, err)
			}
			if ds, err := n.CheckBatch(ctx, spent); !errors.Is(err, weir.ErrSettled) || ds[0].Allowed {
				t.Errorf("user %d checks with a spent id in a batch: %v", u, err)
			}
		}
	}
}

// One number does not settle rules that have reserved different ones, whichever members own the keys: it is
// refused, and nothing is settled at any of them.
func TestOneNumberSettlesOneCost(t *testing.T) {
	nodes := three(t, `version: 1
defaults: {key: [user]}
rules:
  - {name: requests, continue: true, limits: [100/day]}
  - {name: tokens, limits: [40000/day], cost: {from: "attr:tokens", default: 1}}
`)
	for u := range 12 {
		r := weir.Request{User: fmt.Sprint("user", u), ID: "7", Hold: time.Hour,
			Attributes: map[string]string{"tokens": "2000"}}
		left := func(requests, tokens uint64) {
			t.Helper()
			d, err := nodes[u%3].Peek(t.Context(), weir.Request{User: r.User})
			if err != nil || d.Limit(0).Remaining != requests || d.Limit(1).Remaining != tokens {
				t.Errorf("user %d: %d and %d are left, want %d and %d (%v)", u, d.Limit(0).Remaining, d.Limit(1).Remaining,
					requests, tokens, err)
			}
		}
		if d, err := nodes[0].Check(t.Context(), r); err != nil || !d.Allowed {
			t.Fatalf("user %d: %+v, %v", u, d, err)
		}
		for i, n := range nodes {
			a, err := n.Settle(t.Context(), r, 800, func(a *limiter.Settling) { a.IgnoreUnknown = i > 0 })
			if !errors.Is(err, weir.ErrCosts) || a.State != limiter.AmendDiffers ||
				!strings.Contains(err.Error(), "reserved 1 and 2000 units") {
				t.Errorf("user %d: %v, %v", u, a.State, err)
			}
			left(99, 38000)
		}
		if a, err := nodes[1].Cancel(t.Context(), r); err != nil || a.State != weir.AmendDone {
			t.Errorf("user %d: %v, %v", u, a.State, err)
		}
		left(100, 40000)
		r.ID, r.Attributes = "8", nil
		if d, err := nodes[0].Check(t.Context(), r); err != nil || !d.Allowed {
			t.Fatalf("user %d: %+v, %v", u, d, err)
		}
		for _, want := range []limiter.AmendState{weir.AmendDone, weir.AmendRepeated} {
			if a, err := nodes[2].Settle(t.Context(), r, 3); err != nil || a.State != want {
				t.Errorf("user %d: %v, %v", u, a.State, err)
			}
		}
		left(97, 39997)
	}
}

// Numbers for attributes settle each rule with its own, whichever members own the keys and whichever is asked.
func TestEachCostIsSettledWithItsOwnNumber(t *testing.T) {
	nodes := three(t, `version: 1
defaults: {key: [user]}
rules:
  - {name: requests, continue: true, limits: [100/day]}
  - {name: money, continue: true, limits: [90000/day], cost: {from: "attr:udollars"}}
  - {name: tokens, limits: [40000/day], cost: {from: "attr:tokens"}}
`)
	for u := range 12 {
		r := weir.Request{User: fmt.Sprint("user", u), ID: "7", Hold: time.Hour,
			Attributes: map[string]string{"tokens": "2000", "udollars": "5000"}}
		if d, err := nodes[0].Check(t.Context(), r); err != nil || !d.Allowed {
			t.Fatalf("user %d: %+v, %v", u, d, err)
		}
		if a, err := nodes[1].Settle(t.Context(), r, 0, weir.Actual(map[string]int64{"tokens": 800})); err == nil ||
			!errors.Is(err, weir.ErrInvalid) ||
			!strings.Contains(err.Error(), `rule "money" takes its cost from attribute "udollars"`) {
			t.Errorf("user %d: %v, %v", u, a.State, err)
		}
		for i, want := range []limiter.AmendState{weir.AmendDone, weir.AmendRepeated, weir.AmendRepeated} {
			a, err := nodes[(u+i)%3].Settle(t.Context(), r, 0, weir.Actual(map[string]int64{"tokens": 800, "udollars": 1930}))
			if err != nil || a.State != want {
				t.Errorf("user %d: %v, %v, want %v", u, a.State, err, want)
			}
		}
		d, err := nodes[u%3].Peek(t.Context(), weir.Request{User: r.User, Attributes: r.Attributes})
		if err != nil || d.Limit(0).Remaining != 99 || d.Limit(1).Remaining != 90000-1930 ||
			d.Limit(2).Remaining != 40000-800 {
			t.Errorf("user %d: %d, %d and %d are left (%v)", u, d.Limit(0).Remaining, d.Limit(1).Remaining,
				d.Limit(2).Remaining, err)
		}
	}
}

// An id that stands for another number at some key charges and gives back nothing at the others, whichever owner is
// asked first: the members ask each other before they settle.
func TestAnIDThatStandsForAnotherNumberChargesNoOwner(t *testing.T) {
	const file = `version: 1
rules:
  - {name: here, keys: [[user, path], [ip]], continue: true, limits: [100/day]}
  - {name: all, key: [user], limits: [100/day]}
`
	nodes := three(t, file)
	alone := open(t, weir.Config{Rules: []byte(file)})
	for u := range 12 {
		if u == 11 { // in memory it is the same
			nodes = []*weir.Node{alone, alone, alone}
		}
		at := func(path string) weir.Request {
			return weir.Request{User: fmt.Sprint("user", u), IP: fmt.Sprintf("192.0.2.%d", u), Path: path, ID: "7",
				Hold: time.Hour, Cost: weir.Units(4)}
		}
		left := func(path string, want ...uint64) {
			t.Helper()
			r := at(path)
			r.ID, r.Hold = "", 0
			d, err := nodes[u%3].Peek(t.Context(), r)
			if err != nil || d.Len() != len(want) {
				t.Fatalf("user %d: %+v, %v", u, d, err)
			}
			for i, n := range want {
				if d.Limit(i).Remaining != n {
					t.Errorf("user %d at %s: %d are left of limit %d, want %d", u, path, d.Limit(i).Remaining, i, n)
				}
			}
		}
		settle := func(path string, n int64, want limiter.AmendState, first uint64) {
			t.Helper()
			a, err := nodes[(u+1)%3].Settle(t.Context(), at(path), n)
			if errors.Is(err, weir.ErrSettled) != (want == limiter.AmendSettled) || a.State != want || a.First != first {
				t.Errorf("user %d at %s: %+v, %v, want %v of %d", u, path, a, err, want, first)
			}
		}
		settle("/a", 2, weir.AmendCharged, 0)
		left("/a", 98, 98, 98)
		settle("/b", 5, limiter.AmendSettled, 2)
		left("/b", 100, 98, 98)
		settle("/b", 2, weir.AmendRepeated, 0) // of /a, and nothing is known of /b
		left("/b", 100, 98, 98)
		if d, err := nodes[0].Check(t.Context(), at("/c")); err != nil || !d.Allowed { // holds 4 of the path alone
			t.Fatalf("user %d: %+v, %v", u, d, err)
		}
		left("/c", 96, 98, 98)
		settle("/c", 1, limiter.AmendSettled, 2)
		left("/c", 96, 98, 98)
	}
}

// A rule in shadow that would have denied a check is not charged by its settlement, whichever members own the keys.
func TestARuleInShadowIsNotChargedForWhatItWouldDeny(t *testing.T) {
	const file = `version: 1
rules:
  - {name: trial, key: [ip], shadow: true, continue: true, limits: [5/day]}
  - {name: all, keys: [[user], [path]], limits: [100/day]}
`
	nodes := three(t, file)
	alone := open(t, weir.Config{Rules: []byte(file)})
	for u := range 12 {
		if u == 11 { // in memory it is the same
			nodes = []*weir.Node{alone, alone, alone}
		}
		left := func(want ...uint64) {
			t.Helper()
			d, err := nodes[u%3].Peek(t.Context(), weir.Request{User: fmt.Sprint("user", u), IP: fmt.Sprintf("192.0.2.%d", u),
				Path: fmt.Sprint("/", u)})
			if err != nil || d.Len() != len(want) {
				t.Fatalf("user %d: %+v, %v", u, d, err)
			}
			for i, n := range want {
				if d.Limit(i).Remaining != n {
					t.Errorf("user %d: %d are left of limit %d, want %d", u, d.Limit(i).Remaining, i, n)
				}
			}
		}
		all := uint64(100)
		for i, cost := range []uint64{8, 3, 4} { // never admitted by the rule in shadow, admitted, denied
			r := weir.Request{
				User: fmt.Sprint("user", u), IP: fmt.Sprintf("192.0.2.%d", u), Path: fmt.Sprint("/", u),
				ID: fmt.Sprint(i), Hold: time.Hour, Cost: limiter.Units(int64(cost)),
			}
			if d, err := nodes[0].Check(t.Context(), r); err != nil || !d.Allowed {
				t.Fatalf("user %d: %+v, %v", u, d, err)
			}
			for _, want := range []limiter.AmendState{weir.AmendDone, weir.AmendRepeated} {
				a, err := nodes[(u+i)%3].Settle(t.Context(), r, int64(cost)+1)
				if err != nil || a.State != want || a.Over != 0 {
					t.Errorf("user %d: %d are settled: %+v, %v", u, cost, a, err)
				}
			}
			all -= cost + 1
			left([]uint64{5, 1, 1}[i], all, all)
		}
	}
}

// A rule in shadow that came after the check is charged nothing by its settlement, whoever owns its key.
func TestARuleInShadowThatCameLaterIsNotSettled(t *testing.T) {
	const trial = "  - {name: trial, key: [ip], shadow: true, continue: true, limits: [5/day]}\n"
	const file = `version: 1
defaults: {cost: {from: "attr:tokens"}}
rules:
` + trial + "  - {name: all, keys: [[user], [path]], limits: [100/day]}\n"
	before := []byte(strings.Replace(file, trial, "", 1))
	for _, nodes := range [][]*weir.Node{three(t, string(before)), {open(t, weir.Config{Rules: before})}} {
		request := func(u int) weir.Request {
			return weir.Request{User: fmt.Sprint("user", u), IP: fmt.Sprintf("192.0.2.%d", u), Path: fmt.Sprint("/", u),
				ID: "7", Hold: time.Hour, Attributes: map[string]string{"tokens": "2"}}
		}
		for u := range 12 {
			if d, err := nodes[0].Check(t.Context(), request(u)); err != nil || !d.Allowed {
				t.Fatalf("user %d: %+v, %v", u, d, err)
			}
		}
		for _, n := range nodes {
			if err := n.SetRules([]byte(file)); err != nil {
				t.Fatal(err)
			}
		}
		for u := range 12 {
			r := request(u)
			a, err := nodes[u%len(nodes)].Settle(t.Context(), r, 0, weir.Actual(map[string]int64{"tokens": 3}))
			if err != nil || a.State != weir.AmendDone {
				t.Errorf("user %d: %+v, %v", u, a, err)
			}
			r.ID, r.Hold = "", 0
			d, err := nodes[0].Peek(t.Context(), r)
			if err != nil || d.Limit(0).Remaining != 5 || d.Limit(1).Remaining != 97 || d.Limit(2).Remaining != 97 {
				t.Errorf("user %d of %d nodes: %+v, %v", u, len(nodes), d.Limits(), err)
			}
		}
	}
}

// A check that a limit on concurrency never admits is no repetition of one with its id, once what that held is over:
// it is told to go on by no member, though the members are asked for their numbers only.
func TestASpentIDWithACostThatIsNeverAdmitted(t *testing.T) {
	nodes := three(t, "version: 1\nrules: [{name: slots, keys: [[user], [ip]], hold: 1h, limits: [{limit: 2, algorithm: "+
		"concurrency}]}]\n")
	for u := range 12 {
		r := weir.Request{User: fmt.Sprint("user", u), IP: fmt.Sprintf("192.0.2.%d", u), ID: "1"}
		if d, err := nodes[0].Check(t.Context(), r); err != nil || !d.Allowed {
			t.Fatalf("user %d: %+v, %v", u, d, err)
		}
		r.Cost = weir.Units(3)
		if d, err := nodes[1].Check(t.Context(), r); err != nil || !d.Allowed || !d.Repeated {
			t.Errorf("user %d, under way: %+v, %v", u, d, err)
		}
		if a, err := nodes[2].Settle(t.Context(), r, 1); err != nil || a.State != weir.AmendDone {
			t.Errorf("user %d: %+v, %v", u, a, err)
		}
		for _, n := range nodes {
			if d, err := n.Check(t.Context(), r); d.Allowed || !errors.Is(err, weir.ErrSettled) {
				t.Errorf("user %d, settled: %+v, %v", u, d, err)
			}
		}
	}
}

// The number is compared with what each rule has reserved also if several of them draw on a quota, which is settled
// with it more than once.
func TestOneNumberSettlesOneCostBesideAQuota(t *testing.T) {
	nodes := three(t, `version: 1
defaults: {key: [user]}
quotas: [{name: units, key: [user], limits: [1000000/day]}]
rules:
  - {name: draws, continue: true, quotas: [units]}
  - {name: requests, continue: true, limits: [100/day], quotas: [units]}
  - {name: tokens, limits: [40000/day], cost: {from: "attr:tokens", default: 1}}
`)
	for u := range 12 {
		r := weir.Request{User: fmt.Sprint("user", u), ID: "7", Hold: time.Hour,
			Attributes: map[string]string{"tokens": "2000"}}
		if d, err := nodes[0].Check(t.Context(), r); err != nil || !d.Allowed {
			t.Fatalf("user %d: %+v, %v", u, d, err)
		}
		if a, err := nodes[1].Settle(t.Context(), r, 800); !errors.Is(err, weir.ErrCosts) {
			t.Errorf("user %d: %+v, %v", u, a, err)
		}
		r.ID, r.Attributes = "8", nil
		if d, err := nodes[0].Check(t.Context(), r); err != nil || !d.Allowed {
			t.Fatalf("user %d: %+v, %v", u, d, err)
		}
		if a, err := nodes[2].Settle(t.Context(), r, 3); err != nil || a.State != weir.AmendDone {
			t.Errorf("user %d: %+v, %v", u, a, err)
		}
		d, err := nodes[1].Peek(t.Context(), weir.Request{User: r.User})
		if err != nil || d.Limit(0).Remaining != 1000000-2-6 || d.Limit(1).Remaining != 96 || d.Limit(2).Remaining != 37997 {
			t.Errorf("user %d: %+v, %v", u, d, err)
		}
	}
}

// A settlement, an extension and a cancel are refused at each owner if they lack something by which the check was
// counted, and so is one number for draws of different costs. The reservation stands for all keys.
func TestWhatAReservationLacks(t *testing.T) {
	nodes := three(t, `version: 1
quotas: [{name: units, key: [user], limits: [1000/day]}]
rules:
  - {name: two, match: {path: "^/two"}, keys: [[ip], [user], ["attr:plan"]], limits: [100/day]}
  - {name: draws, continue: true, key: [user], quotas: [{name: units, cost: 3}]}
  - {name: requests, key: [user], limits: [100/day], cost: 2, quotas: [{name: units, cost: 1}]}
`)
	left := func(r weir.Request, want ...uint64) {
		t.Helper()
		r.ID, r.Hold = "", 0
		d, err := nodes[2].Peek(t.Context(), r)
		for i := range want {
			if err != nil || d.Limit(i).Remaining != want[i] {
				t.Errorf("%v: limit %d has %d left, want %d, %v", r.User, i, d.Limit(i).Remaining, want[i], err)
			}
		}
	}
	for u := range 12 {
		r := weir.Request{Path: "/two", User: fmt.Sprint("user", u), IP: fmt.Sprint("192.0.2.", u), ID: "7", Hold: time.Hour,
			Attributes: map[string]string{"plan": fmt.Sprint("plan", u)}, Cost: weir.Units(10)}
		if d, err := nodes[0].Check(t.Context(), r); err != nil || !d.Allowed {
			t.Fatalf("user %d: %+v, %v", u, d, err)
		}
		for what, less := range map[string]weir.Request{
			`attribute "plan"`: {Path: r.Path, User: r.User, IP: r.IP, ID: r.ID, Hold: r.Hold},
			"user":             {Path: r.Path, Attributes: r.Attributes, IP: r.IP, ID: r.ID, Hold: r.Hold},
			"ip, user":         {Path: r.Path, Attributes: r.Attributes, ID: r.ID, Hold: r.Hold},
		} {
			_, settled := nodes[1].Settle(t.Context(), less, 4)
			_, canceled := nodes[1].Cancel(t.Context(), less)
			less.Cost = weir.Units(20)
			_, extended := nodes[1].Extend(t.Context(), less)
			for _, err := range []error{settled, canceled, extended} {
				if !errors.Is(err, weir.ErrInvalid) || !strings.HasSuffix(err.Error(), "lacks: "+what) {
					t.Errorf("user %d without %s: %v", u, what, err)
				}
			}
		}
		left(r, 90, 90, 90)
		if a, err := nodes[2].Settle(t.Context(), r, 4); err != nil || a.State != weir.AmendDone {
			t.Errorf("user %d: %+v, %v", u, a, err)
		}
		left(r, 96, 96, 96)

		r = weir.Request{User: r.User, ID: "8", Hold: time.Hour}
		if d, err := nodes[0].Check(t.Context(), r); err != nil || !d.Allowed {
			t.Fatalf("user %d: %+v, %v", u, d, err)
		}
		if a, err := nodes[1].Settle(t.Context(), r, 800); !errors.Is(err, weir.ErrCosts) {
			t.Errorf("user %d: %+v, %v", u, a, err)
		}
		left(r, 996, 98)
		if a, err := nodes[1].Cancel(t.Context(), r); err != nil || a.State != weir.AmendDone {
			t.Errorf("user %d: %+v, %v", u, a, err)
		}
	}
}
