package table

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// held1 is a charge of one key that is held.
func held1(rule *limiter.Rule, hi, id uint64, cost uint64, hold time.Duration) *arith.Charge {
	c := charge1(rule, hi, id, cost)
	c.ID.Hold = hold
	return c
}

// windowRule is a rule with one window of an hour.
func windowRule(t testing.TB, limit int64) *limiter.Rule {
	t.Helper()
	l, err := limiter.NewLimit(limiter.Spec{Limit: limit, Window: time.Hour, Algorithm: limiter.FixedWindow})
	if err != nil {
		t.Fatal(err)
	}
	return &limiter.Rule{Name: "w", Limits: []*limiter.Limit{l}}
}

func unitsLeft(t *testing.T, tab *Table, now limiter.Tick, rule *limiter.Rule, hi uint64) uint64 {
	t.Helper()
	c := charge1(rule, hi, 0, 1)
	c.Peek = true
	var d limiter.Decision
	if err := tab.Decide(now, c, &d); err != nil {
		t.Fatal(err)
	}
	return d.Limit(0).Remaining
}

// Holds are bounded for each key: beyond that a check with a hold is denied, or charged for good
// where a full table admits. A key without holds is not concerned.
func TestHoldsOfAKeyAreBounded(t *testing.T) {
	inWire(t)
	for _, overflow := range []Overflow{OverflowDeny, OverflowAllow} {
		tab, rule := New(Config{Overflow: overflow}), windowRule(t, 10*limiter.MaxHoldEntries)
		var d limiter.Decision
		for i := range uint64(limiter.MaxHoldEntries + 3) {
			if err := tab.Decide(idStart, held1(rule, 1, i+1, 1, time.Minute), &d); err != nil {
				t.Fatal(err)
			}
			if over := i >= limiter.MaxHoldEntries; d.Allowed == (over && overflow == OverflowDeny) ||
				!d.Allowed && (!d.Limit(0).Overflow || d.RetryAfter <= 0) {
				t.Fatalf("%s: hold %d: %+v", overflow, i, d)
			}
		}
		s := tab.Stats()
		if s.Holds != limiter.MaxHoldEntries || overflow == OverflowDeny &&
			(s.OverflowedBy[BoundHolds] != 3 || s.IDs != s.Holds) {
			t.Errorf("%s: %+v", overflow, s)
		}
		if err := tab.Decide(idStart, charge1(rule, 1, 0, 1), &d); err != nil || !d.Allowed {
			t.Errorf("%s: a check without a hold: %+v, %v", overflow, d, err)
		}
		want := uint64(10*limiter.MaxHoldEntries - 1)
		if overflow == OverflowAllow {
			want -= 3
		}
		if n := unitsLeft(t, tab, idStart+limiter.Minute, rule, 1); n != want {
			t.Errorf("%s: %d are left after all have ended, want %d", overflow, n, want)
		}
		if s := tab.Stats(); s.Holds != 0 || s.HoldsExpired != limiter.MaxHoldEntries {
			t.Errorf("%s: %+v", overflow, s)
		}
	}
}

// A reservation beyond the bound of a key's holds may wait until one of them ends, however full the table is and
// with as many limits as its own would need.
func TestTheWaitBesideManyHolds(t *testing.T) {
	inWire(t)
	for _, keys := range []int{0, 200_000, 20_000} { // in the last the ids of one key have no more room
		for _, limits := range []int{1, 3} {
			tab, rule := New(Config{MaxKeys: keys}), windowRule(t, 10*limiter.MaxHoldEntries)
			for i := range limits - 1 {
				l, err := limiter.NewLimit(limiter.Spec{Name: fmt.Sprint(i), Limit: 1 << 20, Window: time.Hour,
					Algorithm: limiter.FixedWindow})
				if err != nil {
					t.Fatal(err)
				}
				rule.Limits = append(rule.Limits, l)
			}
			var d limiter.Decision
			now, made := idStart, 0
			for i := range uint64(limiter.MaxHoldEntries + 1) {
				now += limiter.Second
				if err := tab.Decide(now, held1(rule, 1, i+1, 1, 2*time.Hour), &d); err != nil {
					t.Fatal(err)
				}
				if !d.Allowed {
					break
				}
				made++
			}
			need := 1
			if made*limits+limits > limiter.MaxHoldEntries {
				need = (made*limits + limits - limiter.MaxHoldEntries + limits - 1) / limits
			}
			want := idStart + limiter.Tick(need)*limiter.Second + 2*limiter.Hour - now
			if made < 1000 || d.Allowed || limiter.Span(d.RetryAfter) != want || !d.Limit(0).Overflow {
				t.Errorf("%d keys, %d limits: after %d holds it may wait %v, want %v", keys, limits, made, d.RetryAfter,
					want.Duration())
			}
		}
	}
}

