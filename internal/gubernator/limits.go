package gubernator

import (
	"time"

	"github.com/weirlimit/weir/internal/recent"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// The names of limits. A key has one counter for each algorithm, whatever its limits are: a
// limit that is changed goes on with what it has counted, and one of another algorithm begins
// anew.
const (
	tokenName = "gubernator-token"
	leakyName = "gubernator-leaky"
)

// rate is a limit as clients bring it. The zero value of leaky is a token bucket, which is a
// window that begins with the first hit, or that of the calendar.
type rate struct {
	leaky        bool
	limit, burst int64
	window       time.Duration    // 0: that of the calendar
	calendar     limiter.Calendar // of a token bucket
}

// limits makes each limit once, and keeps a bounded number of them.
type limits struct {
	zone string
	kept *recent.Values[rate, *limiter.Limit]
}

// Bounds of the limits that are kept.
const (
	maxLimits = 4096
	limitLife = 10 * time.Minute
)

func newLimits(zone string, now func() time.Time) limits {
	return limits{zone, recent.New[rate, *limiter.Limit](maxLimits, limitLife, now)}
}

func (l *limits) of(r rate) (*limiter.Limit, error) {
	if out, ok := l.kept.Get(r); ok {
		return out, nil
	}
	out, err := limiter.NewLimit(l.spec(r))
	if err == nil {
		l.kept.Keep(r, out)
	}
	return out, err
}

func (l *limits) spec(r rate) limiter.Spec {
	switch {
	case r.leaky:
		return limiter.Spec{Name: leakyName, Algorithm: limiter.LeakyBucket, Limit: r.limit, Window: r.window, Burst: r.burst}
	case r.calendar != limiter.CalendarNone:
		return limiter.Spec{Name: tokenName, Algorithm: limiter.FixedWindow, Limit: r.limit, Calendar: r.calendar,
			Zone: l.zone}
	default:
		return limiter.Spec{Name: tokenName, Algorithm: limiter.FixedWindow, Limit: r.limit, Window: r.window,
			Align: limiter.AlignFirstHit}
	}
}

// bounds returns when the unit of the calendar that contains now begins and ends.
func (l *limits) bounds(unit limiter.Calendar, now time.Time) (begin, end limiter.Tick, err error) {
	by, err := l.of(rate{limit: 1, calendar: unit})
	if err != nil {
		return 0, 0, err
	}
	b, _ := arith.CalendarBounds(by, limiter.TickOf(now))
	return b[1], b[2], nil
}
