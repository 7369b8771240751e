package arith_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	. "github.com/weirlimit/weir/limiter"
	. "github.com/weirlimit/weir/limiter/arith"
)

// merged returns the merge of two counters that are rolled to now.
func merged(a, b *replica, now Tick) *replica {
	into, from := a.copy(), b.copy()
	into.s.Roll(into.l, into.words, now)
	from.s.Roll(from.l, from.words, now)
	into.room(into.s.MergeWords(into.l, &from.s))
	into.s.Merge(into.l, into.words, &from.s, from.words, now)
	return into
}

// same reports whether two counters have the same state, wherever their words are.
func same(a, b *replica, now Tick) bool {
	as, aw := a.export(now)
	bs, bw := b.export(now)
	if as != bs || len(aw) != len(bw) {
		return false
	}
	if a.l.Algorithm() != SlidingWindow {
		return slices.Equal(aw, bw)
	}
	counts := func(k *replica) []WindowCount { // the ring may stand anywhere
		return k.s.Explain(k.l, k.words, now, &LimitDecision{Limit: k.l}).Counts
	}
	return slices.Equal(counts(a), counts(b))
}

// lineages are three counters that parted from one, and the instant at which they meet
// again. ahead states that the clock of the second is ahead, so its windows may begin
// in the future.
func lineages(tb testing.TB, r *rand.Rand, spec Spec, ahead bool) (base *replica, ks [3]*replica, now Tick) {
	base = &replica{l: mustLimit(tb.(*testing.T), spec)}
	parted := walk(r, base, noonTicks+Tick(r.Int64N(int64(Span(base.l.Window())))), r.IntN(8))
	now = parted
	for i := range ks {
		ks[i] = base.copy()
		now = max(now, walk(r, ks[i], parted, r.IntN(6)))
	}
	for _, k := range append(ks[:], base) {
		k.s.Roll(k.l, k.words, now)
	}
	if ahead {
		there := now + Tick(r.Int64N(int64(Span(base.l.Window()))/2))
		walk(r, ks[1], there, 0)
		ks[1].ask(there, 1, false)
		ks[1] = ks[1].moved(tb, there, now)
	}
	return base, ks, now
}

// Merging is idempotent, the order of two does not matter, and who merges with
// what he comes from learns nothing. The order of three does not matter where
// they agree about the window.
func TestMergeIsALattice(t *testing.T) {
	eachSeed(t, 300, func(t *testing.T, r *rand.Rand, spec Spec) {
		ahead := r.IntN(2) == 0
		base, ks, now := lineages(t, r, spec, ahead)
		a, b, c := ks[0], ks[1], ks[2]
		switch ab := merged(a, b, now); {
		case !same(merged(a, a, now), a, now):
			t.Errorf("%v: a state merged with itself is another", a.l)
		case !same(ab, merged(b, a, now), now):
			t.Errorf("%v: the order of two matters", a.l)
		case !same(merged(ab, a, now), ab, now), !same(merged(ab, b, now), ab, now):
			t.Errorf("%v: a merged state learns from what it was merged of", a.l)
		case !ahead && !same(merged(ab, c, now), merged(a, merged(b, c, now), now), now):
			t.Errorf("%v: the order of three matters", a.l)
		case !same(merged(a, base, now), a, now), !same(merged(base, a, now), a, now):
			t.Errorf("%v: merged with its ancestor, a state is another", a.l)
		}
	})
}

// A merged state denies whatever one of the two denies, then and later, also
// after further charges; and it is the least that does, where a state can be.
func TestMergedDeniesWhatEitherDenies(t *testing.T) {
	future, differ := 0, 0
	eachSeed(t, 300, func(t *testing.T, r *rand.Rand, spec Spec) {
		ahead := r.IntN(2) == 0
		_, ks, now := lineages(t, r, spec, ahead)
		both := merged(ks[0], ks[1], now)
		if ks[1].s.Time > now && aligned(&spec) {
			future++
		}
		if r.IntN(2) == 0 {
			both = merged(both, ks[2], now)
		} else {
			ks[2] = nil
		}
		apart := ks[0].subsApart(ks[1]) || ks[2] != nil && ks[0].subsApart(ks[2])
		charged := false
		for step := range 40 {
			n := uint64(1)
			got, most := both.copy().ask(now, n, true), uint64(MaxUnits)
			for _, k := range ks {
				if k != nil {
					most = min(most, k.copy().ask(now, n, true).Remaining)
				}
			}
			if got.Remaining > most {
				t.Fatalf("%v: step %d: %d remain, but only %d in one of the two", both.l, step, got.Remaining, most)
			}
			if got.Remaining < most {
				differ++
				if !charged && !ahead && exactMerge(&spec) {
					t.Fatalf("%v: step %d: %d remain, though %d do in both", both.l, step, got.Remaining, most)
				}
			}
			// A hit after the end of a window of one, within that of the other,
			// begins a window of the one only: first hits cannot be followed.
			// Nor can sub-windows that begin at different instants.
			if got.Allowed && spec.Align == AlignEpoch && !apart && r.IntN(3) == 0 {
				charged = true
				for _, k := range append(ks[:], both) {
					if k != nil {
						k.ask(now, n, false)
					}
				}
			}
			now += Tick(r.Int64N(int64(Span(both.l.Window())) / 8))
		}
	})
	if future < 300 || differ == 0 {
		t.Errorf("premise: %d windows lay in the future, %d merges were more than both", future, differ)
	}
}

