package limitertest

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// The tests in this file hold the oracle itself against numbers computed by
// hand, so that it may then judge others.

const (
	ms  = limiter.Millisecond
	sec = limiter.Second
)

// noon is 12:00 on a Monday.
var noon = limiter.TickOf(time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC))

func thousandths(n int) *int { return &n }

// e4 are the worked examples: 3 per 60 s, seven requests.
var e4 = []struct {
	name string
	spec limiter.Spec
	want string
}{
	{"fixed_window", limiter.Spec{Algorithm: limiter.FixedWindow}, "AAAAARA"},
	{"sliding_log", limiter.Spec{Algorithm: limiter.SlidingLog}, "AAAAARA"},
	{"sliding_log all", limiter.Spec{Algorithm: limiter.SlidingLog, CountRejected: limiter.CountAll}, "AAAAARA"},
	{"sliding_window lenient", limiter.Spec{Algorithm: limiter.SlidingWindow, SubWindows: 4,
		Coverage: limiter.CoverageLenient}, "AAAAARA"},
	{"sliding_window strict", limiter.Spec{Algorithm: limiter.SlidingWindow, SubWindows: 4}, "AAARAAA"},
	{"sliding_window strict all", limiter.Spec{Algorithm: limiter.SlidingWindow, SubWindows: 4,
		CountRejected: limiter.CountAll}, "AAARARA"},
	{"sliding_counter floor all", limiter.Spec{Rounding: limiter.RoundFloor, CountRejected: limiter.CountAll}, "AAAAARA"},
	{"sliding_counter ceil all", limiter.Spec{Rounding: limiter.RoundCeil, CountRejected: limiter.CountAll}, "AAARRRR"},
	{"sliding_counter ceil", limiter.Spec{Rounding: limiter.RoundCeil}, "AAARARA"},
	{"sliding_counter nearest", limiter.Spec{Rounding: limiter.RoundNearest}, "AAARAAA"},
	{"sliding_counter exact", limiter.Spec{}, "AAARARA"},
	{"leaky_bucket interval", limiter.Spec{Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval}, "AAAAAAA"},
	{"token_bucket burst 1", limiter.Spec{Algorithm: limiter.TokenBucket, Burst: 1}, "ARARARA"},
	{"gcra burst 1", limiter.Spec{Algorithm: limiter.GCRA, Burst: 1}, "ARARARA"},
	{"leaky_bucket burst 1", limiter.Spec{Algorithm: limiter.LeakyBucket, Burst: 1}, "ARARARA"},
	{"leaky_bucket interval burst 1", limiter.Spec{Algorithm: limiter.LeakyBucket, Burst: 1, Drip: limiter.DripInterval},
		"ARARARA"},
	{"fixed_window first_hit", limiter.Spec{Algorithm: limiter.FixedWindow, Align: limiter.AlignFirstHit}, "AAAAAAA"},
}

func e4Times() []Tick {
	return []Tick{noon + 5*sec, noon + 15*sec, noon + 61*sec, noon + 70*sec, noon + 100*sec, noon + 110*sec,
		noon + 140*sec}
}

// E4: every row of the worked examples, against the oracle.
func TestOracleWorkedExamples(t *testing.T) {
	for _, row := range e4 {
		t.Run(strings.ReplaceAll(row.name, " ", "_"), func(t *testing.T) {
			s := row.spec
			s.Limit, s.Window = 3, time.Minute
			o := NewOracle(s)
			got := ""
			for _, now := range e4Times() {
				got += letter(o.Check(now, 1, false).Allowed)
			}
			if got != row.want {
				t.Errorf("decisions %s, want %s", got, row.want)
			}
		})
	}
}

func letter(allowed bool) string {
	if allowed {
		return "A"
	}
	return "R"
}

// E4: the levels of the dripping bucket: 1, 2, 1, 2, 1, 2, 1.
func TestOracleDripLevels(t *testing.T) {
	o := NewOracle(limiter.Spec{Algorithm: limiter.LeakyBucket, Limit: 3, Window: time.Minute, Drip: limiter.DripInterval})
	want := []uint64{1, 2, 1, 2, 1, 2, 1}
	for i, now := range e4Times() {
		if level := 3 - o.Check(now, 1, false).Limits[0].Remaining; level != want[i] {
			t.Errorf("request %d: level %d, want %d", i+1, level, want[i])
		}
	}
}

