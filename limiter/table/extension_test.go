package table

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// An extension that is taken back leaves the estimate, the end and the number of raises as they were,
// also if an earlier one of the same instant was as large. Those that came later stand.
func TestTakeBack(t *testing.T) {
	tab, rule := New(Config{}), windowRule(t, 100)
	var d limiter.Decision
	if err := tab.Decide(idStart, held1(rule, 1, 1, 10, time.Minute), &d); err != nil {
		t.Fatal(err)
	}
	now := idStart + limiter.Second
	extend := func(cost uint64, hold time.Duration) Extension {
		t.Helper()
		out, x, changed := tab.Extend(now, held1(rule, 1, 1, cost, hold), limiter.Amend{Extend: true})
		if out.State != limiter.AmendDone || !changed || out.Estimate != cost {
			t.Fatalf("%+v, %t", out, changed)
		}
		return x
	}
	first := extend(15, 2*time.Minute)
	second := extend(20, 3*time.Minute)
	if second.Was != 15 || second.WasEnd != first.End || first.WasEnd != idStart+limiter.Minute {
		t.Fatalf("%+v, %+v", first, second)
	}
	back := func(x Extension, want bool, left uint64, when string) {
		t.Helper()
		if got := tab.TakeBack(now, held1(rule, 1, 1, x.Was, 0), x); got != want {
			t.Fatalf("%s: taken back is %t", when, got)
		}
		if n := unitsLeft(t, tab, now, rule, 1); n != left {
			t.Fatalf("%s: %d are left, want %d", when, n, left)
		}
	}
	back(second, true, 85, "the last")
	back(second, false, 85, "twice")
	back(first, true, 90, "the one before that")
	back(first, false, 90, "that one twice")
	first, second = extend(15, 2*time.Minute), extend(20, 3*time.Minute)
	back(first, true, 80, "one before the last")
	back(second, true, 90, "the last, too")
	for range 2 * limiter.MaxHoldParts {
		back(extend(25, time.Hour), true, 90, "as often as one likes")
	}
	if n := unitsLeft(t, tab, idStart+limiter.Minute-1, rule, 1); n != 90 {
		t.Errorf("before the end %d are left", n)
	}
	if n, s := unitsLeft(t, tab, idStart+limiter.Minute, rule, 1), tab.Stats(); n != 100 || s.Holds != 0 {
		t.Errorf("at the end %d are left, %d holds", n, s.Holds)
	}
}

// What is taken back when the hold would have ended already has ended. An end that cannot be is not
// taken over.
func TestTakeBackLate(t *testing.T) {
	for name, test := range map[string]struct {
		wasEnd limiter.Tick
		passes limiter.Tick
		left   uint64
	}{
		"after the former end": {idStart + limiter.Minute, 2 * limiter.Minute, 100},
		"long before":          {-1 << 62, limiter.Second, 100},
		"for ever":             {1 << 62, limiter.Span(limiter.MaxHold) + limiter.Hour, 100},
		"not yet":              {idStart + limiter.Minute, limiter.Minute - 1, 90},
	} {
		tab, rule := New(Config{}), windowRule(t, 100)
		l, err := limiter.NewLimit(limiter.Spec{Limit: 100, Window: 100 * 24 * time.Hour, Algorithm: limiter.FixedWindow})
		if err != nil {
			t.Fatal(err)
		}
		rule.Limits[0] = l
		var d limiter.Decision
		if err := tab.Decide(idStart, held1(rule, 1, 1, 10, time.Minute), &d); err != nil {
			t.Fatal(err)
		}
		_, x, _ := tab.Extend(idStart, held1(rule, 1, 1, 20, time.Hour), limiter.Amend{Extend: true})
		now := idStart + min(test.passes, limiter.Minute)
		x.WasEnd = test.wasEnd
		if !tab.TakeBack(now, held1(rule, 1, 1, 10, 0), x) {
			t.Fatal(name)
		}
		if n := unitsLeft(t, tab, idStart+test.passes, rule, 1); n != test.left {
			t.Errorf("%s: %d are left, want %d", name, n, test.left)
		}
	}
}

// An extension is not taken back once the hold has got another end elsewhere, such as at another owner from
// which the key came back: by that it lasts, and so do its units.
func TestTakeBackOfAHoldThatEndsOtherwise(t *testing.T) {
	tab, rule := New(Config{}), windowRule(t, 100)
	var d limiter.Decision
	if err := tab.Decide(idStart, held1(rule, 1, 1, 10, time.Minute), &d); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	out, x, _ := tab.Extend(idStart, held1(rule, 1, 1, 15, 2*time.Minute), limiter.Amend{Extend: true})
	if out.State != limiter.AmendDone {
		t.Fatal(out)
	}
	if out, _ = tab.Amend(idStart, held1(rule, 1, 1, 20, time.Hour),
		limiter.Amend{Extend: true}); out.State != limiter.AmendDone {
		t.Fatal(out)
	}
	if tab.TakeBack(idStart+limiter.Second, held1(rule, 1, 1, x.Was, 0), x) {
		t.Error("it is taken back")
	}
	for at, want := range map[limiter.Tick]uint64{limiter.Second: 80, 2 * limiter.Minute: 80, limiter.Hour - 1: 80} {
		if n := unitsLeft(t, tab, idStart+at, rule, 1); n != want {
			t.Errorf("after %v %d are left, want %d", at.Duration(), n, want)
		}
	}
}

