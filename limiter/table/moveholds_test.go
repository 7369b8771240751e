package table

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// moveTo moves the counters of a partition to another table.
func moveTo(t *testing.T, from *Table, part int, now limiter.Tick, into *Table, at limiter.Tick, mode ImportMode) {
	t.Helper()
	var all []Entry
	from.Export(part, now, func(e Entry) {
		e.Words = append([]uint64(nil), e.Words...)
		all = append(all, e)
	})
	if err := into.Import(part, at, all, mode); err != nil {
		t.Fatal(err)
	}
}

// heldTable returns a table in which a hold of 10 units was charged at now.
func heldTable(t *testing.T, l *limiter.Limit, now limiter.Tick, id uint64) (*Table, *arith.Charge) {
	t.Helper()
	table := New(Config{MaxKeys: 1000})
	c := heldCharge(l, id, 10)
	var d limiter.Decision
	if err := table.Decide(now, c, &d); err != nil || !d.Allowed {
		t.Fatalf("%v, %+v", err, d)
	}
	return table, c
}

func heldCharge(l *limiter.Limit, id uint64, cost uint64) *arith.Charge {
	c := &arith.Charge{ID: &arith.Idempotency{ID: id, Life: time.Minute, Hold: time.Hour}}
	c.Add(arith.Key{Hash: arith.Hash{Hi: 7, Lo: 9}, Rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}},
		Cost: cost})
	return c
}

func used(t *testing.T, table *Table, l *limiter.Limit, now limiter.Tick) int {
	t.Helper()
	c := &arith.Charge{Peek: true}
	c.Add(*heldCharge(l, 1, 1).Key(0))
	var d limiter.Decision
	if err := table.Decide(now, c, &d); err != nil {
		t.Fatal(err)
	}
	return int(l.Limit()) - int(d.Limit(0).Remaining)
}

