package table

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Two concurrent checks may have instants in the reverse order. The charges of each are
// still found by its receipt, even if another key of the check was charged later.
func TestReceiptsOfInstantsThatCross(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.SlidingLog, limiter.SlidingCounter, limiter.SlidingWindow,
		limiter.FixedWindow} {
		rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t,
			limiter.Spec{Algorithm: a, Limit: 5, Window: time.Hour})}}
		one, two := arith.Key{Hash: hash(1), Rule: rule}, arith.Key{Hash: hash(2), Rule: rule}
		if PartitionOf(&one) == PartitionOf(&two) {
			t.Fatal("premise: two partitions")
		}
		table := New(Config{})
		at := func(now limiter.Tick, cost uint64, ks ...arith.Key) *limiter.Decision {
			var d limiter.Decision
			if err := table.Decide(now, charge(cost, ks...), &d); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			return &d
		}
		const start = limiter.Tick(1e15)/limiter.Hour*limiter.Hour + limiter.Minute
		at(start+3, 1, two)
		both := at(start, 2, one, two)
		at(start+7, 1, one)
		table.Refund(start+8, charge(2, one, two), both.Receipt)
		for i, k := range []arith.Key{one, two} {
			if left := at(start+8, 0, k).Limit(0).Remaining; left != 4 {
				t.Errorf("%v: %d left to key %d after the refund, want 4", a, left, i)
			}
		}
	}
}

// A counter that was charged later than now is as good as any for other nodes: they
// take it, and it keeps what it has counted.
func TestExportsWhereTheClockWentBack(t *testing.T) {
	for i, s := range []limiter.Spec{
		{Algorithm: limiter.FixedWindow}, {Algorithm: limiter.FixedWindow, Align: limiter.AlignFirstHit},
		{Algorithm: limiter.SlidingLog},
		{Algorithm: limiter.SlidingWindow}, {Algorithm: limiter.SlidingCounter}, {Algorithm: limiter.TokenBucket},
		{Algorithm: limiter.GCRA},
		{Algorithm: limiter.LeakyBucket}, {Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval},
	} {
		for _, back := range []limiter.Tick{1, limiter.Second, limiter.Minute, 10 * limiter.Minute, 90 * limiter.Day} {
			s.Limit, s.Window, s.Block = 5, time.Minute, time.Hour
			rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, s)}}
			k := arith.Key{Hash: hash(1), Rule: rule}
			const now = limiter.Tick(1e15)/limiter.Hour*limiter.Hour + 5*limiter.Second
			here, there := New(Config{}), New(Config{})
			var d limiter.Decision
			for range 2 {
				if err := here.Decide(now+back, charge(1, k), &d); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
			}
			var all []Entry
			keep := func(e Entry) { e.Words = slices.Clone(e.Words); all = append(all, e) }
			here.Export(PartitionOf(&k), now, keep)
			here.ExportKey(PartitionOf(&k), k.Hash.Hi, now, keep)
			if len(all) != 2 {
				t.Fatalf("limit %d, %v back: %d entries are exported", i, back.Duration(), len(all))
			}
			if err := there.Import(PartitionOf(&k), now, all[:1], Replace); err != nil {
				t.Fatalf("limit %d, %v back: %v", i, back.Duration(), err)
			}
			if err := there.ReplaceKey(PartitionOf(&k), k.Hash.Hi, now, all[1:]); err != nil {
				t.Fatalf("limit %d, %v back: %v", i, back.Duration(), err)
			}
			for name, of := range map[string]*Table{"exporting": here, "importing": there} {
				if err := of.Decide(now, charge(0, k), &d); err != nil || d.Limit(0).Remaining != 3 {
					t.Errorf("limit %d, %v back: %d left to the %s table, want 3", i, back.Duration(), d.Limit(0).Remaining, name)
				}
			}
		}
	}
}

// A clock that goes back by years leads no arithmetic out of bounds.
func TestTheClockGoesBackByYears(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.GCRA, limiter.LeakyBucket, limiter.FixedWindow,
		limiter.SlidingCounter, limiter.SlidingLog, limiter.SlidingWindow} {
		for _, n := range []int64{1, 1_000_000, limiter.MaxUnits} {
			if a == limiter.SlidingLog {
				n = min(n, limiter.MaxLogLimit)
			}
			for _, count := range []limiter.CountRejected{limiter.CountNone, limiter.CountAll} {
				k := arith.Key{Hash: hash(1), Rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{
					limit(t, limiter.Spec{Algorithm: a, Limit: n, Window: 10 * time.Millisecond, CountRejected: count}),
				}}}
				table := New(Config{})
				now := 50 * 365 * limiter.Day
				for _, at := range []limiter.Tick{now, 0, now / 2, 1, now} {
					var d limiter.Decision
					for range 2 {
						if err := table.Decide(at, charge(1, k), &d); err != nil {
							t.Fatal(err)
						}
						if l := d.Limit(0); int64(l.Remaining) > n || !d.Allowed && l.RetryAfter <= 0 {
							t.Errorf("%v of %d at %d: %+v", a, n, at, l)
						}
					}
				}
			}
		}
	}
}

// TestAMergedIDIsOfTheChargeHere: both sides of a split have charged one check, and the other remembers it
// longer. The receipt of the charge here still takes it back, and the id is known for as long as there.
func TestAMergedIDIsOfTheChargeHere(t *testing.T) {
	rule := windowRule(t, 100)
	for name, theirs := range map[string]struct {
		cost   uint64
		later  limiter.Tick
		counts uint64 // after the refund
	}{
		"the same cost":    {cost: 10, later: limiter.Second},
		"another cost":     {cost: 15, later: limiter.Second, counts: 5},
		"the same instant": {cost: 10},
		"charged earlier":  {cost: 10, later: -limiter.Second},
	} {
		here, there := New(Config{}), New(Config{})
		c, o := charge1(rule, 1, 1, 10), charge1(rule, 1, 1, theirs.cost)
		c.ID.Life, o.ID.Life = time.Minute, time.Hour
		var d limiter.Decision
		if err := there.Decide(noon+theirs.later, o, &d); err != nil || !d.Allowed {
			t.Fatal(err, d)
		}
		if err := here.Decide(noon, c, &d); err != nil || !d.Allowed {
			t.Fatal(err, d)
		}
		now, part := noon+2*limiter.Second, PartitionOf(c.Key(0))
		moveTo(t, there, part, now, here, now, Merge)
		if !here.Remembers(now+30*limiter.Minute, c) {
			t.Errorf("%s: the id is forgotten sooner than there", name)
		}
		here.Refund(now, c, d.Receipt)
		if n := 100 - unitsLeft(t, here, now, rule, 1); n != theirs.counts {
			t.Errorf("%s: %d are counted after the refund, want %d", name, n, theirs.counts)
		}
		if here.Remembers(now, c) {
			t.Errorf("%s: the id is known after the refund", name)
		}
	}
}
