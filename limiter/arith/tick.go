package arith

import "github.com/weirlimit/weir/limiter"

// Instant is an optional instant. The zero value means "not given": a backend then uses
// a clock of its own.
type Instant struct {
	at    limiter.Tick
	given bool
}

// At returns the instant t, given. An instant before the epoch counts as the epoch.
func At(t limiter.Tick) Instant { return Instant{max(0, t), true} }

// Given reports whether an instant was given.
func (i Instant) Given() bool { return i.given }

// Or returns the instant, or the result of clock if none was given.
func (i Instant) Or(clock func() limiter.Tick) limiter.Tick {
	if i.given {
		return i.at
	}
	return clock()
}