func hundred(t *testing.T, algorithm limiter.Algorithm, window time.Duration) *limiter.Limit {
	t.Helper()
	l, err := limiter.NewLimit(limiter.Spec{Name: "l", Limit: 100, Window: window, Algorithm: algorithm})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const noon = 1_800_000_000 * limiter.Second

// A hold that only the other table knew gives nothing back: the larger of two counters need not
// have its units.
func TestMergedHoldsGiveNothingBack(t *testing.T) {
	l := hundred(t, limiter.FixedWindow, 24*time.Hour)
	one, c := heldTable(t, l, noon, 1)
	other, _ := heldTable(t, l, noon, 2)
	part := PartitionOf(c.Key(0))
	moveTo(t, other, part, noon, one, noon, Merge)
	if n := used(t, one, l, noon); n != 10 {
		t.Fatalf("%d are counted once merged, want the larger of 10 and 10", n)
	}
	if out, _ := one.Amend(noon, heldCharge(l, 2, 0), limiter.Amend{}); out.State != limiter.AmendDone {
		t.Errorf("the other's hold is cancelled: %v", out.State)
	}
	if n := used(t, one, l, noon); n != 10 {
		t.Errorf("%d are counted, and 10 are held", n)
	}
	if out, _ := one.Amend(noon, heldCharge(l, 1, 4), limiter.Amend{}); out.State != limiter.AmendDone ||
		used(t, one, l, noon) != 4 {
		t.Errorf("settled: %v, %d are counted, want 4", out.State, used(t, one, l, noon))
	}
}

// TestMergedAgainHoldsGiveNothingBack: what a former owner pushes may come twice. The second time its
// holds are known, from the first, and end later.
func TestMergedAgainHoldsGiveNothingBack(t *testing.T) {
	l := hundred(t, limiter.FixedWindow, 24*time.Hour)
	one, c := heldTable(t, l, noon, 1)
	other, _ := heldTable(t, l, noon, 2)
	part := PartitionOf(c.Key(0))
	for i := range limiter.Tick(3) {
		moveTo(t, other, part, noon, one, noon+i*limiter.Second, Merge)
	}
	if out, _ := one.Amend(noon+limiter.Minute, heldCharge(l, 1, 4), limiter.Amend{}); out.State != limiter.AmendDone ||
		used(t, one, l, noon+limiter.Minute) != 4 {
		t.Errorf("settled: %v, %d are counted, want 4", out.State, used(t, one, l, noon+limiter.Minute))
	}
	if n := used(t, one, l, noon+2*limiter.Hour); n != 4 {
		t.Errorf("%d are counted after the end of the other's, want 4", n)
	}
}

// TestMergedHoldsAreWhatTheyAreHere: both tables know a hold, and one has raised its estimate. The larger of
// two counters need not have the raise of the other table. So the hold gives back what it was charged
// here, a raise is charged again, and a settlement charges what was used.
func TestMergedHoldsAreWhatTheyAreHere(t *testing.T) {
	l := hundred(t, limiter.FixedWindow, 24*time.Hour)
	at := noon + limiter.Minute
	for name, here := range map[string]bool{"raised here": true, "raised there": false} {
		for what, test := range map[string]struct {
			cost      uint64
			extend    bool
			now, then int // counted beside the 20 that no hold has
		}{
			"ends":                    {cost: 0, then: 0},
			"is cancelled":            {cost: 0, now: 0, then: 0},
			"is settled":              {cost: 12, now: 12, then: 12},
			"is settled with more":    {cost: 17, now: 17, then: 17},
			"is raised, and ends":     {cost: 15, extend: true, now: 15, then: 0},
			"is raised more and ends": {cost: 18, extend: true, now: 18, then: 0},
		} {
			one, c := heldTable(t, l, noon, 1)
			part := PartitionOf(c.Key(0))
			other := New(Config{MaxKeys: 1000})
			moveTo(t, one, part, noon, other, noon, Replace)
			raised := other
			if here {
				raised = one
			}
			if out, _ := raised.Amend(noon, heldCharge(l, 1, 15), limiter.Amend{Extend: true}); out.State != limiter.AmendDone {
				t.Fatal(out.State)
			}
			more := heldCharge(l, 0, 20)
			more.ID = nil
			if err := one.Decide(noon, more, new(limiter.Decision)); err != nil {
				t.Fatal(err)
			}
			before := used(t, one, l, noon)
			for i := range limiter.Tick(2) {
				moveTo(t, other, part, noon, one, noon+i*limiter.Second, Merge)
				if n := used(t, one, l, at); n != before {
					t.Fatalf("%s: %d are counted once merged, and %d before", name, n, before)
				}
			}
			if what != "ends" {
				if out, _ := one.Amend(at, heldCharge(l, 1, test.cost),
					limiter.Amend{Extend: test.extend}); out.State != limiter.AmendDone || used(t, one, l, at) != 20+test.now {
					t.Errorf("%s, then it %s: %v, %d are counted, want %d", name, what, out.State, used(t, one, l, at), 20+test.now)
				}
			}
			if n := used(t, one, l, noon+2*limiter.Hour); n != 20+test.then || one.Stats().Holds != 0 {
				t.Errorf("%s, then it %s: %d are counted in the end, want %d, and %d holds live", name, what, n, 20+test.then,
					one.Stats().Holds)
			}
		}
	}
}

// A limit on concurrency counts the holds of both tables after a merge, and only these: a unit that
// no hold has would be held for as long as others are.
func TestMergedSlotsAreThoseOfAllHolds(t *testing.T) {
	l := hundred(t, limiter.Concurrency, 0)
	for _, settled := range []bool{false, true} {
		one, c := heldTable(t, l, noon, 1)
		part := PartitionOf(c.Key(0))
		other := New(Config{MaxKeys: 1000})
		moveTo(t, one, part, noon, other, noon, Replace)
		for i := range uint64(2) {
			if err := other.Decide(noon, heldCharge(l, 2+i, 5), new(limiter.Decision)); err != nil {
				t.Fatal(err)
			}
		}
		if err := one.Decide(noon, heldCharge(l, 4, 4), new(limiter.Decision)); err != nil {
			t.Fatal(err)
		}
		want := 24
		if settled { // in the other table, and known there
			if out, _ := other.Amend(noon, heldCharge(l, 1, 7), limiter.Amend{}); out.State != limiter.AmendDone {
				t.Fatal(out.State)
			}
			want = 14
		}
		moveTo(t, other, part, noon, one, noon, Merge)
		if n := used(t, one, l, noon); n != want {
			t.Errorf("settled %v: %d are held once merged, want %d", settled, n, want)
		}
		for i, slots := range []int{5, 5, 4} {
			if out, _ := one.Amend(noon, heldCharge(l, uint64(2+i), 1), limiter.Amend{}); out.State != limiter.AmendDone {
				t.Fatal(out.State)
			}
			want -= slots
			if n := used(t, one, l, noon); n != want {
				t.Errorf("settled %v: %d are held, want %d", settled, n, want)
			}
		}
	}
}

// What either of two tables has settled is settled, whichever of them takes in the other.
func TestMergedHoldsStaySettled(t *testing.T) {
	l := hundred(t, limiter.FixedWindow, 24*time.Hour)
	for name, here := range map[string]bool{"settled here": true, "settled there": false} {
		for _, cost := range []uint64{0, 3} {
			one, c := heldTable(t, l, noon, 1)
			part := PartitionOf(c.Key(0))
			other := New(Config{MaxKeys: 1000})
			moveTo(t, one, part, noon, other, noon, Replace)
			into, from := one, other
			if !here {
				into, from = other, one
			}
			if out, _ := one.Amend(noon, heldCharge(l, 1, cost), limiter.Amend{}); out.State != limiter.AmendDone {
				t.Fatal(out.State)
			}
			moveTo(t, from, part, noon, into, noon, Merge)
			before := used(t, into, l, noon)
			if !here && before != int(cost) || here && before != 10 {
				t.Errorf("%s with %d: %d are counted", name, cost, before)
			}
			if out, _ := into.Amend(noon, heldCharge(l, 1, cost), limiter.Amend{}); out.State != limiter.AmendRepeated {
				t.Errorf("%s with %d, then again: %v", name, cost, out.State)
			}
			if n := used(t, into, l, noon+2*limiter.Hour); n != before {
				t.Errorf("%s with %d: %d are counted after its end, and %d before", name, cost, n, before)
			}
			if s := into.Stats(); s.Holds != 0 || s.HoldsExpired != 0 {
				t.Errorf("%s with %d: %d holds, %d expired", name, cost, s.Holds, s.HoldsExpired)
			}
		}
	}
}

// A hold that was charged at the edge of a window, or of a drip, gives back to the window that it
// was charged in, although the transfer took a moment and clocks differ by less than half of it.
func TestMovedHoldsFindTheirWindow(t *testing.T) {
	for _, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingCounter, limiter.SlidingWindow} {
		l := hundred(t, algorithm, time.Hour)
		for _, off := range []limiter.Tick{-ms(1), ms(1), ms(20)} {
			edge := noon - noon%limiter.Hour + limiter.Hour
			from, c := heldTable(t, l, edge-ms(1), 1)
			into, part := New(Config{MaxKeys: 1000}), PartitionOf(c.Key(0))
			moveTo(t, from, part, edge-ms(1), into, edge-ms(1)+off, Replace)
			at := edge + ms(40)
			var d limiter.Decision
			next := &arith.Charge{}
			next.Add(*heldCharge(l, 1, 10).Key(0))
			for _, table := range []*Table{from, into} {
				if err := table.Decide(at, next, &d); err != nil {
					t.Fatal(err)
				}
				if out, _ := table.Amend(at, heldCharge(l, 1, 0), limiter.Amend{}); out.State != limiter.AmendDone {
					t.Fatal(out.State)
				}
			}
			if want, got := used(t, from, l, at), used(t, into, l, at); want != got {
				t.Errorf("%v, moved by %v: %d are counted, want %d", algorithm, off, got, want)
			}
		}
	}
}