// C5: 2 per minute; at :50 allowed, at :05 of the next minute allowed, again at
// :05 denied, except by the fixed window.
func TestOracleEdgeOfTheMinute(t *testing.T) {
	for _, row := range []struct {
		a    limiter.Algorithm
		want string
	}{{limiter.SlidingLog, "AAR"}, {limiter.SlidingWindow, "AAR"}, {limiter.SlidingCounter, "AAR"},
		{limiter.FixedWindow, "AAA"}} {
		o := NewOracle(limiter.Spec{Algorithm: row.a, Limit: 2, Window: time.Minute})
		got := ""
		for _, at := range []Tick{50 * sec, 65 * sec, 65 * sec} {
			got += letter(o.Check(noon+at, 1, false).Allowed)
		}
		if got != row.want {
			t.Errorf("%v: %s, want %s", row.a, got, row.want)
		}
	}
}

// C6: after a full 100/100 minute, one second into the next: exact and ceil
// admit 1, floor and nearest 2.
func TestOracleOneSecondIntoTheNextMinute(t *testing.T) {
	for r, want := range map[limiter.Rounding]uint64{
		limiter.RoundExact: 1, limiter.RoundCeil: 1, limiter.RoundFloor: 2, limiter.RoundNearest: 2,
	} {
		o := NewOracle(limiter.Spec{Limit: 100, Window: time.Minute, Rounding: r})
		if !o.Check(noon+30*sec, 100, false).Allowed {
			t.Fatalf("%v: the first hundred were denied", r)
		}
		if got := o.Check(noon+61*sec, 1, true).Limits[0].Remaining; got != want {
			t.Errorf("%v: %d are left, want %d", r, got, want)
		}
	}
}

// D6: the examples with windows of one second.
func TestOracleSecondExamples(t *testing.T) {
	one := func(a limiter.Algorithm, r limiter.Rounding) *Oracle {
		return NewOracle(limiter.Spec{Algorithm: a, Limit: 100, Window: time.Second, Rounding: r})
	}
	used := func(d OracleDecision) uint64 { return 100 - d.Limits[0].Remaining }

	fixed := one(limiter.FixedWindow, 0)
	for i, at := range []Tick{0, 300 * ms, 600 * ms, 1100 * ms} {
		if got, want := used(fixed.Check(noon+at, 1, false)), []uint64{1, 2, 3, 1}[i]; got != want {
			t.Errorf("fixed window at %v counts %d, want %d", at.Duration(), got, want)
		}
	}
	log := one(limiter.SlidingLog, 0)
	for _, at := range []Tick{0, 300 * ms, 600 * ms} {
		log.Check(noon+at, 1, false)
	}
	if got := used(log.Check(noon+900*ms, 0, false)); got != 3 {
		t.Errorf("a peek at 900 ms counts %d, want 3", got)
	}
	if got := used(log.Check(noon+1500*ms, 1, false)); got != 2 {
		t.Errorf("a request at 1500 ms counts %d, want 2", got)
	}
	for _, elapsed := range []Tick{0, 99 * ms, 100 * ms, 101 * ms, 500 * ms, 900*ms + 1} {
		counter := one(limiter.SlidingCounter, limiter.RoundNearest)
		counter.Check(noon, 5, false)
		got := used(counter.Check(noon+sec+elapsed, 1, false))
		// round(5·(1-elapsed)) + 1, half up, in ticks
		want := uint64((5*(sec-elapsed)+sec/2)/sec) + 1
		if got != want {
			t.Errorf("sliding counter %v into the next window counts %d, want %d", elapsed.Duration(), got, want)
		}
	}
}

// B4: 250 requests/s for 90 s from the hour on: 10/second and 120/minute and
// 240/hour admit 240 between them; incrementing everything first admits 10.
func TestOracleCountingIsRight(t *testing.T) {
	for count, want := range map[limiter.CountRejected]int{limiter.CountNone: 240, limiter.CountAll: 10} {
		var specs []limiter.Spec
		for _, l := range []limiter.Spec{{Limit: 10, Window: time.Second}, {Limit: 120, Window: time.Minute},
			{Limit: 240, Window: time.Hour}} {
			l.Algorithm, l.CountRejected = limiter.FixedWindow, count
			specs = append(specs, l)
		}
		o, admitted := NewOracle(specs...), 0
		for i := range Tick(90 * 250) {
			if o.Check(noon+4*ms*i, 1, false).Allowed {
				admitted++
			}
		}
		if admitted != want {
			t.Errorf("count_rejected %v admits %d, want %d", count, admitted, want)
		}
	}
}

