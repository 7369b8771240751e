package arith_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	. "github.com/weirlimit/weir/limiter"
	. "github.com/weirlimit/weir/limiter/arith"
)

// replica is one counter of one limit, in memory of its own, as a node holds it.
type replica struct {
	l     *Limit
	s     State
	words []uint64
}

// ask decides n units, see units, charges them where they are admitted, and returns the
// answer.
func (k *replica) ask(now Tick, n uint64, peek bool) LimitDecision {
	n = k.units(n)
	rule := Rule{Limits: []*Limit{k.l}}
	var d Decision
	d.Clear()
	d.Grow(1)
	out := d.Limit(0)
	*out = LimitDecision{Rule: &rule, Limit: k.l, Cost: n}
	used := k.s.Probe(k.l, k.words, now, out)
	Combine(&d, peek)
	charge, block := ToCharge(&d, 0)
	charged := uint64(0)
	if charge {
		k.room(k.s.Words(k.l, now, n))
		k.s.Charge(k.l, k.words, now, n)
		charged = n
	}
	if block {
		BeginBlock(&d, 0, k.l, &k.s, now)
	}
	k.s.Report(k.l, k.words, now, used, charged, !d.Allowed, out)
	out.Rule = nil
	return *out
}

// units returns how many units n are: of a wide limit, n times 1<<widened.
func (k *replica) units(n uint64) uint64 {
	if Wide(k.l) {
		return n << widened
	}
	return n
}

func (k *replica) room(need int) {
	if need > len(k.words) {
		words := make([]uint64, need)
		k.s.Move(k.l, words, k.words)
		k.words = words
	}
}

func (k *replica) copy() *replica {
	return &replica{k.l, k.s, slices.Clone(k.words)}
}

// export returns the state as it travels; k stays as it is, but for being
// rolled.
func (k *replica) export(now Tick) (State, []uint64) {
	k.s.Roll(k.l, k.words, now)
	s, words := k.s, make([]uint64, k.s.Held(k.l))
	if len(words) > 0 {
		k.s.Move(k.l, words, k.words[:max(len(words), len(k.words))])
	}
	s.Export(k.l, words, now)
	return s, words
}

// importState is the other end.
func importState(tb testing.TB, l *Limit, s State, words []uint64, now Tick) *replica {
	tb.Helper()
	if err := s.CheckExported(l, words); err != nil {
		tb.Fatalf("%v: %v", l, err)
	}
	k := &replica{l, s, slices.Clone(words)}
	k.s.Import(l, k.words, now)
	return k
}

// moved returns the counter in another node, whose clock shows there when this one's
// shows now.
func (k *replica) moved(tb testing.TB, now, there Tick) *replica {
	tb.Helper()
	s, words := k.export(now)
	return importState(tb, k.l, s, words, there)
}

// movable is every algorithm with every option that its state depends on.
func movable() []Spec {
	weight, none := 300, 0
	var out []Spec
	for _, s := range []Spec{
		{Algorithm: FixedWindow}, {Algorithm: FixedWindow, Align: AlignFirstHit},
		{Algorithm: SlidingLog},
		{Algorithm: SlidingWindow}, {Algorithm: SlidingWindow, Coverage: CoverageLenient, SubWindows: 4},
		{Algorithm: SlidingWindow, SubWindows: 1}, {Algorithm: SlidingWindow, Coverage: CoverageLenient, SubWindows: 1},
		{}, {Rounding: RoundFloor}, {Rounding: RoundNearest}, {Weight: &weight}, {Weight: &none},
		{Algorithm: TokenBucket}, {Algorithm: LeakyBucket, Burst: 3}, {Algorithm: GCRA, Burst: 9},
		{Algorithm: LeakyBucket, Drip: DripInterval}, {Algorithm: LeakyBucket, Drip: DripInterval, Burst: 12},
		{Algorithm: LeakyBucket, Drip: DripInterval, DripUnits: 2, Burst: 9},
	} {
		for _, count := range []CountRejected{CountNone, CountAll} {
			s.CountRejected = count
			out = append(out, s)
		}
	}
	return out
}

