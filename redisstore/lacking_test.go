package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/redisstore"
)

// Who lacks something by which the check was counted, and gives one number where costs differ, is told first what it
// lacks: what the costs are is not known before.
func TestWhatIsLackingIsToldBeforeCosts(t *testing.T) {
	srv := startServer(t)
	const file = `version: 1
rules:
  - {name: requests, key: [user], continue: true, limits: [100/day]}
  - {name: tokens, key: [user], continue: true, limits: [9000/day], cost: {from: "attr:tokens"}}
  - {name: plans, match: {attributes: {plan: }}, key: ["attr:plan"], limits: [100/day]}
`
	memory, err := weir.Open(t.Context(), weir.Config{Rules: []byte(file)})
	if err != nil {
		t.Fatal(err)
	}
	for in, n := range map[string]*weir.Node{"memory": memory,
		"redis": newNode(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}), file)} {
		r := weir.Request{User: "ada", ID: "x", Hold: time.Hour, Attributes: map[string]string{"tokens": "2000", "plan": "a"}}
		if d, err := n.Check(t.Context(), r); err != nil || !d.Allowed {
			t.Fatalf("%s: %+v, %v", in, d, err)
		}
		if _, err := n.Settle(t.Context(), r, 5); !errors.Is(err, weir.ErrCosts) {
			t.Errorf("%s: with all that the check had: %v", in, err)
		}
		delete(r.Attributes, "plan")
		if _, err := n.Settle(t.Context(), r, 5); !errors.Is(err, weir.ErrInvalid) ||
			!strings.HasSuffix(err.Error(), `lacks: attribute "plan"`) {
			t.Errorf("%s: without the plan: %v", in, err)
		}
	}
}

// An extension that is denied is a check that is denied, and charged as one, also by a request that lacks something by
// which it might be counted otherwise.
func TestADeniedExtensionIsCounted(t *testing.T) {
	srv := startServer(t)
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	const file = `version: 1
rules:
  - {name: r, key: [user], continue: true, limits: [
      {limit: 10, window: 1d, algorithm: fixed_window, count_rejected: all}, {limit: 5, window: 1h, algorithm: fixed_window, block: 1m}]}
  - {name: plans, match: {attributes: {plan: }}, key: ["attr:plan"], limits: [100/day]}
`
	for in, backend := range map[string]weir.Backend{"memory": nil,
		"redis": openStore(t, redisstore.Config{Addrs: []string{srv.addr()}})} {
		n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(file), Backend: backend,
			Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		r := weir.Request{User: "ada", ID: "x", Hold: time.Hour, Cost: weir.Units(4)}
		if d, err := n.Check(t.Context(), r); err != nil || !d.Allowed {
			t.Fatalf("%s: %+v, %v", in, d, err)
		}
		r.Cost = weir.Units(6)
		if a, err := n.Extend(t.Context(), r); err != nil || a.State != weir.AmendDenied {
			t.Errorf("%s: the extension is %v, %v", in, a.State, err)
		}
		d, err := n.Peek(t.Context(), weir.Request{User: "ada"})
		if err != nil || d.Limit(0).Remaining != 4 || !d.Limit(1).Blocked {
			t.Errorf("%s: %d left, blocked %v, %v; want 4, and blocked", in, d.Limit(0).Remaining, d.Limit(1).Blocked, err)
		}
	}
}

// A settlement that one number cannot make names the same estimates in memory, in Redis and in a Redis Cluster,
// whatever is wrong with the number first.
func TestWhatDiffersIsNamedAlike(t *testing.T) {
	srv, masters := startServer(t), startCluster(t)
	const head = "version: 1\ndefaults: {key: [user], algorithm: fixed_window}\n"
	for name, row := range map[string]struct {
		file     string
		cost     map[string]string
		settled  int64
		estimate uint64
		first    uint64
	}{
		"draws that add up, and rules": {head + `
quotas:
  - {name: units, key: [user], limits: [1000000/day]}
rules:
  - {name: requests, continue: true, limits: [100/day], quotas: [{name: units, cost: 1}]}
  - {name: pages, continue: true, limits: [1000/day], cost: 5, quotas: [{name: units, cost: 3}]}
  - {name: tokens, limits: [40000/day], cost: {from: "attr:tokens"}}
`, map[string]string{"tokens": "2000"}, 800, 1, 0},
		"numbers whose products are rounded": {head + `
rules:
  - {name: small, continue: true, limits: [9007199254740991/day], cost: {from: "attr:small"}}
  - {name: large, limits: [9007199254740991/day], cost: {from: "attr:large"}}
`, map[string]string{"small": "9007199254740990", "large": "9007199254740991"}, 1<<40 + 1, 1<<53 - 2, 1<<53 - 1},
	} {
		for in, backend := range map[string]weir.Backend{"memory": nil,
			"redis":   openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}),
			"cluster": openStore(t, clusterConfig(masters))} {
			n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(row.file), Backend: backend})
			if err != nil {
				t.Fatal(err)
			}
			r := weir.Request{User: name, ID: "1", Hold: time.Minute, Attributes: row.cost}
			if d, err := n.Check(t.Context(), r); err != nil || !d.Allowed {
				t.Fatalf("%s, %s: %+v, %v", name, in, d, err)
			}
			a, err := n.Settle(t.Context(), r, row.settled)
			if !errors.Is(err, weir.ErrCosts) || a.Estimate != row.estimate || a.First != row.first {
				t.Errorf("%s, %s: %+v, %v", name, in, a, err)
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