func ms(n limiter.Tick) limiter.Tick { return n * limiter.Millisecond }

// A copy of another node's holds expires them for itself, and counts none of that: the owner does.
func TestCopiesCountNoExpiries(t *testing.T) {
	l := hundred(t, limiter.FixedWindow, 24*time.Hour)
	owner, c := heldTable(t, l, noon, 1)
	heir, part := New(Config{MaxKeys: 1000}), PartitionOf(c.Key(0))
	heir.SetCopy(part, true)
	moveTo(t, owner, part, noon, heir, noon, Replace)
	for name, table := range map[string]*Table{"owner": owner, "heir": heir} {
		if n := used(t, table, l, noon+2*limiter.Hour); n != 0 {
			t.Errorf("%s: %d are counted after the end", name, n)
		}
	}
	if a, b := owner.Stats().HoldsExpired, heir.Stats().HoldsExpired; a != 1 || b != 0 {
		t.Errorf("expired: %d at the owner, %d at its heir", a, b)
	}
}

// A hold that is cancelled gives back what it still holds, once, and only if it is the one that
// is meant.
func TestCancelHold(t *testing.T) {
	l := hundred(t, limiter.FixedWindow, 24*time.Hour)
	for name, test := range map[string]struct {
		at     limiter.Tick // of the charge that is meant
		now    limiter.Tick
		forget bool
		does   bool
		left   int // units counted afterwards
		known  bool
	}{
		"forgotten":        {noon, noon + 1, true, true, 0, false},
		"only given back":  {noon, noon + 1, false, true, 0, true},
		"of a later check": {noon - 1, noon + 1, true, false, 10, true},
		"over":             {noon, noon + 2*limiter.Hour, true, false, 0, false},
	} {
		table, c := heldTable(t, l, noon, 1)
		for range 2 {
			did := table.CancelHold(test.now, c, 0, test.at, 1, test.forget)
			if want := test.does; did != want {
				t.Errorf("%s: it did something: %t, want %t", name, did, want)
			}
			if test.forget {
				test.does = false
			}
			if n := used(t, table, l, test.now); n != test.left {
				t.Errorf("%s: %d are counted, want %d", name, n, test.left)
			}
		}
		if known := table.Remembers(test.now, c); known != test.known {
			t.Errorf("%s: the id is known: %t", name, known)
		}
	}
}

