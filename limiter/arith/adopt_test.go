package arith_test

import (
	"testing"
	"time"

	. "github.com/weirlimit/weir/limiter"
	. "github.com/weirlimit/weir/limiter/arith"
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
		t.Errorf("after the change %d are left and the reset is after %v, want 10 and nothing", got.Remaining, got.ResetAfter)
	}
}

// A window that began with its first hit is not a window of the sliding counter: its
// count moves to the counter's own window.
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
	c := NewCounter(mustLimit(t, Spec{Limit: MaxUnits, Window: time.Millisecond, Algorithm: LeakyBucket,
		Drip: DripInterval}))
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

// Windows of one length that begin elsewhere are not the same windows.
func TestAdoptOtherAlignment(t *testing.T) {
	c := NewCounter(mustLimit(t, Spec{Limit: 5, Window: time.Minute, Algorithm: FixedWindow}))
	var d Decision
	c.Check(noon(50), 4, &d)
	c.SetLimits(mustLimit(t, Spec{Limit: 5, Window: time.Minute, Algorithm: FixedWindow, Align: AlignFirstHit}))
	c.Peek(noon(55), 1, &d)
	if got := d.Limit(0); got.Remaining != 1 || Span(got.ResetAfter) != Minute {
		t.Errorf("%d left, reset after %v; want 1, and a minute from the change on", got.Remaining, got.ResetAfter)
	}
}

// A receipt takes back only what it states was charged.
func TestReceipts(t *testing.T) {
	room := Spec{Name: "x", Limit: 100, Window: time.Hour, Algorithm: FixedWindow, CountRejected: CountRoom}
	x, y := mustLimit(t, room), mustLimit(t, Spec{Name: "y", Limit: 1, Window: time.Hour, Algorithm: FixedWindow})
	left := func(c *Counter, at Tick) (n []uint64) {
		var d Decision
		c.Peek(at, 1, &d)
		for i := range d.Len() {
			n = append(n, d.Limit(i).Remaining)
		}
		return n
	}
	var d Decision
	t.Run("of a denial", func(t *testing.T) {
		c := NewCounter(x, y)
		c.Check(noon(0), 1, &d)
		c.Check(noon(1), 1, &d)
		if d.Allowed || left(c, noon(1))[0] != 98 {
			t.Fatalf("premise: %+v", d)
		}
		c.Refund(noon(2), d.Receipt, 1)
		if got := left(c, noon(2)); got[0] != 99 || got[1] != 0 {
			t.Errorf("left %v, want 99 and 0: only x was charged", got)
		}
	})
	t.Run("from before a limit was added", func(t *testing.T) {
		c := NewCounter(x)
		c.Check(noon(0), 1, &d)
		old := d.Receipt
		c.SetLimits(x, y)
		c.Check(noon(1), 1, &d)
		c.Refund(noon(2), old, 1)
		if got := left(c, noon(2)); got[1] != 0 {
			t.Errorf("left %v: y was never charged by that receipt", got)
		}
	})
	t.Run("from before a reset", func(t *testing.T) {
		c := NewCounter(y)
		c.Check(noon(0), 1, &d)
		old := d.Receipt
		c.Reset()
		c.Check(noon(1), 1, &d)
		c.Refund(noon(2), old, 1)
		if got := left(c, noon(2)); got[0] != 0 {
			t.Errorf("left %v: that charge was forgotten", got)
		}
	})
	t.Run("from before the limit was another one", func(t *testing.T) {
		five := mustLimit(t, Spec{Name: "y", Limit: 5, Window: time.Hour, Algorithm: FixedWindow})
		more := mustLimit(t, Spec{Name: "y", Limit: 8, Window: time.Hour, Algorithm: FixedWindow})
		short := mustLimit(t, Spec{Name: "y", Limit: 5, Window: time.Second, Algorithm: FixedWindow})
		for _, row := range []struct {
			between *Limit
			left    uint64
		}{{more, 3}, {short, 4}} {
			c := NewCounter(five)
			c.Check(noon(0), 1, &d)
			old := d.Receipt
			c.SetLimits(row.between)
			c.Check(noon(1), 1, &d)
			c.SetLimits(five)
			c.Check(noon(2), 1, &d) // short has forgotten both by then, and more has not
			c.Refund(noon(2), old, 1)
			if got := left(c, noon(2)); got[0] != row.left {
				t.Errorf("after a limit of %d in %v left %v, want %d", row.between.Limit(), row.between.Window(), got, row.left)
			}
		}
	})
	t.Run("of another cost", func(t *testing.T) {
		c := NewCounter(mustLimit(t, Spec{Limit: 5, Window: time.Hour, Algorithm: FixedWindow}))
		c.Check(noon(0), 3, &d)
		c.Check(noon(0), 1, &d)
		c.Refund(noon(1), d.Receipt, 3)
		if got := left(c, noon(1)); got[0] != 1 {
			t.Errorf("left %v, want 1", got)
		}
	})
}