// subsApart reports whether the sub-windows of two counters begin at different instants.
func (k *replica) subsApart(other *replica) bool {
	spec := k.l.Spec()
	return spec.Algorithm == SlidingWindow &&
		(k.s.Time-other.s.Time)%(Span(k.l.Window())/Tick(max(1, spec.SubWindows))) != 0
}

// exactMerge reports whether a state of the limit can represent the least result: two
// counts cannot represent two declining ones, and two windows that began with their
// first hits become one.
func exactMerge(s *Spec) bool {
	return s.Algorithm != SlidingCounter && s.Align == AlignEpoch
}

// Two halves of a split that both admitted all they could admit nothing once
// they are merged, until one of them alone would.
func TestMergeOfTwoFullSides(t *testing.T) {
	eachSeed(t, 20, func(t *testing.T, r *rand.Rand, spec Spec) {
		a := &replica{l: mustLimit(t, spec)}
		b := a.copy()
		now := noonTicks + Tick(r.Int64N(int64(Span(a.l.Window()))))
		for room := a.ask(now, 1, true).Remaining; room > 0; room = a.ask(now, 0, true).Remaining {
			a.ask(now, 1, false)
			b.ask(now+5, 1, false)
		}
		now += 5
		both := merged(a, b, now)
		got, want := both.ask(now, 1, true), b.ask(now, 1, true)
		if got != want || got.Allowed {
			t.Errorf("%v: merged, %+v, not %+v", a.l, got, want)
		}
	})
}

// A window that has not begun by the clock of who merges takes nothing from the
// one that still runs, nor gives it its own count.
func TestMergeAtTheTurnOfAWindow(t *testing.T) {
	day := mustLimit(t, Spec{Algorithm: FixedWindow, Limit: 100, Window: 24 * time.Hour})
	midnight := TickOf(time.Date(2026, 1, 6, 0, 0, 0, 0, time.UTC))
	here := &replica{l: day}
	here.ask(midnight-Hour, 100, false)
	there := &replica{l: day}
	there.ask(midnight+1000, 10, false)
	now := midnight - 5000
	both := merged(here, there.moved(t, midnight+1000, now), now)
	if got := both.ask(now, 1, true); got.Allowed || Span(got.RetryAfter) != 5000 || Span(got.ResetAfter) != 24*Hour+5000 {
		t.Errorf("before midnight: %+v", got)
	}
	c := both.copy()
	if got := c.ask(midnight, 1, true); got.Remaining != 90 {
		t.Errorf("at midnight: %+v", got)
	}
	back := both.moved(t, now, now)
	if got := back.ask(now, 1, true); got.Allowed || Span(got.RetryAfter) != 5000 {
		t.Errorf("moved again before midnight: %+v", got)
	}
	counter := mustLimit(t, Spec{Limit: 100, Window: 24 * time.Hour})
	both.s.Roll(both.l, nil, now)
	if _, fresh := both.s.Adopt(counter, day, nil, now); fresh {
		t.Error("a fixed window was not kept")
	}
	both.l = counter
	if got := both.ask(now, 1, true); got.Allowed || got.Remaining != 0 {
		t.Errorf("as a counter: %+v", got)
	}
	if got := both.ask(midnight+12*Hour, 1, true); got.Remaining != 100-10-45 {
		t.Errorf("as a counter, at noon: %+v", got)
	}
}