// A hold moves whenever its key does, and its id only when it changes. So each time both end at
// another instant, by the clock of the node that gets them. The id is known until the hold ends, and
// no longer: while it is known, a check that is repeated passes, and a settlement with another cost is
// refused.
func TestMovedHoldsEndWithTheirIDs(t *testing.T) {
	l := hundred(t, limiter.FixedWindow, 24*time.Hour)
	for _, off := range []limiter.Tick{-ms(20), 0, ms(20)} {
		for _, key := range []bool{true, false} { // moved last
			from, c := heldTable(t, l, noon, 1)
			into, part := New(Config{MaxKeys: 1000}), PartitionOf(c.Key(0))
			moveTo(t, from, part, noon, into, noon, Replace)
			var entries []Entry
			end := noon + limiter.Hour
			hi := IDOf(c.Key(0), 1).Hi
			if key {
				hi, end = c.Key(0).Hash.Hi, end+off
			}
			from.ExportKey(part, hi, noon, func(e Entry) {
				e.Words = append([]uint64(nil), e.Words...)
				entries = append(entries, e)
			})
			if err := into.ReplaceKey(part, hi, noon+off, entries); err != nil {
				t.Fatal(err)
			}
			if key {
				if known := into.Remembers(end-1, c); !known {
					t.Errorf("moved by %v: the id is not known as long as its hold", off)
				}
			}
			if out, _ := into.Amend(end, heldCharge(l, 1, 0),
				limiter.Amend{IgnoreUnknown: true}); out.State != limiter.AmendUnknown {
				t.Errorf("moved by %v, the key %t: cancelled when its hold is over: %v, %d", off, key, out.State, out.First)
			}
			var d limiter.Decision
			if err := into.Decide(end, c, &d); err != nil || !d.Allowed || d.Repeated || used(t, into, l, end) != 10 {
				t.Errorf("moved by %v, the key %t: made again when its hold is over: %v, repeated %t, %d are counted", off, key,
					err, d.Repeated, used(t, into, l, end))
			}
		}
	}
}

