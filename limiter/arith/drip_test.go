package arith_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/weirlimit/weir/limiter"
	. "github.com/weirlimit/weir/limiter/arith"
)

// A leaky bucket leaks the units of a drip at once, at the multiples of its part of the
// window.
func TestSeveralUnitsLeakAtOnce(t *testing.T) {
	spec := Spec{Algorithm: LeakyBucket, Limit: 30, Window: time.Minute, Burst: 20, Drip: DripInterval, DripUnits: 5}
	l := mustLimit(t, spec)
	if got := l.String(); got != "leaky_bucket 30/minute, burst 20, drip 5 every 10s" {
		t.Error(got)
	}
	if got := l.Spec(); got.DripUnits != 5 || got.Burst != 20 {
		t.Errorf("%+v", got)
	}
	k := &replica{l: l}
	at := noonTicks + 3*Second
	k.ask(at, 20, false)
	for _, c := range []struct {
		at   Tick
		left uint64
	}{{9 * Second, 0}, {10*Second - 1, 0}, {10 * Second, 5}, {20*Second - 1, 5}, {20 * Second, 10}, {30 * Second, 15},
		{40*Second - 1, 15}, {40 * Second, 20}} {
		if got := k.copy().ask(noonTicks+c.at, 1, true); got.Remaining != c.left {
			t.Errorf("%v after noon %d units are left, want %d", c.at.Duration(), got.Remaining, c.left)
		}
	}
	// The wait is to the drip that makes enough room.
	for n, want := range map[uint64]Tick{1: 7, 5: 7, 6: 17, 20: 37} {
		if got := k.copy().ask(at, n, true); got.RetryAfter != (want * Second).Duration() {
			t.Errorf("%d units after %v, want %v s", n, got.RetryAfter, int64(want))
		}
	}
	// One unit is the amount of drip: interval.
	one := spec
	one.DripUnits = 1
	plain := spec
	plain.DripUnits = 0
	if !mustLimit(t, one).Equal(mustLimit(t, plain)) || ParamsID(mustLimit(t, one)) != ParamsID(mustLimit(t, plain)) ||
		mustLimit(t, one).Equal(l) {
		t.Error("an amount of 1 is another limit than none, or the same as 5")
	}
}

// Amounts that do not fit are problems.
func TestAmountsOfDripsThatDoNotFit(t *testing.T) {
	for want, s := range map[string]Spec{
		"an amount of -1 is out of range":                 {DripUnits: -1, Drip: DripInterval},
		"an amount of 9007199254740992 is out of range":   {DripUnits: MaxUnits + 1, Drip: DripInterval},
		"an amount needs drip by interval":                {DripUnits: 5},
		"limit 30 is not divisible by an amount of 7":     {DripUnits: 7, Drip: DripInterval},
		"limit 30 is not divisible by an amount of 60: g": {DripUnits: 60, Drip: DripInterval},
	} {
		s.Algorithm, s.Limit, s.Window = LeakyBucket, 30, time.Minute
		if p := s.Problems(); len(p) != 1 || p[0].Field != "drip" || !strings.Contains(p[0].Text, want) {
			t.Errorf("want %q: %+v", want, p)
		}
	}
	// Other algorithms ignore it.
	mustLimit(t, Spec{Algorithm: TokenBucket, Limit: 30, Window: time.Minute, DripUnits: 7})
}

// A share of a limit with drips is one: its units are a multiple of those of its drips, and
// no more than the share.
func TestShareOfALimitWithDrips(t *testing.T) {
	l := mustLimit(t, Spec{Algorithm: LeakyBucket, Limit: 30, Window: time.Minute, Burst: 20, Drip: DripInterval,
		DripUnits: 5})
	for _, c := range []struct {
		num, den uint64
		want     string
	}{
		{1, 2, "leaky_bucket 14/minute, burst 10, drip 2 every 8.571429s"},
		{1, 3, "leaky_bucket 10/minute, burst 6, drip interval"},
		{1, 100, "leaky_bucket 1/minute, drip interval"},
		{2, 1, "leaky_bucket 60/minute, burst 40, drip 10 every 10s"},
		{3, 5, "leaky_bucket 18/minute, burst 12, drip 3 every 10s"},
	} {
		s := Scaled(l, c.num, c.den)
		if got := s.String(); got != c.want {
			t.Errorf("%d/%d: %s, want %s", c.num, c.den, got, c.want)
		}
		if again, err := NewLimit(s.Spec()); err != nil || !again.Equal(s) {
			t.Errorf("%d/%d: %v", c.num, c.den, err)
		}
	}
}
