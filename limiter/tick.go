package limiter

import (
	"strconv"
	"time"
)

// Tick is an instant in microseconds since the Unix epoch, or a span of microseconds.
// It is the unit of time everywhere in Weir. Instants before the epoch count as the
// epoch. Counters are exact until 1<<52, in the year 2112, which is the time of [Credit].
type Tick int64

// TickDuration is the length of one tick.
const TickDuration = time.Microsecond

// Spans, in ticks, of the units of a rules file.
const (
	Millisecond Tick = 1000
	Second           = 1000 * Millisecond
	Minute           = 60 * Second
	Hour             = 60 * Minute
	Day              = 24 * Hour
	Week             = 7 * Day
)

// TickOf returns t in ticks, truncated. An instant before the epoch yields 0.
func TickOf(t time.Time) Tick {
	return max(0, Tick(t.UnixMicro()))
}

// Time returns the instant t in UTC.
func (t Tick) Time() time.Time { return time.UnixMicro(int64(t)).UTC() }

// Duration returns the span t as a [time.Duration]. Spans of up to 292 years are exact;
// a longer one yields the longest Duration.
func (t Tick) Duration() time.Duration {
	const most = Tick(1<<63-1) / 1000
	return time.Duration(min(t, most)) * time.Microsecond
}

// Span returns d in ticks, truncated.
func Span(d time.Duration) Tick { return Tick(d / TickDuration) }

// Millis returns d in whole milliseconds, rounded up, as in JSON, so that this wait is
// never too short.
func Millis(d time.Duration) int64 { return roundUp(d, time.Millisecond) }

// Seconds returns d in whole seconds, rounded up, as in HTTP headers.
func Seconds(d time.Duration) int64 { return roundUp(d, time.Second) }

func roundUp(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// WindowName returns the default name of a limit with this window: the name of a unit
// (second, minute, hour, day, week, month for 30 days, year for 365 days), else the
// shortest spelling in one unit, such as 15m or 250ms.
func WindowName(w time.Duration) string {
	const day = 24 * time.Hour
	for _, u := range []struct {
		d    time.Duration
		name string
	}{{time.Second, "second"}, {time.Minute, "minute"}, {time.Hour, "hour"}, {day, "day"}, {7 * day, "week"},
		{30 * day, "month"}, {365 * day, "year"}} {
		if w == u.d {
			return u.name
		}
	}
	for _, u := range []struct {
		d    time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if w%u.d == 0 {
			return strconv.FormatInt(int64(w/u.d), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(w/time.Microsecond), 10) + "us"
}
