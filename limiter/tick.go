package limiter

import "time"

// Tick is an instant in microseconds since the Unix epoch, or a span of
// microseconds. It is the unit of time in every mode of Weir. Instants before
// the epoch are treated as the epoch.
type Tick int64

// TickDuration is the length of one tick.
const TickDuration = time.Microsecond

// Spans, in ticks, of the units that a rules file may name.
const (
	Millisecond Tick = 1000
	Second           = 1000 * Millisecond
	Minute           = 60 * Second
	Hour             = 60 * Minute
	Day              = 24 * Hour
	Week             = 7 * Day
)

// TickOf returns t in ticks, truncated, as every front door does with the time
// it was given. An instant before the epoch yields 0.
func TickOf(t time.Time) Tick {
	return max(0, Tick(t.UnixMicro()))
}

// Time returns the instant t in UTC.
func (t Tick) Time() time.Time { return time.UnixMicro(int64(t)).UTC() }

// Duration returns the span t as a [time.Duration]. Spans of up to 292 years
// are represented exactly; a longer one yields the longest Duration.
func (t Tick) Duration() time.Duration {
	const most = Tick(1<<63-1) / 1000
	return time.Duration(min(t, most)) * time.Microsecond
}

// Millis returns the span t in whole milliseconds, rounded up, as JSON and the
// wire carry it: waiting that long is never too short.
func (t Tick) Millis() int64 { return int64((t + Millisecond - 1) / Millisecond) }

// Seconds returns the span t in whole seconds, rounded up, as HTTP headers
// carry it.
func (t Tick) Seconds() int64 { return int64((t + Second - 1) / Second) }
