package table

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

func bothCharge(id, cost uint64, ls ...*limiter.Limit) *arith.Charge {
	c := &arith.Charge{ID: &arith.Idempotency{ID: id, Life: time.Minute, Hold: time.Hour}}
	c.Add(arith.Key{Hash: arith.Hash{Hi: 7, Lo: 9}, Rule: &limiter.Rule{Name: "r", Limits: ls}, Cost: cost})
	return c
}

// Like TestAHoldOfAnotherTableIsChargedInFull, with a limit on concurrency beside the rate.
func TestAHoldOfAnotherTableIsChargedInFullBesideConcurrency(t *testing.T) {
	for _, actual := range []uint64{12, 10, 4} {
		for _, firstConcurrency := range []bool{false, true} {
			rate := hundred(t, limiter.FixedWindow, 24*time.Hour)
			slots, err := limiter.NewLimit(limiter.Spec{Name: "c", Limit: 100, Algorithm: limiter.Concurrency})
			if err != nil {
				t.Fatal(err)
			}
			ls, at := []*limiter.Limit{rate, slots}, 0
			if firstConcurrency {
				ls, at = []*limiter.Limit{slots, rate}, 1
			}
			count := func(table *Table, now limiter.Tick) int {
				c := bothCharge(1, 1, ls...)
				c.ID, c.Peek = nil, true
				var d limiter.Decision
				if err := table.Decide(now, c, &d); err != nil {
					t.Fatal(err)
				}
				return 100 - int(d.Limit(at).Remaining)
			}
			here := New(Config{MaxKeys: 1000})
			var d limiter.Decision
			c := bothCharge(1, 10, ls...)
			if err := here.Decide(noon, c, &d); err != nil || !d.Allowed {
				t.Fatal(err, d)
			}
			other := New(Config{MaxKeys: 1000})
			part := PartitionOf(c.Key(0))
			moveTo(t, here, part, noon, other, noon, Replace)
			if out, _ := other.Amend(noon+30*limiter.Minute, bothCharge(1, 10, ls...),
				limiter.Amend{Extend: true}); out.State != limiter.AmendDone {
				t.Fatal(out)
			}
			now := noon + limiter.Hour
			others := bothCharge(2, 40, ls...)
			if err := here.Decide(now, others, &d); err != nil || !d.Allowed {
				t.Fatal(err, d)
			}
			moveTo(t, other, part, now, here, now, Merge)
			if n := count(here, now); n != 40 {
				t.Fatalf("%d counted after the merge", n)
			}
			out, _ := here.Amend(now, bothCharge(1, actual, ls...), limiter.Amend{})
			if n := count(here, now); out.State != limiter.AmendDone || n != 40+int(actual) {
				t.Errorf("settled with %d: %+v, %d counted, want %d", actual, out, n, 40+actual)
			}
		}
	}
}

// A reservation of two keys, one of a rule in shadow that would have denied it. A former owner pushes another key of
// that partition. The reservation can still be settled.
func TestAMergeLeavesTheHoldOfAShadowRule(t *testing.T) {
	l := hundred(t, limiter.FixedWindow, 24*time.Hour)
	shadow := &limiter.Rule{Name: "s", Limits: []*limiter.Limit{l}, Shadow: true}
	for _, merged := range []bool{false, true} {
		owner, other := New(Config{MaxKeys: 1000}), New(Config{MaxKeys: 1000})
		of := func(cost uint64) *arith.Charge {
			c := heldCharge(l, 1, cost)
			c.Key(0).Rule = shadow
			c.Add(arith.Key{Hash: arith.Hash{Hi: 8, Lo: 10}, Rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}},
				Cost: cost})
			return c
		}
		var d limiter.Decision
		fill := heldCharge(l, 3, 95)
		fill.ID = nil
		if err := owner.Decide(noon, fill, &d); err != nil || !d.Allowed {
			t.Fatal(err, d)
		}
		if err := owner.Decide(noon, of(10), &d); err != nil || !d.Allowed {
			t.Fatal(err, d)
		}
		if merged {
			if err := other.Decide(noon, heldCharge(l, 4, 1), &d); err != nil || !d.Allowed {
				t.Fatal(err, d)
			}
			moveTo(t, other, PartitionOf(fill.Key(0)), noon, owner, noon, Merge)
		}
		if out, _ := owner.Amend(noon, of(12), limiter.Amend{}); out.State != limiter.AmendDone {
			t.Errorf("merged %v: %+v, want done", merged, out)
		}
	}
}

// A check without a hold, of a rule in shadow, holds nothing of a limit on concurrency, also beside other keys' holds.
func TestNothingIsHeldWithoutAHold(t *testing.T) {
	slots, err := limiter.NewLimit(limiter.Spec{Limit: 3, Algorithm: limiter.Concurrency})
	if err != nil {
		t.Fatal(err)
	}
	rule := &limiter.Rule{Name: "c", Limits: []*limiter.Limit{slots}, Shadow: true}
	tab := New(Config{MaxKeys: 1000})
	for hi := range uint64(2) {
		var d limiter.Decision
		c := charge1(rule, 1, 0, 1)
		if err := tab.Decide(noon, c, &d); err != nil || d.Limit(0).ResetAfter != 0 {
			t.Errorf("%+v, %v", d.Limit(0), err)
		}
		c = held1(rule, 2+hi, 1, 1, time.Minute)
		if err := tab.Decide(noon, c, &d); err != nil || d.Limit(0).ResetAfter != time.Minute {
			t.Errorf("%+v, %v", d.Limit(0), err)
		}
	}
}