// The instants that the oracle promises, against ones worked out by hand.
func TestOracleInstants(t *testing.T) {
	type ask struct {
		at        Tick
		cost      uint64
		allowed   bool
		remaining uint64
		retry     Tick
		reset     Tick
	}
	for _, row := range []struct {
		name string
		spec limiter.Spec
		asks []ask
	}{
		{"fixed window", limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 3, Window: time.Minute}, []ask{
			{5 * sec, 3, true, 0, 0, 55 * sec}, {6 * sec, 1, false, 0, 54 * sec, 54 * sec}, {60 * sec, 1, true, 2, 0, 60 * sec},
		}},
		{"first hit", limiter.Spec{Algorithm: limiter.FixedWindow, Align: limiter.AlignFirstHit, Limit: 3,
			Window: time.Minute}, []ask{
			{5 * sec, 3, true, 0, 0, 60 * sec}, {64 * sec, 1, false, 0, sec, sec}, {65 * sec, 1, true, 2, 0, 60 * sec},
		}},
		{"log", limiter.Spec{Algorithm: limiter.SlidingLog, Limit: 3, Window: time.Minute}, []ask{
			{0, 1, true, 2, 0, 60 * sec}, {10 * sec, 2, true, 0, 0, 60 * sec}, {20 * sec, 1, false, 0, 40 * sec, 50 * sec},
			{20 * sec, 2, false, 0, 50 * sec, 50 * sec}, {60 * sec, 1, true, 0, 0, 60 * sec},
		}},
		{"sub-windows, strict", limiter.Spec{Algorithm: limiter.SlidingWindow, SubWindows: 4, Limit: 3, Window: time.Minute},
			[]ask{
				{5 * sec, 3, true, 0, 0, 70 * sec}, {6 * sec, 1, false, 0, 69 * sec, 69 * sec},
			}},
		{"sub-windows, lenient", limiter.Spec{Algorithm: limiter.SlidingWindow, SubWindows: 4,
			Coverage: limiter.CoverageLenient, Limit: 3, Window: time.Minute}, []ask{
			{5 * sec, 3, true, 0, 0, 55 * sec}, {6 * sec, 1, false, 0, 54 * sec, 54 * sec},
		}},
		// 2·(60-e)/60 + 0 + 1 <= 2 from e = 30 s on; floor lets it fall below 2 one tick after the edge.
		{"counter, exact", limiter.Spec{Limit: 2, Window: time.Minute}, []ask{
			{0, 2, true, 0, 0, 120 * sec}, {sec, 1, false, 0, 89 * sec, 119 * sec},
		}},
		{"counter, floor", limiter.Spec{Limit: 2, Window: time.Minute, Rounding: limiter.RoundFloor}, []ask{
			{0, 2, true, 0, 0, 90*sec + 1}, {sec, 1, false, 0, 59*sec + 1, 89*sec + 1},
		}},
		// half of the previous two counts, at the edge already
		{"counter, weight 0.5", limiter.Spec{Limit: 2, Window: time.Minute, Weight: thousandths(500)}, []ask{
			{0, 2, true, 0, 0, 120 * sec}, {sec, 1, false, 0, 59 * sec, 119 * sec},
		}},
		// one unit per 1000000/3 µs: two units after 666,667 ticks, rounded up, when a
		// third of a tick is over: a full bucket is 1 s - 1/3 µs away, rounded up again
		{"tokens", limiter.Spec{Algorithm: limiter.TokenBucket, Limit: 3, Window: time.Second}, []ask{
			{0, 3, true, 0, 0, sec}, {0, 2, false, 0, 666_667, sec}, {666_666, 2, false, 1, 1, 333_334},
			{666_667, 2, true, 0, 0, sec},
		}},
		{"gcra", limiter.Spec{Algorithm: limiter.GCRA, Limit: 3, Window: time.Second}, []ask{
			{0, 3, true, 0, 0, sec}, {0, 2, false, 0, 666_667, sec}, {666_666, 2, false, 1, 1, 333_334},
			{666_667, 2, true, 0, 0, sec},
		}},
		// noon is not a multiple of 1/3 s, but it is one of a second: drips at 333,334 and 666,667 (rounded up) and 1,000,000
		{"drips", limiter.Spec{Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval, Limit: 3, Window: time.Second},
			[]ask{
				{1, 3, true, 0, 0, sec - 1}, {1, 1, false, 0, 333_333, sec - 1}, {1, 2, false, 0, 666_666, sec - 1},
				{333_334, 1, true, 0, 0, sec},
			}},
		{"block", limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 1, Window: time.Second, Block: 10 * time.Second}, []ask{
			{0, 1, true, 0, 0, sec}, {sec / 2, 1, false, 0, 10 * sec, 10 * sec},
			{2 * sec, 1, false, 0, 8*sec + sec/2, 8*sec + sec/2}, {10*sec + sec/2, 1, true, 0, 0, sec / 2},
		}},
		// the rejected two take the bucket to -2 tokens
		{"debt", limiter.Spec{Algorithm: limiter.TokenBucket, Limit: 2, Window: time.Second, CountRejected: limiter.CountAll},
			[]ask{
				{0, 2, true, 0, 0, sec}, {0, 2, false, 0, 2 * sec, 2 * sec}, {2 * sec, 2, true, 0, 0, sec},
			}},
	} {
		o := NewOracle(row.spec)
		for i, a := range row.asks {
			d := o.Check(noon+a.at, a.cost, false)
			l := d.Limits[0]
			got := ask{a.at, a.cost, d.Allowed, l.Remaining, d.RetryAfter, l.ResetAfter}
			if got != a {
				t.Errorf("%s, ask %d: got %+v, want %+v", row.name, i+1, got, a)
			}
		}
	}
}