// TestAHoldEndsWithItsID: a copy has the id of a hold in time. The key comes an hour and a half later, as
// after a pause, and the hold with it, which ends that much later there. Who settles the hold or asks
// for it again finds it over.
func TestAHoldEndsWithItsID(t *testing.T) {
	l := hundred(t, limiter.FixedWindow, 24*time.Hour)
	late := func() (*Table, limiter.Tick) {
		from, c := heldTable(t, l, noon, 1)
		into, part := New(Config{MaxKeys: 1000}), PartitionOf(c.Key(0))
		moveTo(t, from, part, noon, into, noon, Replace)
		var entries []Entry
		from.ExportKey(part, c.Key(0).Hash.Hi, noon, func(e Entry) {
			e.Words = append([]uint64(nil), e.Words...)
			entries = append(entries, e)
		})
		now := noon + 3*limiter.Hour/2
		if err := into.ReplaceKey(part, c.Key(0).Hash.Hi, now, entries); err != nil {
			t.Fatal(err)
		}
		if n := used(t, into, l, now); n != 10 {
			t.Fatalf("%d are counted until it ends or is asked for, want 10", n)
		}
		return into, now
	}
	for actual, states := range map[uint64][]limiter.AmendState{
		0: {limiter.AmendUnknown, limiter.AmendUnknown},
		3: {limiter.AmendCharged, limiter.AmendRepeated},
	} {
		into, now := late()
		for i, want := range states {
			out, changed := into.Amend(now, heldCharge(l, 1, actual), limiter.Amend{IgnoreUnknown: actual == 0})
			if out.State != want || changed != (i == 0) || used(t, into, l, now) != int(actual) {
				t.Errorf("settlement %d with %d: %v, changed %t, %d are counted, want %v, %t, %d", i, actual, out.State, changed,
					used(t, into, l, now), want, i == 0, actual)
			}
		}
		if n := used(t, into, l, now+2*limiter.Hour); n != int(actual) || into.Stats().Holds != 0 {
			t.Errorf("settled with %d: in the end %d are counted, and %d holds live", actual, n, into.Stats().Holds)
		}
	}
	into, now := late()
	var d limiter.Decision
	if err := into.Decide(now, heldCharge(l, 1, 10), &d); err != nil || !d.Allowed || d.Repeated ||
		used(t, into, l, now) != 10 {
		t.Errorf("made again: %v, allowed %t, repeated %t, %d are counted, want 10", err, d.Allowed, d.Repeated,
			used(t, into, l, now))
	}
	if out, _ := into.Amend(now, heldCharge(l, 1, 4), limiter.Amend{}); out.State != limiter.AmendDone ||
		used(t, into, l, now) != 4 {
		t.Errorf("made again and settled with 4: %v, %d are counted", out.State, used(t, into, l, now))
	}
}