// A member may know of a larger estimate than what it has charged to a hold. If as much is taken back, the hold stays,
// with nothing that is counted, in a state that others accept. Who settles it is charged all.
func TestTakeBackOfMoreThanWasCharged(t *testing.T) {
	tab, rule := New(Config{}), windowRule(t, 100)
	c := held1(rule, 1, 1, 2, time.Minute)
	var d limiter.Decision
	if err := tab.Decide(idStart, c, &d); err != nil {
		t.Fatal(err)
	}
	part := PartitionOf(c.Key(0))
	tab.parts[part].ledgerOf(c.Key(0)).hold(1).dropRaises(idStart, 5)
	into := New(Config{})
	moveTo(t, tab, part, idStart, into, idStart, Replace)
	for name, tab := range map[string]*Table{"here": tab, "moved": into} {
		if n, s := unitsLeft(t, tab, idStart, rule, 1), tab.Stats(); n != 100 || s.Holds != 1 {
			t.Errorf("%s: %d are left, %d holds", name, n, s.Holds)
		}
		if out, _ := tab.Amend(idStart, held1(rule, 1, 1, 3, 0), limiter.Amend{}); out.State != limiter.AmendDone {
			t.Errorf("%s: %+v", name, out)
		}
		if n := unitsLeft(t, tab, idStart, rule, 1); n != 97 {
			t.Errorf("%s: %d are left after 3 were settled", name, n)
		}
	}
}

// After a reset only what is charged since comes back with an extension: the rest of the reservation was forgotten, and
// to settle it charges what was used beyond the estimate.
func TestTakeBackAfterAReset(t *testing.T) {
	tab, rule := New(Config{}), windowRule(t, 100)
	c := held1(rule, 1, 1, 2, time.Minute)
	var d limiter.Decision
	if err := tab.Decide(idStart, c, &d); err != nil {
		t.Fatal(err)
	}
	tab.Reset(idStart, c)
	for range 2 * limiter.MaxHoldParts {
		out, x, _ := tab.Extend(idStart, held1(rule, 1, 1, 6, time.Minute), limiter.Amend{Extend: true})
		if out.State != limiter.AmendDone || !tab.TakeBack(idStart, held1(rule, 1, 1, 2, 0), x) {
			t.Fatalf("%+v is not taken back", out)
		}
		if n := unitsLeft(t, tab, idStart, rule, 1); n != 100 {
			t.Fatalf("%d are left after an extension was taken back", n)
		}
	}
	if out, _ := tab.Amend(idStart, held1(rule, 1, 1, 5, 0), limiter.Amend{}); out.State != limiter.AmendDone {
		t.Errorf("%+v", out)
	}
	if n := unitsLeft(t, tab, idStart, rule, 1); n != 97 {
		t.Errorf("%d are left after 5 were settled, of which 2 were reserved before the reset", n)
	}
}

// A rule in shadow that would have denied a reservation counts nothing of it, also if it had room for an extension that
// is taken back.
func TestTakeBackInShadow(t *testing.T) {
	tab, rule := New(Config{}), windowRule(t, 5)
	rule.Shadow = true
	var d limiter.Decision
	for id, cost := range []uint64{4, 3} {
		if err := tab.Decide(idStart, held1(rule, 1, uint64(id+1), cost, time.Minute), &d); err != nil {
			t.Fatal(err)
		}
	}
	tab.Amend(idStart, held1(rule, 1, 1, 1, 0), limiter.Amend{})
	out, x, _ := tab.Extend(idStart, held1(rule, 1, 2, 6, time.Minute), limiter.Amend{Extend: true})
	if out.State != limiter.AmendDone || !tab.TakeBack(idStart, held1(rule, 1, 2, 3, 0), x) {
		t.Fatalf("%+v is not taken back", out)
	}
	if out, _ := tab.Amend(idStart, held1(rule, 1, 2, 3, 0), limiter.Amend{}); out.State != limiter.AmendDone {
		t.Errorf("%+v", out)
	}
	if n := unitsLeft(t, tab, idStart, rule, 1); n != 4 {
		t.Errorf("%d are left of 5 beside 1 that was used", n)
	}
}