// Large logs merge into no more entries than one log may have.
func TestMergeOfLargeLogs(t *testing.T) {
	l := mustLimit(t, Spec{Algorithm: SlidingLog, Limit: MaxLogLimit, Window: time.Hour})
	a, b := &replica{l: l}, &replica{l: l}
	now := noonTicks
	a.ask(now, 900_000, false) // two entries
	for i := range 1000 {
		a.ask(now+Tick(2*i), 1, false)
		b.ask(now+Tick(2*i+1), 1, false)
	}
	now += 5000
	b.ask(now, 600_000, false)
	both := merged(a, b, now)
	if got, want := both.ask(now, 1, true).Remaining, uint64(MaxLogLimit-901_000); got != want {
		t.Errorf("%d remain, want %d", got, want)
	}
	if got := both.s.Held(l); got > 1+1000+1000+2+2 {
		t.Errorf("%d words", got)
	}
	if got, want := both.ask(noonTicks+Hour, 1, true).Remaining, uint64(MaxLogLimit-601_000); got != want {
		t.Errorf("%d remain when the first are gone, want %d", got, want)
	}
}

// The previous window that still runs counts as what it is, and so does the one
// that lies ahead; nothing of it is counted twice.
func TestMergeOfCountersAtTheTurn(t *testing.T) {
	for _, spec := range []Spec{
		{Limit: 100, Window: 24 * time.Hour},
		{Limit: 100, Window: 24 * time.Hour, Algorithm: SlidingWindow, SubWindows: 1},
	} {
		l := mustLimit(t, spec)
		midnight := TickOf(time.Date(2026, 1, 6, 0, 0, 0, 0, time.UTC))
		here, there := &replica{l: l}, &replica{l: l}
		here.ask(midnight-Hour, 60, false)
		there.ask(midnight+1000, 10, false)
		now := midnight - 5000
		for range 2 {
			here = merged(here, there.moved(t, midnight+1000, now), now)
		}
		if got := here.copy().ask(now, 1, true).Remaining; got != 40 {
			t.Errorf("%v: %d remain before midnight, want 40", l, got)
		}
		if spec.Algorithm == SlidingWindow {
			continue
		}
		if got := here.copy().ask(midnight+12*Hour, 1, true).Remaining; got != 100-10-25 {
			t.Errorf("%v: %d remain at noon, want 65", l, got)
		}
	}
	// One sub-window that is all there is stays one.
	l := mustLimit(t, Spec{Limit: 100, Window: time.Hour, Algorithm: SlidingWindow, SubWindows: 1,
		Coverage: CoverageLenient})
	here, there := &replica{l: l}, &replica{l: l}
	here.ask(noonTicks-Minute, 30, false)
	there.ask(noonTicks, 10, false)
	if got := merged(here, there.moved(t, noonTicks, noonTicks-1000), noonTicks-1000).ask(noonTicks-1000, 1,
		true); got.Remaining != 70 {
		t.Errorf("%d remain, want 70", got.Remaining)
	}
}

// Two windows merge to less than their larger counts together: 8 then and 5 now
// are not 13 in any of the two.
func TestMergedCountersAreTheLeast(t *testing.T) {
	for _, spec := range []Spec{
		{Limit: 20, Window: time.Minute},
		{Limit: 20, Window: time.Minute, Algorithm: SlidingWindow, SubWindows: 1},
	} {
		l := mustLimit(t, spec)
		a, b := &replica{l: l}, &replica{l: l}
		a.ask(noonTicks-Second, 8, false)
		b.ask(noonTicks, 5, false)
		if got := merged(a, b, noonTicks).ask(noonTicks, 1, true); got.Remaining != 12 {
			t.Errorf("%v: %d remain, want 12", l, got.Remaining)
		}
	}
}

// Two theoretical arrival times within one tick differ by their fractions.
func TestMergeOfFractions(t *testing.T) {
	l := mustLimit(t, Spec{Algorithm: GCRA, Limit: 4000, Burst: 1, Window: time.Millisecond})
	a, b := &replica{l: l}, &replica{l: l}
	a.s.Charge(l, nil, noonTicks, 2)
	b.s.Charge(l, nil, noonTicks, 3)
	if a.s.Time != b.s.Time {
		t.Fatal("premise: one tick")
	}
	for _, m := range []*replica{merged(a, b, noonTicks), merged(b, a, noonTicks)} {
		if m.s != b.s {
			t.Errorf("%+v, not %+v", m.s, b.s)
		}
	}
}

// No log has more entries than units, nor a merged one more than either may.
func TestMergeWordsOfLogs(t *testing.T) {
	l := mustLimit(t, Spec{Algorithm: SlidingLog, Limit: MaxLogLimit, Window: time.Hour})
	full := State{A: MaxLogLimit, B: MaxLogLimit}
	if got := full.MergeWords(l, &full); got != 1+MaxLogLimit {
		t.Errorf("%d words", got)
	}
}
