package weir_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/limiter/table"
)

const tokens = "defaults: {algorithm: fixed_window}\nrules: [{name: tokens, key: [user], limits: [{name: hour, " +
	"limit: 700, window: 1h}]}]"

// A check with a hold is a reservation, which is settled, cancelled and extended. It has no
// receipt.
func TestReservations(t *testing.T) {
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	n := open(t, weir.Config{Rules: []byte(tokens), Now: func() time.Time { return now }})
	ctx := t.Context()
	r := weir.Request{Path: "/chat", User: "ada", ID: "7", Hold: time.Minute, Cost: weir.Units(400)}
	left := func() uint64 {
		d, err := n.Peek(ctx, weir.Request{Path: "/chat", User: "ada"})
		if err != nil {
			t.Fatal(err)
		}
		return d.Limit(0).Remaining
	}
	d, err := n.Check(ctx, r)
	if err != nil || !d.Allowed || d.Receipt != (weir.Receipt{}) || n.Stats().Holds != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	r.Cost = weir.Units(500)
	if a, err := n.Extend(ctx, r); err != nil || a.State != weir.AmendDone || a.Estimate != 500 || left() != 200 {
		t.Errorf("%+v, %v, %d left", a, err, left())
	}
	r.Cost = weir.Units(701)
	// it ends before there is room
	if a, err := n.Extend(ctx, r); err != nil || a.State != weir.AmendDenied || a.RetryAfter != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := n.Settle(ctx, r, 900); err != nil || a.State != weir.AmendDone || a.Over != 200 || left() != 0 ||
		n.Stats().Overdrawn != 200 {
		t.Errorf("%+v, %v, %d left", a, err, left())
	}
	if a, err := n.Settle(ctx, r, 900); err != nil || a.State != weir.AmendRepeated {
		t.Errorf("%+v, %v", a, err)
	}
	for what, f := range map[string]func() (weir.Amended, error){
		"settle": func() (weir.Amended, error) { return n.Settle(ctx, r, 1) },
		"cancel": func() (weir.Amended, error) { return n.Cancel(ctx, r) },
		"extend": func() (weir.Amended, error) { return n.Extend(ctx, r) },
	} {
		if a, err := f(); !errors.Is(err, weir.ErrSettled) || a.First != 900 ||
			!strings.Contains(err.Error(), "stands for 900 units") {
			t.Errorf("%s again: %+v, %v", what, a, err)
		}
	}
	now = now.Add(time.Hour)
	r.ID, r.Cost = "8", weir.Units(400)
	if d, err := n.Check(ctx, r); err != nil || !d.Allowed || left() != 300 {
		t.Fatalf("%+v, %v", d, err)
	}
	if a, err := n.Cancel(ctx, r); err != nil || a.State != weir.AmendDone || a.Estimate != 400 || left() != 700 {
		t.Errorf("%+v, %v, %d left", a, err, left())
	}
	r.ID = "9"
	if a, err := n.Settle(ctx, r, 5, weir.IgnoreUnknown()); err != nil || a.State != weir.AmendUnknown || left() != 700 {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := n.Settle(ctx, r, 5); err != nil || a.State != weir.AmendCharged || left() != 695 {
		t.Errorf("%+v, %v", a, err)
	}
	r.ID = "10"
	if a, err := n.Extend(ctx, r); err != nil || a.State != weir.AmendUnknown {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := n.Cancel(ctx, r); err != nil || a.State != weir.AmendUnknown {
		t.Errorf("%+v, %v", a, err)
	}
}

// Requests that cannot be settled are refused with what to give instead.
func TestBadReservations(t *testing.T) {
	n, ctx := open(t, weir.Config{Rules: []byte(tokens)}), t.Context()
	b := open(t, weir.Config{Rules: []byte(tokens), Backend: &tableBackend{table: table.New(table.Config{})}})
	r := weir.Request{Path: "/chat", User: "ada", ID: "7", Hold: time.Minute}
	lends := open(t, weir.Config{Rules: []byte(`rules: [{name: r, key: [rule], leases: auto, limits: [9/day]}]`),
		Backend: &tableBackend{table: table.New(table.Config{})}})
	long, nameless, brief := r, r, r
	long.ID, nameless.ID, brief.Hold = strings.Repeat("x", 65), "", time.Microsecond
	for want, f := range map[string]func() error{
		"the request has no id": func() error {
			_, err := n.Settle(ctx, nameless, 1)
			return err
		},
		"settled with -1: give 0 to 9007199254740991": func() error { _, err := n.Settle(ctx, r, -1); return err },
		"settled with 9007199254740992: give 0": func() error {
			_, err := n.Settle(ctx, r, limiter.MaxUnits+1)
			return err
		},
		"the id has 65 bytes; at most 64": func() error { _, err := n.Cancel(ctx, long); return err },
		"extended by no time": func() error {
			_, err := n.Extend(ctx, weir.Request{Path: "/chat", User: "ada", ID: "7"})
			return err
		},
		"held for 1µs, which is out of range":               func() error { _, err := n.Extend(ctx, brief); return err },
		"to be held and has no id":                          func() error { _, err := n.Check(ctx, nameless); return err },
		"reservations are not supported with this backend":  func() error { _, err := b.Check(ctx, r); return err },
		"reservations are not supported with this backend ": func() error { _, err := b.Settle(ctx, r, 1); return err },
		"nothing is lent with this backend": func() error {
			lent := r
			lent.Lent, lent.Hold = true, time.Second/10
			_, err := lends.Check(ctx, lent)
			return err
		},
	} {
		if err := f(); !errors.Is(err, weir.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	slots := []byte("version: 1\nrules: [{name: r, key: [user], limits: [{limit: 1, algorithm: concurrency}, 5/hour]}]\n")
	_, err := weir.Open(ctx, weir.Config{Rules: slots, Backend: &tableBackend{table: table.New(table.Config{})}})
	if !errors.Is(err, weir.ErrInvalid) || !strings.Contains(err.Error(),
		`rule "r" limits concurrency, which takes reservations, and the backend has none`) {
		t.Errorf("a node with a backend: %v", err)
	}
	if err := b.SetRules(slots); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("a node with a backend takes %v", err)
	}
	s := open(t, weir.Config{Rules: slots})
	for _, r := range []weir.Request{{User: "ada"}, {User: "ada", ID: "1"}} {
		if _, err := s.Check(ctx, r); !errors.Is(err, weir.ErrInvalid) ||
			!strings.Contains(err.Error(), "give the request an id") {
			t.Errorf("a check without an id or a hold: %v", err)
		}
		ds, err := s.CheckBatch(ctx, []weir.Request{r, {User: "ada", Cost: weir.Units(0)}})
		if err == nil || ds[0].Allowed || !ds[1].Allowed {
			t.Errorf("in a batch: %v", err)
		}
	}
	if d, err := s.Peek(ctx, weir.Request{User: "ada"}); err != nil || !d.Allowed || d.Limit(0).Remaining != 1 ||
		d.Limit(1).Remaining != 5 {
		t.Errorf("a peek: %+v, %v", d, err)
	}
	l := limitertest.Limit(t, limiter.Spec{Limit: 1, Algorithm: limiter.Concurrency})
	if _, err := s.Check(ctx, weir.Request{User: "ada", Limits: []*limiter.Limit{l}}); !errors.Is(err, weir.ErrInvalid) ||
		!strings.Contains(err.Error(), "only rules of the rules file limit") {
		t.Errorf("a limit of a request: %v", err)
	}
	plain := weir.Request{Path: "/chat", User: "eve", ID: "7", Cost: weir.Units(3)}
	if _, err := n.Check(ctx, plain); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Settle(ctx, plain, 2); !errors.Is(err, weir.ErrSettled) {
		t.Errorf("a check without a hold was settled: %v", err)
	}
	if a, err := n.Settle(ctx, plain, 3); err != nil || a.State != weir.AmendRepeated {
		t.Errorf("%+v, %v", a, err)
	}
}

// One number beside one for each attribute says two things at once.
func TestANumberBesideAttributes(t *testing.T) {
	n := open(t, weir.Config{Rules: []byte(tokens)})
	r, used := weir.Request{Path: "/chat", User: "ada", ID: "1"}, map[string]int64{"tokens": 1}
	if _, err := n.Settle(t.Context(), r, 1, weir.Actual(used)); !errors.Is(err, weir.ErrInvalid) ||
		!strings.Contains(err.Error(), "give one of the two") {
		t.Error(err)
	}
}