// sized returns a spec with a limit of 1 to 8 units in windows of 1 to 4
// seconds, in one case of three with a block.
func sized(r *rand.Rand, s Spec) Spec {
	s.Limit, s.Window = (1+r.Int64N(8))*max(1, s.DripUnits), time.Duration(1+r.IntN(4))*time.Second
	if r.IntN(3) == 0 {
		s.Block = time.Duration(1+r.IntN(3000)) * time.Millisecond
	}
	return s
}

// widened is the binary logarithm of the units in one unit of a wide limit.
const widened = 40

// wider returns a limit like s that is counted in 53 bits, or s if there is none.
func wider(s Spec) Spec {
	w := s
	w.Limit, w.Burst = s.Limit<<widened, s.Burst<<widened
	if s.Drip == DripInterval {
		w.DripUnits = max(1, s.DripUnits) << widened // so it leaks at the same instants
	}
	if len(w.Problems()) > 0 {
		w.Block = 0 // its sub-windows may not be whole seconds
	}
	if len(w.Problems()) > 0 {
		return s
	}
	return w
}

// aligned reports whether a limit counts by instants that all clocks have in common.
func aligned(s *Spec) bool {
	switch s.Algorithm {
	case FixedWindow:
		return s.Align == AlignEpoch
	case SlidingCounter, SlidingWindow:
		return true
	default:
		return s.Drip == DripInterval
	}
}

const noonTicks = Tick(1767614400 * 1e6)

// walk asks a counter at random instants and returns the last.
func walk(r *rand.Rand, k *replica, now Tick, steps int) Tick {
	for range steps {
		now += Tick(r.Int64N(int64(Span(k.l.Window())) / 3))
		k.ask(now, uint64(r.IntN(3)), false)
	}
	return now
}

func eachSeed(t *testing.T, seeds uint64, f func(t *testing.T, r *rand.Rand, s Spec)) {
	for i, s := range movable() {
		t.Run(fmt.Sprintf("%d-%s", i, s.Algorithm), func(t *testing.T) {
			for seed := range seeds {
				s := sized(rand.New(rand.NewPCG(seed, 5)), s)
				if seed%2 == 1 {
					s = wider(s)
				}
				f(t, rand.New(rand.NewPCG(seed, uint64(i))), s)
				if t.Failed() {
					t.Fatalf("seed %d, %+v", seed, s)
				}
			}
		})
	}
}

// Between clocks that agree, a counter that moved decides exactly as it would
// have, however often it moves: at the same instants where its windows are
// aligned, and else later by as long as the move took.
func TestMovedCounterDecidesAlike(t *testing.T) {
	eachSeed(t, 300, func(t *testing.T, r *rand.Rand, spec Spec) {
		shift := Tick(r.IntN(20_001))
		late := shift
		if aligned(&spec) {
			shift, spec.Block = 0, 0 // a block is no window
		}
		k := &replica{l: mustLimit(t, spec)}
		now := walk(r, k, noonTicks, 12)
		there := now + late
		other := k.moved(t, now, there)
		for range r.IntN(3) {
			other = other.moved(t, there, there)
		}
		at := max(now, there-shift)
		for step := range 30 {
			n, peek := uint64(r.IntN(3)), r.IntN(4) == 0
			want, got := k.ask(at, n, peek), other.ask(at+shift, n, peek)
			if got != want {
				t.Fatalf("step %d, %v, %d us late: %+v, was %+v", step, k.l, late, got, want)
			}
			at += Tick(r.Int64N(int64(Span(k.l.Window())) / 3))
		}
	})
}