// TestWhatOnlyTheOtherHasSettledIsLeftOut: an owner of a closed partition was fenced and settled a reservation
// that is over at its heir by then. The id is there what it was, so that a settlement that is repeated is charged,
// or told what stands. In an available partition the policy may have answered that it is settled, and so it is.
func TestWhatOnlyTheOtherHasSettledIsLeftOut(t *testing.T) {
	for name, test := range map[string]struct {
		available bool
		keep      bool
		late      bool         // it is settled here, too, when it is over
		before    limiter.Tick // its end the other comes
		want      limiter.AmendState
		first     uint64
		counts    int
	}{
		"closed, given back":    {want: limiter.AmendCharged, counts: 40 + 30},
		"closed, kept":          {keep: true, want: limiter.AmendSettled, first: 10, counts: 40 + 10},
		"closed, settled late":  {late: true, want: limiter.AmendSettled, first: 20, counts: 40 + 20},
		"closed, not over":      {before: limiter.Second, want: limiter.AmendRepeated, counts: 40 + 30},
		"available, given back": {available: true, want: limiter.AmendRepeated, counts: 40},
	} {
		l := hundred(t, limiter.FixedWindow, 24*time.Hour)
		charge := func(id, cost uint64) *arith.Charge {
			c := heldCharge(l, id, cost)
			c.ID.Life, c.ID.Keep = 2*time.Hour, test.keep
			if !test.available {
				c.Key(0).Rule.OnUnreachable = limiter.UnreachableClosed
			}
			return c
		}
		here, other := New(Config{MaxKeys: 1000}), New(Config{MaxKeys: 1000})
		part := PartitionOf(charge(1, 1).Key(0))
		decide := func(at *Table, c *arith.Charge) {
			var d limiter.Decision
			if err := at.Decide(noon, c, &d); err != nil || !d.Allowed {
				t.Fatal(name, err, d)
			}
		}
		decide(here, charge(1, 10))
		moveTo(t, here, part, noon, other, noon, Replace)
		if out, _ := other.Amend(noon, charge(1, 30), limiter.Amend{}); out.State != limiter.AmendDone {
			t.Fatal(name, out)
		}
		others := charge(2, 40)
		others.ID = nil
		decide(here, others)
		plain := charge(3, 1)
		plain.ID.Hold = 0
		decide(other, plain)
		now := noon + limiter.Hour - test.before
		if test.late {
			here.Amend(now, charge(1, 20), limiter.Amend{})
		}
		for range 2 { // it may come again
			moveTo(t, other, part, now, here, now, Merge)
		}
		if !here.Remembers(now, plain) {
			t.Errorf("%s: the id of a check is unknown", name)
		}
		out, _ := here.Amend(now, charge(1, 30), limiter.Amend{})
		c := &arith.Charge{Peek: true}
		c.Add(*charge(0, 1).Key(0))
		var d limiter.Decision
		if err := here.Decide(now, c, &d); err != nil {
			t.Fatal(name, err)
		}
		n := 100 - int(d.Limit(0).Remaining)
		if out.State != test.want || out.First != test.first || n != test.counts {
			t.Errorf("%s: settled with %+v, %d are counted, want %v %d and %d", name, out, n, test.want, test.first, test.counts)
		}
		heir := New(Config{MaxKeys: 1000}) // a copy has all of it
		moveTo(t, other, part, now, heir, now, Replace)
		if out, _ := heir.Amend(now, charge(1, 30), limiter.Amend{}); out.State != limiter.AmendRepeated {
			t.Errorf("%s: at the other's heir it is settled with %+v", name, out)
		}
	}
}

// TestASettledIDStaysSettledBesideAMergedHold: of two tables one has a reservation by a merge, so that it gives nothing
// back there. It is settled at the other. Whichever is merged into which, the id stands for what it was settled with.
func TestASettledIDStaysSettledBesideAMergedHold(t *testing.T) {
	for name, back := range map[string]bool{"settled here": true, "settled there": false} {
		l := hundred(t, limiter.FixedWindow, 24*time.Hour)
		first, c := heldTable(t, l, noon, 1)
		second, part := New(Config{MaxKeys: 1000}), PartitionOf(c.Key(0))
		moveTo(t, first, part, noon, second, noon, Merge)
		if out, _ := first.Amend(noon, heldCharge(l, 1, 4), limiter.Amend{}); out.State != limiter.AmendDone {
			t.Fatal(name, out)
		}
		here, other := second, first
		if back {
			here, other = first, second
		}
		moveTo(t, other, part, noon, here, noon, Merge)
		before := used(t, here, l, noon)
		out, _ := here.Amend(noon, heldCharge(l, 1, 15), limiter.Amend{})
		if n := used(t, here, l, noon); out.State != limiter.AmendSettled || out.First != 4 || n != before {
			t.Errorf("%s, and with another number: %+v, %d are counted, want settled with 4 and %d", name, out, n, before)
		}
	}
}

