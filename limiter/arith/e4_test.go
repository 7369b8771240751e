package arith_test

import (
	"testing"
	"time"

	. "github.com/weirlimit/weir/limiter"
	. "github.com/weirlimit/weir/limiter/arith"
)

// E4: the worked examples, straight against the arithmetic.
func TestWorkedExamples(t *testing.T) {
	base := TickOf(time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC))
	at := []Tick{5, 15, 61, 70, 100, 110, 140}
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Algorithm: FixedWindow}, "AAAAARA"},
		{Spec{Algorithm: SlidingLog}, "AAAAARA"},
		{Spec{Algorithm: SlidingLog, CountRejected: CountAll}, "AAAAARA"},
		{Spec{Algorithm: SlidingWindow, SubWindows: 4, Coverage: CoverageLenient}, "AAAAARA"},
		{Spec{Algorithm: SlidingWindow, SubWindows: 4}, "AAARAAA"},
		{Spec{Algorithm: SlidingWindow, SubWindows: 4, CountRejected: CountAll}, "AAARARA"},
		{Spec{Rounding: RoundFloor, CountRejected: CountAll}, "AAAAARA"},
		{Spec{Rounding: RoundCeil, CountRejected: CountAll}, "AAARRRR"},
		{Spec{Rounding: RoundCeil}, "AAARARA"},
		{Spec{Rounding: RoundNearest}, "AAARAAA"},
		{Spec{}, "AAARARA"},
		{Spec{Algorithm: LeakyBucket, Burst: 3, Drip: DripInterval}, "AAAAAAA"},
		{Spec{Algorithm: TokenBucket, Burst: 1}, "ARARARA"},
		{Spec{Algorithm: GCRA, Burst: 1}, "ARARARA"},
		{Spec{Algorithm: LeakyBucket, Burst: 1}, "ARARARA"},
		{Spec{Algorithm: LeakyBucket, Burst: 1, Drip: DripInterval}, "ARARARA"},
		{Spec{Algorithm: FixedWindow, Align: AlignFirstHit}, "AAAAAAA"},
	} {
		c.spec.Limit, c.spec.Window = 3, time.Minute
		l, err := NewLimit(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		counter, got := NewCounter(l), ""
		for _, s := range at {
			var d Decision
			counter.Check(base+s*Second, 1, &d)
			if d.Allowed {
				got += "A"
			} else {
				got += "R"
			}
		}
		if got != c.want {
			t.Errorf("%v: decided %s, want %s", l, got, c.want)
		}
	}
}
