package rules

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// neverFirst warns about limits of one key that cannot be the first to deny, because
// another limit admits too little.
func neverFirst(r *definition) (out []Warning) {
	for i, l := range r.limits {
		for j, other := range r.limits {
			if i == j || l == nil || other == nil || slices.Contains(r.zoning.limits, i) || slices.Contains(r.zoning.limits, j) {
				continue // windows of a zone that a request chooses may begin at any time
			}
			if slices.Contains(r.choosing.limits, i) || slices.Contains(r.choosing.limits, j) {
				continue // for other plans it may
			}
			most, ok := neverDenies(l.Spec(), other.Spec())
			if !ok {
				continue
			}
			at, instead, less := r.written[i], "", ""
			if n := int64(math.Ceil(most)) - 1; n > 0 && !isBucket(l.Algorithm()) {
				if instead = fmt.Sprintf("%d/%s", n, limiter.WindowName(l.Window())); at.Kind != yamltree.Scalar {
					at, instead = at.At("limit"), fmt.Sprintf("limit: %d", n)
				}
				less = ", or write less, such as " + instead
			}
			out = append(out, newWarning(r, at, instead,
				"limit %s of %s never denies first: limit %s lets at most %.0f units through meanwhile. Remove it%s",
				quote(l.Name()), r.title(), quote(other.Name()), math.Ceil(most), less))
			break
		}
	}
	return out
}

// rounding is above what the arithmetic of neverDenies may be wrong by.
const rounding = 1e-6

// neverDenies reports whether a limit never denies what another one admits, and how many
// units the other one admits in the time for which the limit counts.
func neverDenies(l, other limiter.Spec) (most float64, never bool) {
	if l.CountRejected != limiter.CountNone {
		return 0, false // what the other one denies may fill it
	}
	if l.Calendar != limiter.CalendarNone && other.Calendar != limiter.CalendarNone && withinCalendar(l, other) {
		return float64(other.Limit), other.Limit <= l.Limit
	}
	shortest, ok := windowLength(&other, false)
	longest, also := windowLength(&l, true)
	if !ok || !also {
		return 0, false
	}
	other.Window, l.Window = shortest, longest
	capacity, rate := envelope(other)
	if isBucket(l.Algorithm) {
		full := burstOf(l)
		return capacity, l.Drip != limiter.DripInterval && capacity <= full && rate <= float64(l.Limit)/l.Window.Seconds()
	}
	span := l.Window
	if l.Algorithm == limiter.SlidingWindow && l.Coverage == limiter.CoverageStrict {
		span += l.Window / time.Duration(max(1, l.SubWindows))
	}
	most = capacity + rate*span.Seconds()
	if l.Algorithm == limiter.SlidingCounter && l.Rounding != limiter.RoundExact && l.Rounding != limiter.RoundFloor {
		most++
	}
	if whole := capacity + rate*(2*span).Seconds(); l.Algorithm == limiter.SlidingCounter && most > float64(l.Limit) &&
		l.Rounding == limiter.RoundExact {
		// It estimates from two windows, at most what both have. That is a whole number.
		return math.Floor(whole + rounding), math.Floor(whole+rounding) <= float64(l.Limit)
	}
	if l.Algorithm != limiter.SlidingCounter {
		most = math.Floor(most + rounding)
	}
	return most, most <= float64(l.Limit)
}

// windowLength returns the length of a limit's windows, of a calendar at least or at most. It
// returns false for those of the calendar that clocks may make any shorter: a minute or an hour
// ends when the clocks are moved.
func windowLength(s *limiter.Spec, most bool) (time.Duration, bool) {
	const moved = 2 * time.Hour // by which clocks are moved, at most
	var least, longest time.Duration
	switch s.Calendar {
	case limiter.CalendarNone:
		return s.Window, true
	case limiter.CalendarMinute, limiter.CalendarHour:
		least = time.Minute
		if s.Calendar == limiter.CalendarHour {
			least = time.Hour
		}
		return least, most || s.Zone == "" || s.Zone == limiter.DefaultZone
	case limiter.CalendarDay:
		least, longest = day, day
	case limiter.CalendarWeek:
		least, longest = 7*day, 7*day
	case limiter.CalendarMonth:
		least, longest = 28*day, 31*day
	case limiter.CalendarQuarter:
		least, longest = 89*day, 92*day
	default:
		least, longest = 365*day, 366*day
	}
	if most {
		return longest + moved, true
	}
	return least - moved, true
}

// withinCalendar reports whether each window of one calendar is a part of one of the other.
func withinCalendar(l, other limiter.Spec) bool {
	whole := l.Calendar == limiter.CalendarDay && other.Calendar > limiter.CalendarDay ||
		l.Calendar >= limiter.CalendarMonth && other.Calendar > l.Calendar && l.AnchorDay == other.AnchorDay
	return whole && l.Zone == other.Zone && l.At == other.At
}

// envelope returns numbers with which a limit admits at most capacity + rate*t units in
// each interval of t seconds.
func envelope(s limiter.Spec) (capacity, rate float64) {
	rate = float64(s.Limit) / s.Window.Seconds()
	switch {
	case isBucket(s.Algorithm):
		if s.Drip == limiter.DripContinuous {
			return burstOf(s), rate
		}
		return burstOf(s) + float64(max(1, s.DripUnits)), rate
	case s.Algorithm == limiter.SlidingLog,
		s.Algorithm == limiter.SlidingWindow && s.Coverage == limiter.CoverageStrict,
		s.Algorithm == limiter.SlidingCounter && (s.Weight == nil || *s.Weight == 1000) &&
			(s.Rounding == limiter.RoundExact || s.Rounding == limiter.RoundCeil):
		return float64(s.Limit), rate
	}
	return 2 * float64(s.Limit), rate
}

func isBucket(a limiter.Algorithm) bool {
	return a == limiter.TokenBucket || a == limiter.LeakyBucket || a == limiter.GCRA
}

func burstOf(s limiter.Spec) float64 {
	if s.Burst == 0 {
		return float64(s.Limit)
	}
	return float64(s.Burst)
}