// Whatever the clocks say, what is imported answers exactly: a wait that it
// promises is enough, and a tick less is not; and it ends.
func TestWaitsOfMovedCounters(t *testing.T) {
	future := 0
	eachSeed(t, 150, func(t *testing.T, r *rand.Rand, spec Spec) {
		k := &replica{l: mustLimit(t, spec)}
		now := walk(r, k, noonTicks, 12)
		w := Span(k.l.Window())
		there := now - 3*w + Tick(r.Int64N(int64(6*w)))
		other := k.moved(t, now, there)
		if other.s.Time > there && aligned(&spec) {
			future++
		}
		for range 6 {
			n := uint64(1 + r.IntN(2))
			got := other.copy().ask(there, n, true)
			if got.Remaining > k.l.Capacity() || got.RetryAfter < 0 || got.ResetAfter < 0 {
				t.Fatalf("%v: %+v", k.l, got)
			}
			if !got.Allowed && !got.Never {
				if other.copy().ask(there+Span(got.RetryAfter)-1, n, true).Allowed ||
					!other.copy().ask(there+Span(got.RetryAfter), n, true).Allowed {
					t.Fatalf("%v: a wait of %d is not exact", k.l, got.RetryAfter)
				}
			}
			if got.ResetAfter > 0 {
				if c := other.copy(); c.ask(there+Span(got.ResetAfter), 1, true).Remaining < c.l.Capacity() {
					t.Fatalf("%v: something is left after %d", k.l, got.ResetAfter)
				}
			}
			other.ask(there, n, false)
			there += Tick(r.Int64N(int64(w) / 2))
		}
	})
	if future < 100 {
		t.Errorf("premise: only %d states lay in the future", future)
	}
}

// A counter that moves to a clock that is behind, by less than half a window,
// denies there whatever it denied before, as long as its window lasts here.
func TestClockBehindForgetsNothing(t *testing.T) {
	eachSeed(t, 150, func(t *testing.T, r *rand.Rand, spec Spec) {
		k := &replica{l: mustLimit(t, spec)}
		now := walk(r, k, noonTicks, 12)
		unit := Span(k.l.Window())
		switch {
		case spec.Algorithm == SlidingWindow:
			unit /= Tick(k.l.Spec().SubWindows)
		case spec.Drip == DripInterval:
			unit /= Tick(spec.Limit / max(1, spec.DripUnits))
		}
		there := now - Tick(r.Int64N(int64(min(unit/2, 100_000))))
		other := k.moved(t, now, there)
		for range 20 {
			want, got := k.copy().ask(now, 1, true), other.copy().ask(there, 1, true)
			if got.Remaining > want.Remaining {
				t.Fatalf("%v: %d remain after the move, %d before", k.l, got.Remaining, want.Remaining)
			}
			step := Tick(r.Int64N(int64(Span(k.l.Window())) / 10))
			now, there = now+step, there+step
		}
	})
}

// Whatever the clocks say, sub-windows, drips, logs and buckets count at least as long as
// they would have where they were, but for 25 ms.
func TestMovedCounterFreesNothingEarly(t *testing.T) {
	const early = 25 * Millisecond
	moved := 0
	eachSeed(t, 300, func(t *testing.T, r *rand.Rand, spec Spec) {
		if spec.Algorithm == FixedWindow || spec.Algorithm == SlidingCounter {
			return
		}
		k := &replica{l: mustLimit(t, spec)}
		now := walk(r, k, noonTicks, 12)
		there := now - 5*Second + Tick(r.Int64N(int64(10*Second)))
		other := k.moved(t, now, there)
		for range 30 {
			want, got := k.copy().ask(now+early, 1, true), other.copy().ask(there, 1, true)
			if got.Remaining > want.Remaining {
				t.Fatalf("%v: %d remain after the move, %d before", k.l, got.Remaining, want.Remaining)
			}
			if got.Remaining < k.l.Capacity() {
				moved++
			}
			step := Tick(r.Int64N(int64(Span(k.l.Window())) / 20))
			now, there = now+step, there+step
		}
	})
	if moved < 1000 {
		t.Errorf("premise: only %d answers of counters that count something", moved)
	}
}