// A reservation is over here, and lasts at another table that extended it and is merged. The larger of two counters has
// none of it. What it is settled with is counted then, whatever its estimate was.
func TestAHoldOfAnotherTableIsChargedInFull(t *testing.T) {
	for name, test := range map[string]struct{ extended, actual uint64 }{
		"more than the estimate":    {actual: 12},
		"the estimate":              {actual: 10},
		"less than the estimate":    {actual: 4},
		"nothing":                   {},
		"more than it was extended": {extended: 15, actual: 20},
		"less than it was extended": {extended: 15, actual: 3},
	} {
		l := hundred(t, limiter.FixedWindow, 24*time.Hour)
		here, c := heldTable(t, l, noon, 1)
		other := New(Config{MaxKeys: 1000})
		moveTo(t, here, PartitionOf(c.Key(0)), noon, other, noon, Replace)
		others := heldCharge(l, 2, 40)
		others.ID = nil
		var d limiter.Decision
		if err := here.Decide(noon, others, &d); err != nil || !d.Allowed {
			t.Fatal(err, d)
		}
		extend := limiter.Amend{Extend: true}
		if out, _ := other.Amend(noon+30*limiter.Minute, heldCharge(l, 1, 10), extend); out.State != limiter.AmendDone {
			t.Fatal(name, out)
		}
		now := noon + limiter.Hour
		moveTo(t, other, PartitionOf(c.Key(0)), now, here, now, Merge)
		if n := used(t, here, l, now); n != 40 {
			t.Fatalf("%s: %d counted after the merge", name, n)
		}
		if test.extended > 0 {
			if out, _ := here.Amend(now, heldCharge(l, 1, test.extended), extend); out.State != limiter.AmendDone {
				t.Error(name, out)
			}
		}
		out, _ := here.Amend(now, heldCharge(l, 1, test.actual), limiter.Amend{})
		if n := used(t, here, l, now); out.State != limiter.AmendDone || n != 40+int(test.actual) {
			t.Errorf("%s: %+v, %d counted, want %d", name, out, n, 40+test.actual)
		}
	}
}

// A reservation of an owner that stood still came to its heir with the larger of two counters. What that has of the
// reservation is not charged again when it is settled.
func TestAMergedHoldIsCountedOnce(t *testing.T) {
	for _, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingCounter, limiter.SlidingWindow,
		limiter.SlidingLog, limiter.TokenBucket, limiter.LeakyBucket, limiter.GCRA} {
		l := hundred(t, algorithm, 24*time.Hour)
		for _, others := range []uint64{0, 4, 10, 40} {
			for _, actual := range []uint64{0, 4, 10, 15} {
				owner, c := heldTable(t, l, noon, 1)
				here, part := New(Config{MaxKeys: 1000}), PartitionOf(c.Key(0))
				chargePlain(t, here, l, others)
				moveTo(t, owner, part, noon, here, noon, Merge)
				counted := 10 - min(10, others)
				want := max(10, others) + actual - min(actual, counted)
				out, _ := here.Amend(noon, heldCharge(l, 1, actual), limiter.Amend{})
				if n := uint64(used(t, here, l, noon)); out.State != limiter.AmendDone || n != want {
					t.Errorf("%v, %d of others here, settled with %d: %v, %d are counted, want %d", algorithm, others, actual,
						out.State, n, want)
				}
			}
		}
	}
}

// Reservations of the other table share what its counter had more than that of this one, and one that was merged there
// before brings only what was counted there.
func TestMergedHoldsShareWhatIsCounted(t *testing.T) {
	l := hundred(t, limiter.FixedWindow, 24*time.Hour)
	first, c := heldTable(t, l, noon, 1)
	second, _ := heldTable(t, l, noon, 2)
	here, part := New(Config{MaxKeys: 1000}), PartitionOf(c.Key(0))
	moveTo(t, first, part, noon, second, noon, Merge) // 10 are counted of 20: the second's
	var d limiter.Decision
	if err := second.Decide(noon, heldCharge(l, 3, 10), &d); err != nil || !d.Allowed {
		t.Fatal(err, d)
	}
	chargePlain(t, here, l, 5)
	moveTo(t, second, part, noon, here, noon, Merge) // 20 of 25 are counted: 15 of what was 20 there
	want := []int{20, 20, 30, 35}
	for i, id := range []uint64{0, 2, 1, 3} {
		if id > 0 {
			here.Amend(noon, heldCharge(l, id, 10), limiter.Amend{})
		}
		if n := used(t, here, l, noon); n != want[i] {
			t.Errorf("reservation %d was settled: %d are counted, want %d", id, n, want[i])
		}
	}
}

