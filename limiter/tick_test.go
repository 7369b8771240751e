package limiter_test

import (
	"math"
	"testing"
	"time"

	. "github.com/weirlimit/weir/limiter"
)

// Waits are rounded up, so that none is too short.
func TestWaitsAreRoundedUp(t *testing.T) {
	for _, c := range []struct {
		wait            time.Duration
		millis, seconds int64
	}{
		{0, 0, 0},
		{time.Microsecond, 1, 1},
		{time.Millisecond, 1, 1},
		{time.Second, 1000, 1},
		{time.Second + time.Microsecond, 1001, 2},
		{math.MaxInt64, 9223372036855, 9223372037},
	} {
		if Millis(c.wait) != c.millis || Seconds(c.wait) != c.seconds {
			t.Errorf("%v: %d ms, %d s; want %d, %d", c.wait, Millis(c.wait), Seconds(c.wait), c.millis, c.seconds)
		}
	}
}
