package redisstore_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/rules"
)

// What was charged before an operator limited its user is extended, settled, refunded and reset where it was charged,
// and so is what was reserved under the override.
func TestWhatIsReservedIsSettledWhileItsUserIsLimited(t *testing.T) {
	now := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	for name, backend := range map[string]weir.Backend{
		"memory": nil, "redis": openStore(t, redisstore.Config{Addrs: []string{startServer(t).addr()}}),
	} {
		n, err := weir.Open(t.Context(), weir.Config{Now: func() time.Time { return now }, Backend: backend,
			Logger: slog.New(slog.DiscardHandler), Rules: []byte(`
version: 1
defaults: {key: [user]}
rules:
  - {name: a, match: {path: ^/a}, limits: [{limit: 10, window: 1h, algorithm: fixed_window}]}
  - {name: c, match: {path: ^/c}, limits: [{limit: 1, algorithm: concurrency}], hold: 10m}
  - {name: first, limits: [{limit: 10, window: 1h, algorithm: fixed_window}], continue: true}
  - {name: second, limits: [{limit: 10, window: 1h, algorithm: fixed_window}]}
`)})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		check := func(r weir.Request) weir.Receipt {
			now = now.Add(time.Microsecond)
			d, err := n.Check(t.Context(), r)
			if err != nil || !d.Allowed {
				t.Fatalf("%s: %+v, %v", name, d, err)
			}
			return d.Receipt
		}
		left := func(r weir.Request, want ...uint64) {
			t.Helper()
			r.ID, r.Hold, r.Cost = "", 0, weir.Units(0)
			d, err := n.Peek(t.Context(), r)
			for i, remain := range want {
				if err != nil || d.Limit(i).Remaining != remain {
					t.Errorf("%s: %d are left of limit %d, want %d: %v", name, d.Limit(i).Remaining, i, remain, err)
				}
			}
		}
		amended := func(want uint64) func(out weir.Amended, err error) {
			return func(out weir.Amended, err error) {
				t.Helper()
				if err != nil || out.State != weir.AmendDone || out.Estimate != want {
					t.Errorf("%s: %+v, %v; want %d done", name, out, err, want)
				}
			}
		}
		units := weir.Request{Path: "/a", User: "ada", ID: "x", Hold: time.Minute, Cost: weir.Units(8)}
		slot := weir.Request{Path: "/c", User: "ada", ID: "y"}
		kept := weir.Request{Path: "/a", User: "ada"}
		two := weir.Request{Path: "/two", User: "ada", ID: "t", Hold: time.Minute, Cost: weir.Units(2)}
		check(units)
		check(slot)
		check(two)
		receipt := check(kept)

		limit, err := rules.OverrideLimit("5/hour")
		if err != nil {
			t.Fatal(err)
		}
		limited := []rules.Override{{Rule: "a", User: "ada", Limit: limit}, {Rule: "c", User: "ada", Limit: limit},
			{Rule: "second", User: "ada", Limit: limit}}
		n.SetOverrides(limited)
		amended(8)(n.Extend(t.Context(), units))
		amended(8)(n.Settle(t.Context(), units, 7))
		amended(1)(n.Cancel(t.Context(), slot))
		amended(2)(n.Settle(t.Context(), two, 1))
		if err := n.Refund(t.Context(), kept, receipt); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		left(units, 5)
		left(two, 9, 5)
		two.ID = "under"
		check(two)
		left(two, 7, 3)
		amended(2)(n.Cancel(t.Context(), two))
		left(two, 9, 5)
		two.ID = "unknown"
		if out, err := n.Settle(t.Context(), two, 3); err != nil || out.State != weir.AmendCharged {
			t.Errorf("%s: an id that is not known: %+v, %v", name, out, err)
		}
		left(two, 6, 2)

		n.SetOverrides(nil)
		left(units, 3)
		left(two, 6, 9)
		slot.ID = "another"
		check(slot)
		n.SetOverrides(limited)
		if _, err := n.Reset(t.Context(), kept); err != nil {
			t.Error(err)
		}
		n.SetOverrides(nil)
		left(units, 10)
	}
}