// Both sides of a second split have a reservation that a former owner pushed to one of them, and that neither need have
// counted. One side settles it, and is merged into the other one, which has charged others meanwhile.
func TestAMergedHoldThatIsSettledElsewhereIsCharged(t *testing.T) {
	for _, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingCounter, limiter.SlidingWindow,
		limiter.SlidingLog, limiter.TokenBucket, limiter.LeakyBucket, limiter.GCRA} {
		l := hundred(t, algorithm, 24*time.Hour)
		former, c := heldTable(t, l, noon, 1)
		one, part := New(Config{MaxKeys: 1000}), PartitionOf(c.Key(0))
		chargePlain(t, one, l, 20)
		moveTo(t, former, part, noon, one, noon, Merge) // the larger counter has nothing of it
		other := New(Config{MaxKeys: 1000})
		moveTo(t, one, part, noon, other, noon, Replace)
		chargePlain(t, other, l, 30)
		if out, _ := one.Amend(noon, heldCharge(l, 1, 10), limiter.Amend{}); out.State != limiter.AmendDone {
			t.Fatal(algorithm, out)
		}
		moveTo(t, one, part, noon, other, noon, Merge)
		if n := used(t, other, l, noon); n != 60 {
			t.Errorf("%v: %d are counted, want 20 of both, 30 of one side, and 10 that the other has settled", algorithm, n)
		}
	}
}

// chargePlain charges units to the key of [heldCharge], without an id.
func chargePlain(t *testing.T, table *Table, l *limiter.Limit, n uint64) {
	t.Helper()
	c, d := heldCharge(l, 1, n), limiter.Decision{}
	if c.ID = nil; n == 0 {
		return
	}
	if err := table.Decide(noon, c, &d); err != nil || !d.Allowed {
		t.Fatal(err, d)
	}
}

// An owner that stood still pushes a reservation of several limits. Its counter of a second is over, and that of a day
// raised the one of its heir. Each limit is charged what it lacks of what was used, also at a third table that gets the
// reservation from there, and where it learns that it was settled elsewhere.
func TestAMergedHoldIsCountedOnceByEachLimit(t *testing.T) {
	short := limit(t, limiter.Spec{Name: "s", Limit: 100, Window: time.Second, Algorithm: limiter.FixedWindow})
	long := hundred(t, limiter.FixedWindow, 24*time.Hour)
	for _, actual := range []uint64{0, 4, 10, 12, 15} {
		for _, of := range [][]*limiter.Limit{{short, long}, {long, short}} {
			for _, third := range []bool{false, true} {
				for _, elsewhere := range []bool{false, true} {
					owner, heir := New(Config{MaxKeys: 1000}), New(Config{MaxKeys: 1000})
					c, now := bothCharge(1, 10, of...), noon+3*limiter.Second
					part := PartitionOf(c.Key(0))
					if err := owner.Decide(noon, c, new(limiter.Decision)); err != nil {
						t.Fatal(err)
					}
					moveTo(t, owner, part, now, heir, now, Merge)
					if third {
						here := New(Config{MaxKeys: 1000})
						moveTo(t, heir, part, now, here, now, Merge)
						heir = here
					}
					settles := heir
					if elsewhere {
						settles = New(Config{MaxKeys: 1000})
						moveTo(t, heir, part, now, settles, now, Replace)
					} else if actual > 10 { // both limits have what it is extended by
						settles.Amend(now, bothCharge(1, 15, of...), limiter.Amend{Extend: true})
					}
					out, _ := settles.Amend(now, bothCharge(1, actual, of...), limiter.Amend{})
					if elsewhere {
						moveTo(t, settles, part, now, heir, now, Merge)
					}
					peek, d := bothCharge(1, 1, of...), limiter.Decision{}
					peek.ID, peek.Peek = nil, true
					if err := heir.Decide(now, peek, &d); err != nil || out.State != limiter.AmendDone {
						t.Fatal(err, out)
					}
					for i, l := range of {
						want := actual
						if l == long {
							want = max(10, actual)
						}
						if n := 100 - d.Limit(i).Remaining; n != want {
							t.Errorf("settled with %d, limit %d of %v counts %d, want %d; third table %t, settled elsewhere %t", actual, i,
								l.Window(), n, want, third, elsewhere)
						}
					}
				}
			}
		}
	}
}
