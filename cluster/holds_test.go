package cluster_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A reservation is settled, extended and cancelled at whichever member is asked, also after a
// member has left. Those of several users have several owners.
func TestHoldsAcrossMembers(t *testing.T) {
	nodes := three(t, "version: 1\nrules: [{name: all, key: [user], limits: [40/day]}]\n")
	request := func(u int) weir.Request {
		return weir.Request{User: fmt.Sprint("user", u), ID: "7", Hold: time.Hour, Cost: weir.Units(10)}
	}
	left := func(u int, want uint32, when string) {
		t.Helper()
		if d, err := nodes[u%2].Peek(t.Context(), weir.Request{User: request(u).User}); err != nil || d.Limit(0).Remaining != want {
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
		a, err = one.Settle(t.Context(), r, 42, false)
		is(a, err, weir.AmendDone)
		if a.Estimate != 15 || a.Over != 2 {
			t.Errorf("user %d was settled: %+v", u, a)
		}
		left(u, 0, "settled")
		a, err = other.Settle(t.Context(), r, 42, false)
		is(a, err, weir.AmendRepeated)
		if a, err = other.Settle(t.Context(), r, 41, false); !errors.Is(err, weir.ErrSettled) || a.First != 42 {
			t.Errorf("user %d was settled with another number: %+v, %v", u, a, err)
		}
	}
}
