package limiter_test

import (
	"testing"
	"time"

	. "github.com/weirlimit/weir/limiter"
)

func mustLimit(t *testing.T, s Spec) *Limit {
	t.Helper()
	l, err := NewLimit(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func noon(s Tick) Tick {
	return TickOf(time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)) + s*Second
}

// A counter that has recovered equals none, also where the limit that takes its
// place would still count what is left of it.
func TestAdoptNothingOfARecoveredCounter(t *testing.T) {
	floor := mustLimit(t, Spec{Limit: 10, Window: time.Minute, Rounding: RoundFloor})
	exact := mustLimit(t, Spec{Limit: 10, Window: time.Minute})
	c := NewCounter(floor)
	var d Decision
	c.Check(noon(0), 3, &d)
	c.Peek(noon(101), 1, &d) // 3 * 19/60 is less than one
	if got := d.Limit(0); got.Remaining != 10 || got.ResetAfter != 0 {
		t.Fatalf("premise: %+v", got)
	}
	c.SetLimits(exact)
	c.Peek(noon(101), 1, &d)
	if got := d.Limit(0); got.Remaining != 10 || got.ResetAfter != 0 {
		t.Errorf("after the change %d are left and the reset is after %v, want 10 and nothing", got.Remaining, got.ResetAfter.Duration())
	}
}

// A window that began with its first hit is no window of the sliding counter's:
// what it holds moves to the counter's own.
func TestAdoptFirstHitWindow(t *testing.T) {
	c := NewCounter(mustLimit(t, Spec{Limit: 5, Window: time.Minute, Algorithm: FixedWindow, Align: AlignFirstHit}))
	var d Decision
	c.Check(noon(50), 4, &d)
	c.SetLimits(mustLimit(t, Spec{Limit: 5, Window: time.Minute}))
	c.Peek(noon(55), 1, &d)
	if got := d.Limit(0).Remaining; got != 1 {
		t.Errorf("%d are left after the change, want 1", got)
	}
	c.Peek(noon(90), 1, &d) // half of the 4 counts on
	if got := d.Limit(0).Remaining; got != 3 {
		t.Errorf("%d are left in the next window, want 3", got)
	}
}

// More drips than a count can hold empty any level.
func TestDripsBeyondCounting(t *testing.T) {
	c := NewCounter(mustLimit(t, Spec{Limit: MaxUnits, Window: time.Millisecond, Algorithm: LeakyBucket, Drip: DripInterval}))
	var d Decision
	c.Check(noon(0), MaxUnits, &d)
	if !d.Allowed || d.Limit(0).Remaining != 0 {
		t.Fatalf("premise: %+v", d.Limit(0))
	}
	c.Peek(noon(0)+(1<<32+2)*Millisecond, 1, &d) // (2^32+2) * (2^32-1) drips exceed 2^64
	if got := d.Limit(0).Remaining; got != MaxUnits {
		t.Errorf("%d are left, want all %d", got, int64(MaxUnits))
	}
}
