package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A rate is divided among holders, whichever members they ask, and what is assigned counts on once a member has left.
func TestSlicesAcrossMembers(t *testing.T) {
	nodes := three(t, `version: 1
rules:
  - {name: all, key: [user], limits: [{name: bucket, algorithm: token_bucket, limit: 6000, window: minute, burst: 200}]}
`)
	ask := func(n *weir.Node, u, holder int, rate uint64) uint64 {
		t.Helper()
		d, err := n.Check(t.Context(), weir.Request{User: fmt.Sprint("user", u), ID: fmt.Sprint(holder), Lent: true,
			Hold: time.Minute, Cost: weir.Units(21), Rate: rate})
		if err != nil || d.Limit(0).Remaining > 200-21 {
			t.Fatal(d, err)
		}
		return d.Remarks().Assigned
	}
	had := make(map[int]uint64)
	for u := range 6 {
		a, b := ask(nodes[0], u, 1, 80), ask(nodes[1], u, 2, 80)
		if had[u] = a; a < 80 || b == 0 || a+b > 100 {
			t.Errorf("user %d: %d and %d of 100 a second are assigned to holders that ask for 80 each", u, a, b)
		}
		e, err := nodes[2].Explain(t.Context(), weir.Request{User: fmt.Sprint("user", u)})
		want := fmt.Sprintf(", assigned with %d a second}", b)
		if err != nil || !strings.Contains(fmt.Sprint(e.Limits), want) {
			t.Errorf("user %d: the explanation %v lacks %q: %v", u, e.Limits, want, err)
		}
	}
	if err := nodes[2].Cluster().Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	for u := range 6 {
		if a, b := ask(nodes[1], u, 1, 10), ask(nodes[0], u, 2, 80); a < 10 || a > 30 || had[u]+b > 100 {
			t.Errorf("user %d: %d and %d are assigned, and %d of 100 for a minute before", u, a, b, had[u])
		}
	}
}

// What a fast slice leaves another one is assigned at once, whichever members they ask.
func TestFastSlicesAcrossMembers(t *testing.T) {
	nodes := three(t, `version: 1
rules:
  - {name: all, key: [user], limits: [{name: bucket, algorithm: token_bucket, limit: 6000, window: minute, burst: 200}]}
`)
	for _, fast := range []bool{true, false} {
		ask := func(n *weir.Node, u, holder int, rate uint64) uint64 {
			t.Helper()
			d, err := n.Check(t.Context(), weir.Request{User: fmt.Sprint("user", u, fast), ID: fmt.Sprint(holder), Lent: true,
				Hold: time.Minute, Cost: weir.Units(21), Rate: rate, Fast: fast})
			if err != nil {
				t.Fatal(err)
			}
			return d.Remarks().Assigned
		}
		for u := range 6 {
			ask(nodes[0], u, 1, 80)
			ask(nodes[0], u, 1, 10)
			if got := ask(nodes[1], u, 2, 80); (got >= 80) != fast {
				t.Errorf("user %d, fast %v: %d of 100 are assigned beside a slice that had 80 and has 10", u, fast, got)
			}
		}
	}
}
