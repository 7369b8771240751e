package weir_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/rules"
)

// A reservation is settled and cancelled also while an operator denies or frees its user: what was used is charged, and
// what was held is free again.
func TestAReservationIsSettledWhileItsUserIsDeniedOrFree(t *testing.T) {
	now := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	for _, deny := range []bool{true, false} {
		n, err := weir.Open(context.Background(), weir.Config{Now: func() time.Time { return now },
			Logger: slog.New(slog.DiscardHandler), Rules: []byte(`
version: 1
rules:
  - {name: a, match: {path: ^/a}, key: [user], limits: [{limit: 10, window: 1h, algorithm: fixed_window}]}
  - {name: c, match: {path: ^/c}, key: [user], limits: [{limit: 1, algorithm: concurrency}], hold: 10m}
`)})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		units := weir.Request{Path: "/a", User: "ada", ID: "x", Hold: time.Minute, Cost: weir.Units(8)}
		slot := weir.Request{Path: "/c", User: "ada", ID: "y"}
		kept := weir.Request{Path: "/a", User: "ada"}
		var receipt weir.Receipt
		for i, r := range []weir.Request{units, slot, kept} {
			d, err := n.Check(t.Context(), r)
			if err != nil || !d.Allowed {
				t.Fatal(i, d.Allowed, err)
			}
			receipt = d.Receipt
		}
		n.SetOverrides([]rules.Override{{Rule: "a", User: "ada", Deny: deny}, {Rule: "c", User: "ada", Deny: deny}})
		units.Hold = time.Minute
		if out, err := n.Extend(t.Context(), units); err != nil || out.State != weir.AmendDone {
			t.Errorf("deny %t: extended: %+v, %v", deny, out, err)
		}
		units.Hold, units.Cost = 0, weir.Request{}.Cost
		if out, err := n.Settle(t.Context(), units, 7); err != nil || out.State != weir.AmendDone || out.Estimate != 8 {
			t.Errorf("deny %t: settled: %+v, %v", deny, out, err)
		}
		if out, err := n.Cancel(t.Context(), slot); err != nil || out.State != weir.AmendDone {
			t.Errorf("deny %t: cancelled: %+v, %v", deny, out, err)
		}
		if err := n.Refund(t.Context(), kept, receipt); err != nil {
			t.Errorf("deny %t: refunded: %v", deny, err)
		}
		unknown := weir.Request{Path: "/a", User: "ada", ID: "z"}
		if out, err := n.Settle(t.Context(), unknown, 3); err != nil || out.State != weir.AmendUnknown {
			t.Errorf("deny %t: settled an unknown id: %+v, %v", deny, out, err)
		}
		n.SetOverrides(nil)
		if d, err := n.Peek(t.Context(), kept); err != nil || d.Limit(0).Remaining != 3 {
			t.Errorf("deny %t: %d left, want 3 of 10 after 7 were used: %v", deny, d.Limit(0).Remaining, err)
		}
		slot.ID = "another"
		if d, err := n.Check(t.Context(), slot); err != nil || !d.Allowed {
			t.Errorf("deny %t: the slot is held still: %v", deny, err)
		}
		n.SetOverrides([]rules.Override{{Rule: "a", User: "ada", Deny: deny}})
		if _, err := n.Reset(t.Context(), kept); err != nil {
			t.Error(err)
		}
		n.SetOverrides(nil)
		if d, err := n.Peek(t.Context(), kept); err != nil || d.Limit(0).Remaining != 10 {
			t.Errorf("deny %t: %d left after a reset, want 10: %v", deny, d.Limit(0).Remaining, err)
		}
	}
}
