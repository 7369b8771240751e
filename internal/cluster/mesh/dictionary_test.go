package mesh

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// A limit that another node defines is the same limit.
func TestLimitsAcrossFrames(t *testing.T) {
	half := 500
	d := NewDictionary(func(string) *limiter.Rule { return nil })
	for _, s := range []limiter.Spec{
		{Limit: 2, Window: time.Minute, Rounding: limiter.RoundCeil, Weight: &half, Name: "w"},
		{Limit: 2, Window: time.Minute, Algorithm: limiter.FixedWindow, Align: limiter.AlignFirstHit, Block: time.Second},
		{Limit: 2, Window: time.Minute, Algorithm: limiter.SlidingWindow, SubWindows: 6, Coverage: limiter.CoverageLenient},
		{Limit: 2, Window: time.Minute, Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval, Burst: 3},
		{Limit: 2, Calendar: limiter.CalendarMonth, Zone: "Asia/Kathmandu", AnchorDay: 30, At: 6*time.Hour + 5*time.Minute},
		{Limit: 2, Calendar: limiter.CalendarWeek, WeekStart: limiter.Saturday, Zone: "America/New_York"},
	} {
		l, err := limiter.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		p := limitToPeer(l)
		if other, err := d.Limit(&p); err != nil || !other.Equal(l) {
			t.Errorf("%v becomes %v: %v", l, other, err)
		}
	}
}