// What is charged after a move can be refunded, whatever the clocks say.
func TestRefundAfterAMove(t *testing.T) {
	ahead := 0
	eachSeed(t, 150, func(t *testing.T, r *rand.Rand, spec Spec) {
		spec.CountRejected = CountNone
		k := &replica{l: mustLimit(t, spec)}
		now := walk(r, k, noonTicks, 6)
		there := now - 5*Second + Tick(r.Int64N(int64(10*Second)))
		other := k.moved(t, now, there)
		if other.s.Time > there && aligned(&spec) {
			ahead++
		}
		before := other.copy().ask(there, 1, true)
		if got := other.ask(there, 1, false); !got.Allowed || got.Blocked {
			return
		}
		other.s.Refund(other.l, other.words, there, there, there, other.units(1))
		if after := other.ask(there, 1, true); after.Remaining != before.Remaining && spec.Align == AlignEpoch {
			t.Fatalf("%v: %d remain after a refund, %d before the charge", k.l, after.Remaining, before.Remaining)
		}
	})
	if ahead < 100 {
		t.Errorf("premise: only %d states lay ahead", ahead)
	}
}

// A refund that comes after the next window has begun, by a clock that was read before,
// takes nothing of that window.
func TestALateRefundIsOfItsWindow(t *testing.T) {
	for _, spec := range []Spec{{Algorithm: FixedWindow}, {Algorithm: SlidingCounter},
		{Algorithm: SlidingWindow, SubWindows: 2}} {
		spec.Limit, spec.Window = 5, time.Minute
		l := mustLimit(t, spec)
		c := NewCounter(l)
		var first, d Decision
		c.Check(noonTicks-30*Second, 1, &first)
		c.Check(noonTicks+1, 4, &d)
		c.Refund(noonTicks-1, first.Receipt, 1)
		before := d.Limit(0).Remaining
		if c.Peek(noonTicks+1, 1, &d); spec.Algorithm == FixedWindow && d.Limit(0).Remaining != before {
			t.Errorf("%v: %d remain after the refund, %d before", l, d.Limit(0).Remaining, before)
		}
	}
}

