package table

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// buckets are rules with one bucket each: limit in a window, of each algorithm.
func buckets(t testing.TB, limit int64, window time.Duration) (rules []*limiter.Rule) {
	t.Helper()
	for _, s := range []limiter.Spec{
		{Algorithm: limiter.TokenBucket}, {Algorithm: limiter.LeakyBucket}, {Algorithm: limiter.GCRA},
		{Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval},
	} {
		s.Limit, s.Window = limit, window
		l, err := limiter.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, &limiter.Rule{Name: l.String(), Limits: []*limiter.Limit{l}})
	}
	return rules
}

// mustDecide decides a charge that is admitted.
func mustDecide(t testing.TB, tab *Table, now limiter.Tick, c *arith.Charge) {
	t.Helper()
	var d limiter.Decision
	if err := tab.Decide(now, c, &d); err != nil || !d.Allowed {
		t.Fatalf("denied: %+v, %v", d, err)
	}
}

// A caller that uses 300 of 667 units a second, and reserves 1000 each time for five seconds, is never denied.
func TestReservationsCostABucketNothing(t *testing.T) {
	for _, rule := range buckets(t, 40_000, time.Minute) {
		tab, denied := New(Config{}), 0
		for i := range limiter.Tick(900) {
			now := idStart + i*limiter.Second
			if i >= 5 {
				if a, _ := tab.Amend(now, charge1(rule, 1, uint64(i-4), 300),
					limiter.Amend{IgnoreUnknown: true}); a.State > limiter.AmendUnknown {
					t.Fatalf("%s: %+v", rule.Name, a)
				}
			}
			var d limiter.Decision
			if err := tab.Decide(now, held1(rule, 1, uint64(i+1), 1000, time.Minute), &d); err != nil {
				t.Fatal(err)
			}
			if !d.Allowed {
				denied++
			}
		}
		if denied > 0 {
			t.Errorf("%s: %d of 900 checks are denied", rule.Name, denied)
		}
	}
}

// What leaked away does not come back, wherever the counter was meanwhile: swept, since it was empty; in another
// table, also in one that merges it; or untouched. What did not leak does.
func TestLowestLevelsMove(t *testing.T) {
	for _, rule := range buckets(t, 20, 20*time.Second) {
		for name, place := range map[string]func(tab *Table, now limiter.Tick) *Table{
			"untouched": func(tab *Table, _ limiter.Tick) *Table { return tab },
			"swept": func(tab *Table, now limiter.Tick) *Table {
				for i := range tab.parts {
					tab.parts[i].sweepOne(now)
				}
				return tab
			},
			"moved":  func(tab *Table, now limiter.Tick) *Table { return copied2(t, tab, New(Config{}), now, Replace) },
			"merged": func(tab *Table, now limiter.Tick) *Table { return copied2(t, tab, tab, now, Merge) },
		} {
			for _, test := range []struct {
				until limiter.Tick // the next charge
				back  uint64       // of 10
			}{{0, 10}, {3 * limiter.Second, 7}, {10 * limiter.Second, 0}, {time30, 0}} {
				tab := New(Config{})
				mustDecide(t, tab, idStart, held1(rule, 1, 1, 10, time.Hour))
				now := idStart + test.until
				tab = place(tab, now)
				mustDecide(t, tab, now, charge1(rule, 1, 0, 10))
				tab = place(tab, now+1)
				before := unitsLeft(t, tab, now+1, rule, 1)
				if a, _ := tab.Amend(now+1, charge1(rule, 1, 1, 0), limiter.Amend{}); a.State != limiter.AmendDone {
					t.Fatalf("%s, %s: %+v", rule.Name, name, a)
				}
				if got := unitsLeft(t, tab, now+1, rule, 1) - before; got != test.back {
					t.Errorf("%s, %s, charged again after %v: %d came back, want %d", rule.Name, name, test.until.Duration(), got,
						test.back)
				}
				tab.checkAll(t)
			}
		}
	}
}

const time30 = 30 * limiter.Second