// A flood of holds of many keys takes at most half of a table, and its share of the memory.
func TestHoldsTakeHalfOfATable(t *testing.T) {
	const most = 3000
	tab, rule := New(Config{MaxKeys: most}), windowRule(t, 100)
	var d limiter.Decision
	denied := 0
	for i := range uint64(2 * most) {
		if err := tab.Decide(idStart, held1(rule, 5000+i, 1, 1, time.Hour), &d); err != nil {
			t.Fatal(err)
		}
		if !d.Allowed {
			denied++
		}
	}
	if s := tab.Stats(); s.Keys > most || s.Holds+s.IDs > most/2+1 || denied != 2*most-int(s.Holds) {
		t.Errorf("%d denied, %+v", denied, s)
	}
	if err := tab.Decide(idStart, charge1(rule, 1, 0, 1), &d); err != nil || !d.Allowed {
		t.Errorf("another key: %+v, %v", d, err)
	}
	// At the end of all the room is there again.
	if err := tab.Decide(idStart+limiter.Hour, held1(rule, 1, 1, 1, time.Hour), &d); err != nil || !d.Allowed {
		t.Errorf("after all have ended: %+v, %v", d, err)
	}
}

// A settlement that needs room which is not there changes nothing, and says so.
func TestSettleInAFullTable(t *testing.T) {
	tab, rule := New(Config{MaxKeys: 10}), windowRule(t, 100)
	var d limiter.Decision
	for i := range uint64(10) {
		if err := tab.Decide(idStart, charge1(rule, i, 0, 1), &d); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	c := charge1(rule, 77, 1, 5)
	if a, changed := tab.Amend(idStart, c, limiter.Amend{}); a.State != limiter.AmendFull || changed {
		t.Errorf("%+v", a)
	}
	if a, changed := tab.Amend(idStart+limiter.Hour, c, limiter.Amend{}); a.State != limiter.AmendCharged || !changed {
		t.Errorf("after an hour: %+v", a)
	}
	if n := unitsLeft(t, tab, idStart+limiter.Hour, rule, 77); n != 95 {
		t.Errorf("%d are left", n)
	}
}

// Whoever is lent units says by settlements of new ids what it has used beyond them. However much that is, no limit
// counts more than twice its capacity: it admits again as soon as two full ones have passed. The capacity that it lacks
// is charged whole. A reservation whose end nobody knows any more is charged in full.
func TestWhatAHolderSaysIsBounded(t *testing.T) {
	for algorithm, within := range map[limiter.Algorithm]time.Duration{
		limiter.FixedWindow: time.Minute, limiter.SlidingCounter: 2 * time.Minute, limiter.SlidingWindow: 2 * time.Minute,
		limiter.SlidingLog: time.Minute, limiter.TokenBucket: 2 * time.Minute, limiter.GCRA: 2 * time.Minute,
		limiter.LeakyBucket: 2 * time.Minute,
	} {
		l := hundred(t, algorithm, time.Minute)
		rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}}
		tab, now := New(Config{}), idStart
		for i := range uint64(1000) {
			now += limiter.Millisecond
			c := charge1(rule, 1, i+1, 1<<32)
			want := limiter.AmendUnknown
			if i < 2 {
				c.Key(0).Cost, want = 100, limiter.AmendCharged
			}
			a, _ := tab.Amend(now, c, limiter.Amend{Lent: true})
			leaks := algorithm != limiter.FixedWindow && i >= 2
			if a.State != want && !(leaks && a.State == limiter.AmendCharged) {
				t.Fatalf("%v: settlement %d: %+v", algorithm, i, a)
			}
			if i == 0 && unitsLeft(t, tab, now, rule, 1) != 0 {
				t.Errorf("%v: %d are left of what was used whole", algorithm, unitsLeft(t, tab, now, rule, 1))
			}
		}
		var d limiter.Decision
		if err := tab.Decide(now+limiter.Span(within), charge1(rule, 1, 0, 1), &d); err != nil || !d.Allowed {
			t.Errorf("%v: %v after 1000 false reports nothing is allowed for %v, %v", algorithm, within, d.RetryAfter, err)
		}
		if a, _ := tab.Amend(now, charge1(rule, 2, 5000, 1000), limiter.Amend{}); a.Over != 900 {
			t.Errorf("%v: a reservation that has used 1000 of 100: %+v", algorithm, a)
		}
	}
}

