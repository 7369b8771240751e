package weir_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter/arith"
)

const refundable = `version: 1
rules:
  - {name: a, match: {path: ^/a}, key: [user], limits: [{limit: 10, window: 1h, algorithm: fixed_window, count_rejected: all}]}
  - {name: free, match: {path: ^/free}, unlimited: true}
`

// left returns how many units a request may still cost.
func left(t *testing.T, n *weir.Node, r weir.Request) uint64 {
	t.Helper()
	d, err := n.Peek(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return d.Limit(0).Remaining
}

// A sealed receipt takes back its charge, once, however often and from wherever it is
// used, and nothing else.
func TestSealedReceipts(t *testing.T) {
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	n := open(t, weir.Config{Rules: []byte(refundable), Now: func() time.Time {
		return now
	}, Secret: []byte("a secret of sixteen bytes")})
	ctx := t.Context()
	ada := weir.Request{Path: "/a", User: "ada", Cost: weir.Units(2)}
	var receipts []weir.Receipt
	for range 4 {
		d, err := n.Check(ctx, ada)
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		receipts = append(receipts, n.SealReceipt(&ada, &d))
	}
	var all sync.WaitGroup
	for range 8 { // the receipts of one instant and cost are apart
		all.Go(func() {
			if err := n.Refund(ctx, ada, receipts[0]); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := left(t, n, ada); got != 4 {
		t.Errorf("%d left after one refund", got)
	}
	if err := n.Refund(ctx, ada, receipts[1]); err != nil || left(t, n, ada) != 6 {
		t.Errorf("%d left after two refunds, %v", left(t, n, ada), err)
	}
	forged := receipts[2]
	of := arith.Fields(&forged)
	of.Charged, of.Time, of.Sealed = 1, 1, of.Sealed[:20]+"A"+of.Sealed[21:]
	other := open(t, weir.Config{Rules: []byte(refundable), Now: func() time.Time {
		return now
	}, Secret: []byte("a secret of sixteen bytes")})
	for what, err := range map[string]error{
		"another user":  n.Refund(ctx, weir.Request{Path: "/a", User: "bob", Cost: weir.Units(2)}, receipts[2]),
		"forged":        n.Refund(ctx, ada, forged),
		"another node":  other.Refund(ctx, ada, receipts[2]),
		"another cost":  n.Refund(ctx, weir.Request{Path: "/a", User: "ada", Cost: weir.Units(9)}, receipts[2]),
		"another path":  n.Refund(ctx, weir.Request{Path: "/free", User: "ada", Cost: weir.Units(2)}, receipts[2]),
		"a bad request": n.Refund(ctx, weir.Request{Path: "/a", Cost: weir.Units(-1)}, receipts[2]),
	} {
		if !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := left(t, n, ada); got != 6 {
		t.Errorf("%d left after refunds that are none", got)
	}
	now = now.Add(10 * time.Minute)
	if err := n.Refund(ctx, ada, receipts[3]); err != nil || left(t, n, ada) != 6 {
		t.Errorf("%d left after a refund that came too late, %v", left(t, n, ada), err)
	}
	// A denial that was charged has a receipt, what was not charged has none.
	ada.Cost = weir.Units(7)
	d, err := n.Check(ctx, ada)
	if rc := n.SealReceipt(&ada, &d); err != nil || d.Allowed || rc.Sealed() == "" || n.Refund(ctx, ada, rc) != nil {
		t.Errorf("%+v, %v", d, err)
	}
	ada.Cost = weir.Units(1)
	if got := left(t, n, ada); got != 6 {
		t.Errorf("%d left", got)
	}
	for _, r := range []weir.Request{{Path: "/free"}, {Path: "/none"}, {Path: "/a", User: "x", Cost: weir.Units(0)}} {
		d, err := n.Check(ctx, r)
		if rc := n.SealReceipt(&r, &d); err != nil || rc != (weir.Receipt{}) {
			t.Errorf("%+v: %+v, %v", r, rc, err)
		}
	}
}

// A receipt is of the limits of its check: under others it takes back nothing, whatever
// their names.
func TestReceiptsOfOtherLimits(t *testing.T) {
	const first, second = `{version: 1, rules: [
  {name: z, match: {path: ^/z}, key: [user], limits: [{limit: 10, calendar: day, zone: "attr:tz", count_rejected: all}]},
  {name: a, match: {path: ^/a}, key: [user], limits: [{name: x, limit: 10, window: 1m, algorithm: fixed_window}]}]}`,
		`{version: 1, rules: [
  {name: a, match: {path: ^/a}, key: [user], limits: [{name: x, limit: 10, window: 1h, algorithm: fixed_window}]}]}`
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	n := open(t, weir.Config{Rules: []byte(first), Now: func() time.Time { return now }})
	ctx := t.Context()
	spend := func(r weir.Request) weir.Receipt {
		t.Helper()
		d, err := n.Check(ctx, r)
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		return n.SealReceipt(&r, &d)
	}
	in := func(zone string) weir.Request {
		return weir.Request{Path: "/z", User: "ada", Cost: weir.Units(2), Attributes: map[string]string{"tz": zone}}
	}
	ada := weir.Request{Path: "/a", User: "ada", Cost: weir.Units(2)}
	there := spend(in("Pacific/Kiritimati"))
	if err := n.Refund(ctx, in("UTC"), there); !errors.Is(err, weir.ErrInvalid) || left(t, n, in("UTC")) != 8 {
		t.Errorf("%d left after a refund in another zone, %v", left(t, n, in("UTC")), err)
	}
	old := spend(ada)
	if err := n.Refund(ctx, ada, spend(ada)); err != nil || left(t, n, ada) != 8 {
		t.Errorf("%d left after a refund, %v", left(t, n, ada), err)
	}
	if err := n.SetRules([]byte(second)); err != nil {
		t.Fatal(err)
	}
	if err := n.Refund(ctx, ada, old); !errors.Is(err, weir.ErrInvalid) || left(t, n, ada) != 8 {
		t.Errorf("%d left after a refund under another window, %v", left(t, n, ada), err)
	}
}

// A receipt is void if its keys were reset since, and good if they were reset before, however often, even if the
// clock stands still, or goes back.
func TestReceiptsAroundResetsOfOneInstant(t *testing.T) {
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	n := open(t, weir.Config{Rules: []byte(refundable), Now: func() time.Time { return now }})
	ada := weir.Request{Path: "/a", User: "ada", Cost: weir.Units(2)}
	var receipts []weir.Receipt
	charge := func() {
		d, err := n.Check(t.Context(), ada)
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		receipts = append(receipts, d.Receipt)
	}
	for range 3 {
		charge()
		if _, err := n.Reset(t.Context(), ada); err != nil {
			t.Fatal(err)
		}
	}
	charge()
	charge()
	for i, want := range []uint64{6, 6, 6, 8, 10} {
		if err := n.Refund(t.Context(), ada, receipts[i]); err != nil || left(t, n, ada) != want {
			t.Errorf("%d left after refund %d, want %d; %v", left(t, n, ada), i, want, err)
		}
	}
	now = now.Add(-time.Second)
	charge()
	if err := n.Refund(t.Context(), ada, receipts[5]); err != nil || left(t, n, ada) != 10 {
		t.Errorf("%d left after the refund of a clock that went back; %v", left(t, n, ada), err)
	}
}