// copied2 imports all counters of a table into another, or itself.
func copied2(t *testing.T, from, to *Table, now limiter.Tick, mode ImportMode) *Table {
	t.Helper()
	for part := range 2 * Partitions {
		var all []Entry
		from.Export(part, now, func(e Entry) { e.Words = slices.Clone(e.Words); all = append(all, e) })
		if len(all) > 0 {
			if err := to.Import(part, now, all, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	return to
}

// Of two tables that were one, the merger's level was as low as its own was: it gives no more back.
func TestAMergedLevelRises(t *testing.T) {
	for _, rule := range buckets(t, 20, 20*time.Second) {
		here := New(Config{})
		mustDecide(t, here, idStart, held1(rule, 1, 1, 10, time.Hour))
		there := copied2(t, here, New(Config{}), idStart, Replace)
		mustDecide(t, there, idStart+limiter.Second, charge1(rule, 1, 0, 11))
		now := idStart + 8*limiter.Second // two units are left here, and 13 there
		copied2(t, there, here, now, Merge)
		before := unitsLeft(t, here, now, rule, 1)
		if a, _ := here.Amend(now, charge1(rule, 1, 1, 0), limiter.Amend{}); a.State != limiter.AmendDone {
			t.Fatalf("%s: %+v", rule.Name, a)
		}
		if got := unitsLeft(t, here, now, rule, 1) - before; got != 2 {
			t.Errorf("%s: %d came back, want 2", rule.Name, got)
		}
	}
}

// A refund of a check that is held gives back what its hold knows, once.
func TestRefundOfAHeldCheck(t *testing.T) {
	for _, rule := range buckets(t, 20, 20*time.Second) {
		tab := New(Config{})
		c := held1(rule, 1, 1, 10, time.Hour)
		var d limiter.Decision
		if err := tab.Decide(idStart, c, &d); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		mustDecide(t, tab, idStart+4*limiter.Second, charge1(rule, 1, 0, 10))
		now := idStart + 5*limiter.Second
		for range 2 {
			tab.Refund(now, c, d.Receipt)
			if got := unitsLeft(t, tab, now, rule, 1); got != 11 {
				t.Errorf("%s: %d are left, want 11", rule.Name, got)
			}
		}
		if s := tab.Stats(); s.Holds != 0 {
			t.Errorf("%s: %d holds are left", rule.Name, s.Holds)
		}
	}
}

// TestUnitsBeyondTheBoundStayKnownOnceAHoldEnds: what comes back of a hold does not depend on a later one that ends in
// between, in a bucket that was charged beyond the bound of its level. Without the hold, the settlement of half the
// limit would have leaked in half an hour.
func TestUnitsBeyondTheBoundStayKnownOnceAHoldEnds(t *testing.T) {
	l, err := limiter.NewLimit(limiter.Spec{Name: "l", Limit: limiter.MaxUnits, Window: time.Hour,
		Algorithm: limiter.GCRA})
	if err != nil {
		t.Fatal(err)
	}
	table := New(Config{MaxKeys: 1000})
	hold := func(at limiter.Tick, id, cost uint64, lasts time.Duration) {
		t.Helper()
		c, d := heldCharge(l, id, cost), limiter.Decision{}
		c.ID.Hold = lasts
		if err := table.Decide(at, c, &d); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	hold(noon, 1, limiter.MaxUnits, 2*time.Hour)
	if out, _ := table.Amend(noon, heldCharge(l, 2, limiter.MaxUnits/2), limiter.Amend{}); out.Over != limiter.MaxUnits/2 {
		t.Fatal(out)
	}
	hold(noon+15*limiter.Minute, 3, 1, 15*time.Minute)
	used(t, table, l, noon+40*limiter.Minute)
	table.Amend(noon+45*limiter.Minute, heldCharge(l, 1, 0), limiter.Amend{})
	var d limiter.Decision
	c := heldCharge(l, 4, 1)
	c.ID, c.Peek = nil, true
	if table.Decide(noon+45*limiter.Minute, c, &d); d.Limit(0).Remaining != limiter.MaxUnits {
		t.Errorf("%d units are left, want all of %d", d.Limit(0).Remaining, uint64(limiter.MaxUnits))
	}
}