// A settlement says which keys it did not charge first.
func TestASettlementSaysWhatIsKnown(t *testing.T) {
	tab, rule := New(Config{}), windowRule(t, 100)
	for i := range uint64(3) {
		c := charge1(rule, 1, i+1, 5)
		c.Add(arith.Key{Hash: arith.Hash{Hi: 10 + i, Lo: 7}, Rule: rule, Cost: 5})
		want := min(int(i), 1)
		if a, _ := tab.Amend(idStart, c, limiter.Amend{}); a.State != limiter.AmendCharged || a.Known != want {
			t.Errorf("settlement %d: %+v", i+1, a)
		}
	}
}

// A settlement of an id that is not known is charged only with room for the id: made again, it would be
// charged again.
func TestSettleWithoutRoomForTheID(t *testing.T) {
	const most = 200
	tab, rule := New(Config{MaxKeys: most}), windowRule(t, 1000)
	var d limiter.Decision
	for i := range uint64(most / 2) { // ids take half of it
		c := charge1(rule, 1, i+1, 1)
		c.Key(0).Hash.Lo = i << 59
		if err := tab.Decide(idStart, c, &d); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	c := charge1(rule, 1, 1<<40, 5)
	c.Key(0).Hash.Lo = 0
	left := func() uint64 {
		peek := charge1(rule, 1, 0, 1)
		peek.Key(0).Hash.Lo, peek.Peek = 0, true
		if err := tab.Decide(idStart, peek, &d); err != nil {
			t.Fatal(err)
		}
		return d.Limit(0).Remaining
	}
	was := left()
	for range 3 {
		if a, changed := tab.Amend(idStart, c, limiter.Amend{}); a.State != limiter.AmendFull || changed || left() != was {
			t.Fatalf("%+v, %t, %d left of %d", a, changed, left(), was)
		}
	}
}

// After a handoff a charge to several windows is still one: its entries have other instants then.
func TestRaisesAreCountedOnce(t *testing.T) {
	tab, rule := New(Config{}), windowRule(t, 1000)
	for _, w := range []time.Duration{time.Minute, 24 * time.Hour} {
		l, err := limiter.NewLimit(limiter.Spec{Name: w.String(), Limit: 1000, Window: w, Algorithm: limiter.FixedWindow})
		if err != nil {
			t.Fatal(err)
		}
		rule.Limits = append(rule.Limits, l)
	}
	var d limiter.Decision
	if err := tab.Decide(idStart, held1(rule, 1, 1, 1, time.Hour), &d); err != nil {
		t.Fatal(err)
	}
	raised := uint64(0)
	for i := range uint64(limiter.MaxHoldParts) {
		tab = moved(t, tab, idStart, Replace)
		if a, _ := tab.Amend(idStart, held1(rule, 1, 1, i+2, time.Hour),
			limiter.Amend{Extend: true}); a.State == limiter.AmendDone {
			raised++
		}
	}
	if raised != limiter.MaxHoldParts-1 {
		t.Errorf("raised %d times, want %d", raised, limiter.MaxHoldParts-1)
	}
}

// The estimate of a hold can be raised a bounded number of times.
func TestHoldsHaveBoundedParts(t *testing.T) {
	tab, rule := New(Config{}), windowRule(t, 1000)
	var d limiter.Decision
	if err := tab.Decide(idStart, held1(rule, 1, 1, 1, time.Minute), &d); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(limiter.MaxHoldParts + 1) {
		a, _ := tab.Amend(idStart+limiter.Tick(i)+1, held1(rule, 1, 1, i+2, time.Minute), limiter.Amend{Extend: true})
		if (a.State == limiter.AmendDone) != (i < limiter.MaxHoldParts-1) ||
			a.State != limiter.AmendDone && a.State != limiter.AmendRaised {
			t.Fatalf("extension %d: %+v", i, a)
		}
	}
}

// A refund with the receipt of a hold takes it back once: not again when it ends, nor after that.
func TestRefundOfAHold(t *testing.T) {
	tab, rule := New(Config{}), windowRule(t, 100)
	var first, late, d limiter.Decision
	c := held1(rule, 1, 1, 10, time.Minute)
	for i, of := range []*limiter.Decision{&first, &late} {
		if err := tab.Decide(idStart, held1(rule, 1, uint64(i+1), 10, time.Minute), of); err != nil {
			t.Fatal(err)
		}
	}
	if err := tab.Decide(idStart, charge1(rule, 1, 0, 50), &d); err != nil {
		t.Fatal(err)
	}
	tab.Refund(idStart+1, c, first.Receipt)
	if n, s := unitsLeft(t, tab, idStart+2, rule, 1), tab.Stats(); n != 40 || s.Holds != 1 {
		t.Errorf("after a refund %d are left, %+v", n, s)
	}
	tab.Refund(idStart+limiter.Minute, held1(rule, 1, 2, 10, time.Minute), late.Receipt)
	tab.Refund(idStart+limiter.Minute, c, first.Receipt)
	if n := unitsLeft(t, tab, idStart+limiter.Minute, rule, 1); n != 50 {
		t.Errorf("after all %d are left", n)
	}
}

// A hold under a limit that was replaced by one that counts otherwise, and is back, gives
// nothing back: its charge was converted.
func TestHoldsOfALimitThatComesBack(t *testing.T) {
	tab, rule := New(Config{}), windowRule(t, 100)
	other := &limiter.Rule{Name: "w"}
	l, err := limiter.NewLimit(limiter.Spec{Name: rule.Limits[0].Name(), Limit: 100, Window: time.Hour,
		Algorithm: limiter.SlidingLog})
	if err != nil {
		t.Fatal(err)
	}
	other.Limits = []*limiter.Limit{l}
	var d limiter.Decision
	if err := tab.Decide(idStart, held1(rule, 1, 1, 10, time.Minute), &d); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*limiter.Rule{other, rule} {
		if err := tab.Decide(idStart+1, charge1(r, 1, 0, 1), &d); err != nil {
			t.Fatal(err)
		}
	}
	if n := unitsLeft(t, tab, idStart+limiter.Minute, rule, 1); n != 88 {
		t.Errorf("%d are left", n)
	}
	if a, _ := tab.Amend(idStart+limiter.Minute, charge1(rule, 1, 1, 4),
		limiter.Amend{}); a.State != limiter.AmendCharged {
		t.Errorf("%+v", a)
	}
}

// What a hold has charged to a counter that was swept since does not come back out of another one, which began under
// another limit and becomes one of the first.
func TestHoldsOfASweptCounter(t *testing.T) {
	bucket := func(limit int64, window time.Duration) *limiter.Rule {
		l, err := limiter.NewLimit(limiter.Spec{Name: "x", Limit: limit, Window: window, Algorithm: limiter.TokenBucket})
		if err != nil {
			t.Fatal(err)
		}
		return &limiter.Rule{Name: "b", Limits: []*limiter.Limit{l}}
	}
	first, second := bucket(10, time.Second), bucket(10, time.Minute)
	tab := New(Config{})
	spend := func(at limiter.Tick, c *arith.Charge) {
		t.Helper()
		var d limiter.Decision
		if err := tab.Decide(at, c, &d); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	c := held1(first, 1, 1, 10, time.Hour)
	spend(idStart, c)
	now := idStart + 2*limiter.Second
	tab.parts[PartitionOf(c.Key(0))].sweepOne(now)
	if _, l := tab.parts[PartitionOf(c.Key(0))].ledgerOf(c.Key(0)).beside(arith.CountsID(first.Limits[0])); l != nil {
		t.Fatal("the counter was not swept")
	}
	now += limiter.Second
	spend(now, charge1(second, 1, 0, 10))
	unitsLeft(t, tab, now, first, 1) // it becomes one of the first
	if a, _ := tab.Amend(now, charge1(first, 1, 1, 0), limiter.Amend{}); a.State != limiter.AmendDone {
		t.Fatalf("%+v", a)
	}
	if n := unitsLeft(t, tab, now, first, 1); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// A sweep, and an export, take off what is over: a counter that has not recovered gets the
// estimate back although nobody asked for its key.
func TestHoldsEndUnasked(t *testing.T) {
	for _, export := range []bool{false, true} {
		tab, rule := New(Config{}), windowRule(t, 100)
		var d limiter.Decision
		c := held1(rule, 1, 1, 10, time.Minute)
		if err := tab.Decide(idStart, c, &d); err != nil {
			t.Fatal(err)
		}
		now := idStart + 2*limiter.Minute
		part := PartitionOf(c.Key(0))
		if export {
			n := 0
			tab.Export(part, now, func(e Entry) {
				if n++; e.Limit.Algorithm() == arith.Holds || e.State.A != 0 {
					t.Errorf("exported %+v", e)
				}
			})
		} else {
			tab.parts[part].sweepOne(now)
		}
		if s := tab.Stats(); s.Holds != 0 || s.HoldsExpired != 1 {
			t.Errorf("export %t: %+v", export, s)
		}
		if n := unitsLeft(t, tab, now, rule, 1); n != 100 {
			t.Errorf("export %t: %d are left", export, n)
		}
		if err := tab.parts[part].check(); err != nil {
			t.Error(err)
		}
	}
}

// An explanation says what is held, and until when.
func TestExplainHolds(t *testing.T) {
	tab, rule := New(Config{}), windowRule(t, 100)
	var d limiter.Decision
	c := held1(rule, 1, 1, 10, time.Minute)
	c.ID.Keep = true
	if err := tab.Decide(idStart, c, &d); err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, f := range tab.Explain(idStart+1, charge1(rule, 1, 0, 1), &d)[0].State {
		text += f.Name + ": " + f.Value + "\n"
	}
	if !strings.Contains(text, "held: 10, in 1 charges\nhold: 10 until "+stamp(idStart+limiter.Minute)+", then kept\n") {
		t.Error(text)
	}
}

// A check without an id allocates nothing, whether its key has holds or not, and one with a hold
// that is settled allocates nothing either.
func TestHoldsAllocateNothing(t *testing.T) {
	tab, rule := New(Config{}), windowRule(t, 1000)
	now, d, c := idStart, limiter.Decision{}, held1(rule, 1, 1, 1, time.Minute)
	plain, one := charge1(rule, 1, 0, 1), func() {
		now += limiter.Second
		c.ID.ID++
		if err := tab.Decide(now, c, &d); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	one()
	if n := testing.AllocsPerRun(100, func() {
		if err := tab.Decide(now, plain, &d); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations of a check without an id", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		one()
		if a, _ := tab.Amend(now, c, limiter.Amend{}); a.State != limiter.AmendDone {
			t.Fatal(a)
		}
	}); n > 0 {
		t.Errorf("%v allocations of a hold and its settlement", n)
	}
}

func BenchmarkHold(b *testing.B) {
	tab, rule := New(Config{}), windowRule(b, 1<<31)
	now, d, c := idStart, limiter.Decision{}, held1(rule, 1, 1, 1, time.Minute)
	b.ReportAllocs()
	for range b.N {
		now += limiter.Millisecond
		c.ID.ID += 0x9e3779b97f4a7c15
		if err := tab.Decide(now, c, &d); err != nil {
			b.Fatal(err)
		}
		tab.Amend(now, c, limiter.Amend{})
	}
}

// A refund forgets the id only for the keys that its receipt names: another was charged by a settlement,
// at the same instant.
func TestARefundLeavesASettledID(t *testing.T) {
	tab, rule := New(Config{}), windowRule(t, 100)
	one, both := charge1(rule, 1, 1, 5), charge1(rule, 1, 1, 5)
	both.Add(arith.Key{Hash: arith.Hash{Hi: 2, Lo: 7}, Rule: rule, Cost: 5})
	if a, _ := tab.Amend(idStart, one, limiter.Amend{}); a.State != limiter.AmendCharged {
		t.Fatalf("%+v", a)
	}
	var d limiter.Decision
	if err := tab.Decide(idStart, both, &d); err != nil || !d.Allowed || d.Repeated {
		t.Fatalf("%+v, %v", d, err)
	}
	tab.Refund(idStart, both, d.Receipt)
	if a, _ := tab.Amend(idStart, one, limiter.Amend{}); a.State != limiter.AmendRepeated {
		t.Errorf("settled again: %+v", a)
	}
	if a, b := unitsLeft(t, tab, idStart, rule, 1), unitsLeft(t, tab, idStart, rule, 2); a != 95 || b != 100 {
		t.Errorf("%d and %d are left, want 95 and 100", a, b)
	}
}

// A check with the id of a hold that is over, of a limit on concurrency, would be told that it is
// admitted, and hold nothing. So it is refused, until the id is forgotten.
func TestSpentIDs(t *testing.T) {
	for how, end := range map[string]func(tab *Table, c *arith.Charge) limiter.Tick{
		"settled": func(tab *Table, c *arith.Charge) limiter.Tick {
			tab.Amend(idStart, c, limiter.Amend{})
			return idStart
		},
		"canceled": func(tab *Table, c *arith.Charge) limiter.Tick {
			k := *c.Key(0)
			k.Cost = 0
			none := arith.Charge{ID: c.ID}
			none.Add(k)
			tab.Amend(idStart, &none, limiter.Amend{})
			return idStart
		},
		"kept": func(_ *Table, c *arith.Charge) limiter.Tick { return idStart + limiter.Span(c.ID.Hold) },
	} {
		l, err := limiter.NewLimit(limiter.Spec{Limit: 3, Algorithm: limiter.Concurrency})
		if err != nil {
			t.Fatal(err)
		}
		tab, rule := New(Config{}), &limiter.Rule{Name: "slots", Limits: []*limiter.Limit{l}}
		c := held1(rule, 1, 1, 2, 30*time.Second)
		c.ID.Keep = true
		var d limiter.Decision
		for again := range 2 {
			if err := tab.Decide(idStart, c, &d); err != nil || !d.Allowed || d.Repeated != (again == 1) {
				t.Fatalf("%s: %+v, %v", how, d, err)
			}
		}
		now := end(tab, c)
		if err := tab.Decide(now, c, &d); !errors.Is(err, limiter.ErrSettled) {
			t.Errorf("%s: %+v, %v", how, d, err)
		}
		if n := unitsLeft(t, tab, now, rule, 1); n != 3 {
			t.Errorf("%s: %d are left", how, n)
		}
		now += limiter.Span(c.ID.Life)
		if err := tab.Decide(now, c, &d); err != nil || !d.Allowed || d.Repeated || unitsLeft(t, tab, now, rule, 1) != 1 {
			t.Errorf("%s, and forgotten: %+v, %v", how, d, err)
		}
	}
}

// TestAKeyWithoutACostKeepsItsHold: a check whose id is new for the keys that it costs something ends no hold that
// the same id has for another of its keys.
func TestAKeyWithoutACostKeepsItsHold(t *testing.T) {
	l := hundred(t, limiter.FixedWindow, 24*time.Hour)
	table, c := heldTable(t, l, noon, 1)
	peeks := heldCharge(l, 1, 0)
	peeks.Add(arith.Key{Hash: arith.Hash{Hi: 8, Lo: 9}, Rule: c.Key(0).Rule, Cost: 5, Index: 1})
	var d limiter.Decision
	if err := table.Decide(noon, peeks, &d); err != nil || !d.Allowed || d.Repeated || d.Limit(0).Remaining != 90 {
		t.Fatalf("%v, %+v", err, d)
	}
	if out, _ := table.Amend(noon, heldCharge(l, 1, 4), limiter.Amend{}); out.State != limiter.AmendDone ||
		out.Estimate != 10 || used(t, table, l, noon) != 4 {
		t.Errorf("settled with 4: %+v, %d are counted", out, used(t, table, l, noon))
	}
}
