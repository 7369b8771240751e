package route

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// While the fallback table can take no further limits, local rules deny what has no
// counter there: a share that is not counted would have no bound. Open rules allow.
func TestAShareThatCannotBeCountedDenies(t *testing.T) {
	const most = 1<<16 - 1 // limits in a table
	fallback := table.New(table.Config{})
	for i := range most {
		l, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: int64(i) + 1_000, Window: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		var k arith.Charge
		k.Add(arith.Key{Hash: arith.Hash{Hi: uint64(i) << 32, Lo: 1}, Rule: &limiter.Rule{Limits: []*limiter.Limit{l}},
			Cost: 1})
		if err := fallback.Decide(1, &k, new(limiter.Decision)); err != nil {
			t.Fatal(i, err)
		}
	}
	r := New(Config{Fallback: fallback, View: func() *view.View { return &view.View{Known: 3, Recent: 3} }})
	l, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 60, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for policy, want := range map[limiter.Unreachable]bool{limiter.UnreachableLocal: false,
		limiter.UnreachableOpen: true} {
		var k arith.Charge
		k.Add(arith.Key{Hash: arith.Hash{Hi: 5, Lo: 5},
			Rule: &limiter.Rule{Limits: []*limiter.Limit{l}, OnUnreachable: policy}, Cost: 1})
		turn, d := new(Turn), new(limiter.Decision)
		turn.At = 1
		r.policies.decide(turn, &k, d, nil)
		if d.Allowed != want || d.Source != limiter.SourceFallbackClosed {
			t.Errorf("%v: allowed %v by %v, want %v by fallback_closed", policy, d.Allowed, d.Source, want)
		}
	}
}

// A policy that counts lets a limit on concurrency hold what it admits until the hold is over. A
// rate beside it stays charged: what was used is settled at no policy.
func TestAPolicyHoldsSlots(t *testing.T) {
	slots, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.Concurrency, Limit: 6})
	if err != nil {
		t.Fatal(err)
	}
	hourly, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 9, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	r := New(Config{Fallback: table.New(table.Config{}), View: func() *view.View {
		return &view.View{Known: 3, Recent: 3}
	}})
	turn := new(Turn)
	check := func(id uint64) *limiter.Decision {
		k := &arith.Charge{ID: &arith.Idempotency{ID: id, Life: time.Hour, Hold: time.Minute}}
		rule := &limiter.Rule{Limits: []*limiter.Limit{slots, hourly}, OnUnreachable: limiter.UnreachableLocal}
		k.Add(arith.Key{Hash: arith.Hash{Hi: 5, Lo: 5}, Rule: rule, Cost: 1})
		d := new(limiter.Decision)
		r.policies.decide(turn, k, d, nil)
		if k.ID.Hold != time.Minute || k.ID.Keep {
			t.Fatalf("the caller's charge was changed: %+v", *k.ID)
		}
		return d
	}
	turn.At = limiter.Minute
	for id, want := range []bool{true, true, false} { // a third of 6
		if d := check(uint64(id + 1)); d.Allowed != want || !want && d.Limit(1).Allowed != true {
			t.Errorf("check %d: %+v", id, d)
		}
	}
	if s := r.config.Fallback.Stats(); s.Holds != 2 {
		t.Errorf("%d holds, want one for each check that was allowed", s.Holds)
	}
	turn.At += limiter.Minute
	for id, want := range []bool{true, false} { // a third of 9, of which two are used
		if d := check(uint64(id + 9)); d.Allowed != want || !want && d.Limit(0).Allowed != true {
			t.Errorf("check %d after the holds: %+v", id, d)
		}
	}

	// A rate alone needs no hold: what would end it comes to no policy.
	k := &arith.Charge{ID: &arith.Idempotency{ID: 77, Life: time.Hour, Hold: time.Minute}}
	k.Add(arith.Key{Hash: arith.Hash{Hi: 6, Lo: 6}, Rule: &limiter.Rule{Limits: []*limiter.Limit{hourly}}, Cost: 1})
	before := r.config.Fallback.Stats().Holds
	d := new(limiter.Decision)
	r.policies.decide(turn, k, d, nil)
	if now := r.config.Fallback.Stats().Holds; !d.Allowed || now != before {
		t.Errorf("%d holds after a check of a rate, and %d before: %+v", now, before, d)
	}
}