// Data from the network is refused if it contradicts itself, and otherwise does no
// harm.
func TestCheckExportedRefuses(t *testing.T) {
	quick := mustLimit(t, Spec{Algorithm: GCRA, Limit: MaxUnits, Window: time.Millisecond})
	log := mustLimit(t, Spec{Algorithm: SlidingLog, Limit: 10, Window: time.Second})
	sub := mustLimit(t, Spec{Algorithm: SlidingWindow, Limit: 10, Window: time.Second})
	fixed := mustLimit(t, Spec{Algorithm: FixedWindow, Limit: 10, Window: time.Second})
	first := mustLimit(t, Spec{Algorithm: FixedWindow, Align: AlignFirstHit, Limit: 10, Window: time.Second})
	bucket := mustLimit(t, Spec{Algorithm: TokenBucket, Limit: 10, Window: time.Second})
	drips := mustLimit(t, Spec{Algorithm: LeakyBucket, Drip: DripInterval, Limit: 10, Window: time.Second})
	counter := mustLimit(t, Spec{Limit: 10, Window: time.Second})
	blocks := mustLimit(t, Spec{Limit: 10, Window: time.Second, Block: time.Second})
	entry := func(tick Tick, cost uint64) uint64 { return uint64(tick)&(1<<45-1)<<19 | (cost - 1) }
	for name, c := range map[string]struct {
		l     *Limit
		s     State
		words []uint64
		ok    bool
	}{
		"nothing":                     {l: counter, ok: true},
		"a block":                     {l: blocks, s: State{Until: 5}, ok: true},
		"a block that ended":          {l: blocks, s: State{Until: -5}},
		"a block for centuries":       {l: blocks, s: State{Until: 1 << 60}},
		"a block of a limit without":  {l: counter, s: State{Until: 5}},
		"words that are not needed":   {l: counter, s: State{A: 1}, words: []uint64{0}},
		"a window that ended":         {l: counter, s: State{A: 1, Time: -Second}},
		"a window far ahead":          {l: counter, s: State{A: 1, Time: Second + 1}},
		"a window ahead":              {l: counter, s: State{A: 1, Time: Second}, ok: true},
		"a fixed window":              {l: fixed, s: State{A: 1, Time: -5}, ok: true},
		"a fixed window that ended":   {l: fixed, s: State{A: 1, Time: -Second}},
		"two fixed windows":           {l: fixed, s: State{A: 1, B: 2, Time: 5}, ok: true},
		"two fixed windows, but one":  {l: fixed, s: State{B: 2, Time: 5}},
		"two fixed windows, no news":  {l: fixed, s: State{A: 2, B: 2, Time: 5}},
		"two fixed windows, both now": {l: fixed, s: State{A: 1, B: 2, Time: -5}},
		"a hit to come":               {l: first, s: State{A: 1, Time: 1}},
		"a hit and a window":          {l: first, s: State{A: 1, B: 1, Time: -1}},
		"a debt":                      {l: bucket, s: State{A: 9, Time: Second}, ok: true},
		"too large a fraction":        {l: bucket, s: State{A: 10, Time: Second}},
		"a debt for ever":             {l: bucket, s: State{Time: 1 << 62}},
		"a debt of 2^80 units":        {l: quick, s: State{Time: 36500*Day - 1}},
		"a negative debt":             {l: bucket, s: State{A: 1, Time: -1}},
		"a debt and something":        {l: bucket, s: State{B: 1, Time: 1}},
		"a level":                     {l: drips, s: State{A: 4, Time: -5}, ok: true},
		"a level from long ago":       {l: drips, s: State{A: 4, Time: -2 * Second}},
		"a level above 2^32":          {l: drips, s: State{A: 4, B: 1, Time: -5}, ok: true},
		"a level above all":           {l: drips, s: State{A: 4, B: 1 << 31, Time: -5}},
		"sub-windows": {l: sub, s: State{A: 3, Time: -5}, words: []uint64{9, 1 << 32, 0, 0, 0, 0, 2},
			ok: true},
		"sub-windows without words": {l: sub, s: State{A: 3, Time: -5}},
		"too few sub-windows":       {l: sub, s: State{A: 3, Time: -5}, words: []uint64{9, 1 << 32, 0, 0, 0, 2}},
		"a count at the head":       {l: sub, s: State{A: 3, Time: -5}, words: []uint64{10, 1 << 32, 0, 0, 0, 0, 2}},
		"one sub-window, long ago":  {l: sub, s: State{B: 3, Time: -Second}, ok: true},
		"one that is no longer":     {l: sub, s: State{B: 3, Time: -Second * 11 / 10}},
		"one with words":            {l: sub, s: State{B: 3, Time: -5}, words: []uint64{9, 1 << 32, 0, 0, 0, 0, 2}},
		"one entry of any cost":     {l: log, s: State{A: MaxLogUnits, B: 1, Time: -5}, ok: true},
		"one entry of too much":     {l: log, s: State{A: MaxLogUnits + 1, B: 1, Time: -5}},
		"one entry of nothing":      {l: log, s: State{B: 1, Time: -5}},
		"a head beyond the ring":    {l: sub, s: State{A: 3, Time: -5}, words: []uint64{11, 1 << 32, 0, 0, 0, 0, 2}},
		"another sum":               {l: sub, s: State{A: 4, Time: -5}, words: []uint64{9, 1 << 32, 0, 0, 0, 0, 2}},
		"a sub-window that ended":   {l: sub, s: State{A: 3, Time: -100_000}, words: []uint64{9, 1 << 32, 0, 0, 0, 0, 2}},
		"a log": {l: log, s: State{A: 3, B: 2, Time: -5},
			words: []uint64{0, entry(-9, 1), entry(-5, 2)}, ok: true},
		"a log without words": {l: log, s: State{A: 3, B: 2, Time: -5}},
		"a log with too many words": {l: log, s: State{A: 3, B: 2, Time: -5},
			words: []uint64{0, entry(-9, 1), entry(-5, 2), 0}},
		"a log that begins elsewhere": {l: log, s: State{A: 3, B: 2, Time: -5},
			words: []uint64{1, entry(-9, 1), entry(-5, 2)}},
		"a log out of order": {l: log, s: State{A: 3, B: 2, Time: -5},
			words: []uint64{0, entry(-4, 1), entry(-5, 2)}},
		"a log with another newest": {l: log, s: State{A: 3, B: 2, Time: -5},
			words: []uint64{0, entry(-9, 1), entry(-6, 2)}},
		"a log with another sum": {l: log, s: State{A: 4, B: 2, Time: -5},
			words: []uint64{0, entry(-9, 1), entry(-5, 2)}},
		"a log with old entries": {l: log, s: State{A: 3, B: 2, Time: -5},
			words: []uint64{0, entry(-2*Second, 1), entry(-5, 2)}},
		"a log to come": {l: log, s: State{A: 2, B: 1, Time: 5}, words: []uint64{0, entry(5, 2)}},
		"a log beyond all limits": {l: log, s: State{A: 3 << 19, B: 3, Time: -5},
			words: []uint64{0, entry(-9, 1<<19), entry(-9, 1<<19), entry(-5, 1<<19)}},
		"a log of nothing":  {l: log, s: State{A: 2, Time: -5}},
		"a log of billions": {l: log, s: State{A: 1 << 31, B: 1 << 31, Time: -5}},
	} {
		err := c.s.CheckExported(c.l, c.words)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A window that a clock behind this one places as far ahead as allowed ends after the
// next window here: the future is one window deep.
func TestFutureIsBounded(t *testing.T) {
	for _, spec := range movable() {
		spec.Limit, spec.Window = 10, 10*time.Second
		if !aligned(&spec) {
			continue
		}
		l := mustLimit(t, spec)
		unit := Span(l.Window())
		switch {
		case spec.Algorithm == SlidingWindow:
			unit /= Tick(l.Spec().SubWindows)
		case spec.Drip == DripInterval:
			unit /= Tick(10 / max(1, spec.DripUnits))
		}
		now := noonTicks + unit*9/10
		k := &replica{l: l}
		k.ask(now, 1, false)
		s, words := k.export(now)
		s.Time = unit
		k = importState(t, l, s, words, now)
		// At the end of the next unit the next again may begin, not be in force.
		if begins := k.s.Time; begins > noonTicks+unit {
			t.Errorf("%v: it begins %v after now", l, (begins - now).Duration())
		}
	}
}

// Counts are exported even if they lie ahead, or nothing followed them.
func TestExplainMovedSubWindows(t *testing.T) {
	l := mustLimit(t, Spec{Algorithm: SlidingWindow, Limit: 50, Window: 10 * time.Second})
	k := &replica{l: l}
	k.ask(noonTicks, 7, false)
	ahead := k.moved(t, noonTicks, noonTicks-1000)
	for name, c := range map[string]struct {
		k      *replica
		now    Tick
		newest Tick
		index  int
	}{
		"ahead": {ahead, noonTicks - 1000, noonTicks, 10},
		"now":   {k, noonTicks, noonTicks, 10},
		"later": {k.copy(), noonTicks + 3*Second, noonTicks + 3*Second, 7},
		"last":  {k.copy(), noonTicks + 11*Second - 1, noonTicks + 10*Second, 0},
	} {
		got := c.k.s.Explain(l, c.k.words, c.now, &LimitDecision{Limit: l, Cost: 1}).Counts
		for i, w := range got {
			want := uint64(0)
			if i == c.index {
				want = 7
			}
			if w.Count != want || w.Start != c.newest-Tick(10-i)*Second {
				t.Errorf("%s: %d is %+v", name, i, w)
			}
		}
	}
}

// A receipt of a later instant than anything that was charged takes nothing
// back.
func TestRefundOfNothing(t *testing.T) {
	l := mustLimit(t, Spec{Algorithm: SlidingWindow, Limit: 50, Window: 10 * time.Second})
	k := &replica{l: l}
	k.ask(noonTicks, 7, false)
	k.s.Refund(l, k.words, noonTicks+3*Second, noonTicks+3*Second, noonTicks+2*Second, 5)
	if got := k.ask(noonTicks+3*Second, 1, true).Remaining; got != 43 {
		t.Errorf("%d remain, want 43", got)
	}
	k.s.Refund(l, k.words, noonTicks+3*Second, noonTicks+3*Second, noonTicks+1, 5)
	if got := k.ask(noonTicks+3*Second, 1, true).Remaining; got != 48 {
		t.Errorf("%d remain, want 48", got)
	}
}

// A bucket of an earlier version may be in debt for up to a century. It is believed, and from then on as much in debt
// as it can be here.
func TestADebtOfAnEarlierVersionIsLowered(t *testing.T) {
	for _, spec := range []Spec{
		{Algorithm: TokenBucket, Limit: 10, Window: time.Second, Burst: 30},
		{Algorithm: TokenBucket, Limit: 10, Window: 48 * time.Hour, Burst: 5},
		{Algorithm: LeakyBucket, Limit: 10, Window: 720 * time.Hour, Burst: 30},
		{Algorithm: LeakyBucket, Drip: DripInterval, Limit: 10, Window: time.Second, Burst: 30},
	} {
		l := mustLimit(t, spec)
		s := State{Time: 50 * 365 * Day}
		if spec.Drip == DripInterval {
			s = State{Time: 1, A: 1 << 31, B: 3} // 3.5 * 2^32 units
		}
		if err := s.CheckExported(l, nil); err != nil {
			t.Errorf("%v: %v", l, err)
		}
		now := Tick(1e15)
		s.Import(l, nil, now)
		one := spec.Window / 10 // for one unit
		most := max(24*time.Hour, spec.Window, time.Duration(spec.Burst)*one)
		for n, want := range map[int64]time.Duration{1: most + one, spec.Burst: most + time.Duration(spec.Burst)*one} {
			if got := (s.RetryAt(l, nil, now, now, uint64(n), new(State), nil) - now).Duration(); got > want || got < want-one {
				t.Errorf("%v: %d units are admitted after %v, want %v", l, n, got, want)
			}
		}
	}
}

// A long log that is shortened is in itself right, uses as much, and gives units back no earlier and little later.
func TestCoarsen(t *testing.T) {
	const most = 64
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		l, err := NewLimit(Spec{Limit: 1_000_000, Window: time.Second, Algorithm: SlidingLog})
		if err != nil {
			t.Fatal(err)
		}
		k := replica{l: l}
		now := 1_800_000_000 * Second
		for range 1 + rng.IntN(4*most) {
			n := 1 + rng.Uint64N(9)
			if seed%8 > 0 && rng.IntN(20) == 0 {
				n = 200_000
			}
			k.ask(now, n, false)
			if seed%8 > 0 {
				now += Tick(rng.Int64N(int64(Second) / most))
			} else { // all become one
				now += 1 + Tick(rng.Int64N(int64(Second)/most/most/8))
			}
		}
		k.s.Roll(l, k.words, now)
		held := make([]uint64, k.s.Held(l))
		k.s.Move(l, held, k.words)
		whole, short := replica{l: l, s: k.s, words: held}, replica{l: l, s: k.s, words: slices.Clone(held)}
		short.s.Export(l, short.words, now)
		long := len(held) > 1+most
		if short.words = Coarsen(&short.s, l, short.words, most); len(short.words) > 1+most ||
			!long && len(short.words) != len(held) {
			t.Fatalf("%d words of %d", len(short.words), len(held))
		}
		if err := short.s.CheckExported(l, short.words); err != nil {
			t.Fatal(err)
		}
		short.s.Import(l, short.words, now)
		for ; now < now+Second && whole.ask(now, 0, true).Remaining < l.Limit(); now += Second / 500 {
			exact, early := whole.ask(now, 0, true).Remaining, short.copy().ask(now, 0, true).Remaining
			later := short.copy().ask(now+2*Second/most, 0, true).Remaining
			if early > exact || later < exact {
				t.Fatalf("seed %d: %d remain, %d of the short one, %d a little later", seed, exact, early, later)
			}
		}
	}
}
