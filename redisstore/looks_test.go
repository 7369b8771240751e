package redisstore_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/redisstore"
)

// A bucket leaks under the number that was charged last also if a reload has given its algorithm another of its names:
// looks and denials by another plan change nothing.
func TestALookByAnotherPlanAfterAnotherNameOfTheAlgorithm(t *testing.T) {
	const file = `
version: 1
rules:
  - name: api
    key: [user]
    limits: [{limit: {by: "attr:plan", of: {pro: 12}, else: 6}, window: 1m, algorithm: token_bucket}]
`
	now := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	for name, backend := range map[string]weir.Backend{
		"memory": nil, "redis": openStore(t, redisstore.Config{Addrs: []string{startServer(t).addr()}}),
	} {
		n, err := weir.Open(t.Context(), weir.Config{Now: func() time.Time { return now }, Backend: backend,
			Logger: slog.New(slog.DiscardHandler), Rules: []byte(file)})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		free := weir.Request{Path: "/", User: "ada", Cost: weir.Units(6)}
		if d, err := n.Check(t.Context(), free); err != nil || !d.Allowed {
			t.Fatalf("%s: %+v, %v", name, d, err)
		}
		if err := n.SetRules([]byte(strings.Replace(file, "token_bucket", "gcra", 1))); err != nil {
			t.Fatal(err)
		}
		pro := weir.Request{Path: "/", User: "ada", Attributes: map[string]string{"plan": "pro"}, Cost: weir.Units(12)}
		for range 2 {
			if d, err := n.Check(t.Context(), pro); err != nil || d.Allowed || d.RetryAfter != time.Minute {
				t.Errorf("%s: %v, wait %v, want a minute: six leak in it: %v", name, d.Allowed, d.RetryAfter, err)
			}
		}
		if d, err := n.Peek(t.Context(), free); err != nil || d.RetryAfter != time.Minute {
			t.Errorf("%s: wait %v, want a minute: %v", name, d.RetryAfter, err)
		}
	}
}

// The wait that a request is told by the number of its plan is exact beside a reservation, also if the number that was
// charged last is of the other width: what is reserved comes back when its hold ends.
func TestTheWaitByAPlanOfTheOtherWidthKnowsReservations(t *testing.T) {
	now := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	for name, backend := range map[string]weir.Backend{
		"memory": nil, "redis": openStore(t, redisstore.Config{Addrs: []string{startServer(t).addr()}}),
	} {
		n, err := weir.Open(t.Context(), weir.Config{Now: func() time.Time { return now }, Backend: backend,
			Logger: slog.New(slog.DiscardHandler), Rules: []byte(`
version: 1
rules:
  - name: api
    key: [user]
    limits: [{limit: {by: "attr:plan", of: {wide: 9000000000}, else: 1000000000}, window: 1m, algorithm: gcra}]
`)})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		wide := weir.Request{Path: "/", User: "ada", Attributes: map[string]string{"plan": "wide"},
			Cost: weir.Units(2_000_000_000), ID: "x", Hold: time.Second}
		for range 2 { // the second time with another id, for good
			if d, err := n.Check(t.Context(), wide); err != nil || !d.Allowed {
				t.Fatalf("%s: %+v, %v", name, d, err)
			}
			wide.ID, wide.Hold, wide.Cost = "", 0, weir.Units(1_000_000_000)
		}
		plain := weir.Request{Path: "/", User: "ada"}
		d, err := n.Peek(t.Context(), plain)
		if err != nil || d.Allowed || d.RetryAfter != time.Second {
			t.Errorf("%s: wait %v, want a second, when 2 of 3 billion come back: %v", name, d.RetryAfter, err)
		}
		for _, allowed := range []bool{false, true} {
			now = now.Add(d.RetryAfter - time.Microsecond)
			if d, err := n.Peek(t.Context(), plain); err != nil || d.Allowed != allowed {
				t.Errorf("%s: %v at %v, want %v: %v", name, d.Allowed, now, allowed, err)
			}
			d.RetryAfter = 2 * time.Microsecond
		}
	}
}