// A5, A9: a denial by one window charges none; with room it charges those that
// would have admitted, with all every one.
func TestOracleAllOrNothing(t *testing.T) {
	for count, want := range map[limiter.CountRejected][2]uint64{
		limiter.CountNone: {0, 3}, limiter.CountRoom: {0, 2}, limiter.CountAll: {0, 2},
	} {
		o := NewOracle(
			limiter.Spec{Algorithm: limiter.SlidingLog, Limit: 2, Window: time.Second, CountRejected: count},
			limiter.Spec{Algorithm: limiter.SlidingLog, Limit: 5, Window: time.Minute, CountRejected: count},
		)
		o.Check(noon, 2, false)
		d := o.Check(noon+1, 1, false)
		if d.Allowed || d.Limits[0].Allowed || !d.Limits[1].Allowed || d.BlockedBy != 0 {
			t.Errorf("%v: got %+v, want a denial by the second alone", count, d)
		}
		if got := [2]uint64{d.Limits[0].Remaining, d.Limits[1].Remaining}; got != want {
			t.Errorf("%v: remaining %v, want %v", count, got, want)
		}
	}
}

// A limit that had room is charged under room, and may itself admit the next
// one only later than the limit that denied.
func TestOracleRetryCountsTheChargeThatRoomMade(t *testing.T) {
	o := NewOracle(
		limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 1, Window: time.Second},
		limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 2, Window: time.Minute, CountRejected: limiter.CountRoom},
	)
	o.Check(noon, 1, false)
	d := o.Check(noon, 1, false)
	if d.Allowed || !d.Limits[1].Allowed || d.RetryAfter != limiter.Minute {
		t.Errorf("got %+v, want a denial by the first limit, to be tried again in a minute", d)
	}
	if o.Check(noon+limiter.Minute-1, 1, true).Allowed || !o.Check(noon+limiter.Minute, 1, true).Allowed {
		t.Error("the promised instant is not exact")
	}
}

// A cost above the capacity is never admitted, charges nothing and blocks
// nothing.
func TestOracleNever(t *testing.T) {
	o := NewOracle(
		limiter.Spec{Algorithm: limiter.TokenBucket, Limit: 9, Burst: 3, Window: time.Second, CountRejected: limiter.CountAll,
			Block: time.Hour},
		limiter.Spec{Limit: 9, Window: time.Second, CountRejected: limiter.CountAll},
	)
	d := o.Check(noon, 4, false)
	if d.Allowed || !d.Never || d.RetryAfter != 0 || d.Limits[1].Never || d.Limits[0].Remaining != 3 ||
		d.Limits[1].Remaining != 9 || d.Limits[0].Blocked {
		t.Errorf("got %+v, want never, and nothing charged", d)
	}
}

// Refunds by hand: exact in windows, at most what had not leaked at the last charge in buckets.
func TestOracleRefund(t *testing.T) {
	for _, row := range []struct {
		name string
		spec limiter.Spec
		want uint64 // remaining of 10 per 10 s after 6 at 0, 2 at 3 s, refund of the 6 at 5 s
	}{
		{"fixed", limiter.Spec{Algorithm: limiter.FixedWindow}, 8},
		{"log", limiter.Spec{Algorithm: limiter.SlidingLog}, 8},
		{"sub-windows", limiter.Spec{Algorithm: limiter.SlidingWindow}, 8},
		{"counter", limiter.Spec{}, 8},
		// level 6, 3+2 = 5 at 3 s, 3 at 5 s; back are min(3, 6-3) = 3, of drips max(0, 6-5) = 1
		{"tokens", limiter.Spec{Algorithm: limiter.TokenBucket}, 10},
		{"leaky", limiter.Spec{Algorithm: limiter.LeakyBucket}, 10},
		{"drips", limiter.Spec{Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval}, 8},
		{"gcra", limiter.Spec{Algorithm: limiter.GCRA}, 10},
	} {
		row.spec.Limit, row.spec.Window = 10, 10*time.Second
		o := NewOracle(row.spec)
		o.Check(noon, 6, false)
		o.Check(noon+3*sec, 2, false)
		o.Refund(noon+5*sec, noon, 6)
		if got := o.Check(noon+5*sec, 0, false).Limits[0].Remaining; got != row.want {
			t.Errorf("%s: %d left, want %d", row.name, got, row.want)
		}
		o.Refund(noon+60*sec, noon+3*sec, 2)
		if got := o.Check(noon+60*sec, 0, false).Limits[0].Remaining; got != 10 {
			t.Errorf("%s: a refund long after left %d, want 10", row.name, got)
		}
	}
}

// Rejected costs are counted up to a bound. A count that stands there may be
// more, and is not refunded; a bucket's debt has a much higher bound.
func TestOracleSaturates(t *testing.T) {
	const most = limiter.NarrowUnits - 1
	for a, want := range map[limiter.Algorithm]uint64{
		limiter.FixedWindow: 0, limiter.SlidingWindow: 0, limiter.SlidingCounter: 0,
		limiter.TokenBucket: most, limiter.LeakyBucket: most, limiter.GCRA: most,
	} {
		o := NewOracle(limiter.Spec{Algorithm: a, Limit: most, Window: time.Second, CountRejected: limiter.CountAll})
		for range 3 {
			o.Check(noon, most, false)
		}
		for range 3 {
			o.Refund(noon, noon, most)
		}
		if got := o.Check(noon, 0, false).Limits[0].Remaining; got != want {
			t.Errorf("%v: %d left after a refund of the most that is counted, want %d", a, got, want)
		}
	}
	o := NewOracle(limiter.Spec{Algorithm: limiter.SlidingLog, Limit: 3, Window: time.Minute,
		CountRejected: limiter.CountAll})
	for i := range Tick(5) {
		o.Check(noon+i*sec, 1, false)
	}
	if d := o.Check(noon+4*sec, 1, true); d.RetryAfter != 58*sec {
		t.Errorf("retry after %v, want 58s: the newest three units decide", d.RetryAfter.Duration())
	}
	o.Refund(noon+4*sec, noon+4*sec, 1)
	if d := o.Check(noon+4*sec, 1, true); d.RetryAfter != 57*sec {
		t.Errorf("retry after %v, want 57s: the one before is known", d.RetryAfter.Duration())
	}
	for i := range Tick(5) {
		o.Check(noon+(5+i)*sec, 1, false)
	}
	o.Refund(noon+9*sec, noon+9*sec, 1)
	if d := o.Check(noon+9*sec, 1, true); d.RetryAfter != 58*sec {
		t.Errorf("retry after %v, want 58s: of twice the limit nothing comes back", d.RetryAfter.Duration())
	}
}

// E3: weeks begin on Monday, days at midnight, 15 minutes on the quarter.
func TestOracleAlignment(t *testing.T) {
	for window, want := range map[time.Duration]Tick{
		7 * 24 * time.Hour:  7*limiter.Day - 12*limiter.Hour,
		14 * 24 * time.Hour: 14*limiter.Day - 12*limiter.Hour,
		24 * time.Hour:      12 * limiter.Hour,
		15 * time.Minute:    15 * limiter.Minute,
	} {
		o := NewOracle(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 1, Window: window})
		got := o.Check(noon, 1, false).Limits[0].ResetAfter
		if window > 7*24*time.Hour { // even and odd fortnights
			if other := want - 7*limiter.Day; got == other {
				want = other
			}
		}
		if got != want {
			t.Errorf("window %v ends in %v, want %v", window, got.Duration(), want.Duration())
		}
	}
	if windowIndex(0, limiter.Week) != -1 || windowIndex(4*limiter.Day-1, limiter.Week) != -1 ||
		windowIndex(4*limiter.Day, limiter.Week) != 0 {
		t.Error("the week of the epoch does not begin before it")
	}
}
