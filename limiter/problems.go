package limiter

import (
	"fmt"
	"math/bits"
	"time"
)

// Problem is one thing wrong with a [Spec].
type Problem struct {
	// Field is the name of the invalid option in rules files.
	Field string
	// Text states what is wrong and what would be valid.
	Text string
}

// Problems returns all problems of a spec, nil if it is valid. It ignores options of
// other algorithms.
func (s *Spec) Problems() []Problem {
	var out []Problem
	bad := func(field, format string, args ...any) {
		out = append(out, Problem{field, fmt.Sprintf(format, args...)})
	}
	if len(s.Name) > MaxNameBytes {
		bad("name", "the name has %d bytes; at most %d are allowed", len(s.Name), MaxNameBytes)
	}
	if s.Name == holdsName && s.Algorithm != holds {
		bad("name", "the name %q is reserved", s.Name)
	}
	if s.Algorithm > Concurrency && s.Algorithm != remembered && s.Algorithm != holds {
		bad("algorithm", "there is no algorithm number %d", s.Algorithm)
	}
	most := int64(MaxUnits)
	if s.Algorithm == SlidingLog {
		most = MaxLogLimit
	}
	limitOK := s.Limit >= 1 && s.Limit <= most
	if !limitOK {
		bad("limit", "limit %d is out of range: %s takes 1 to %d units", s.Limit, s.Algorithm, most)
	}
	windowOK := s.Window >= MinWindow && s.Window <= MaxWindow
	s.calendarProblems(bad)
	switch {
	case s.Algorithm == Concurrency && s.Calendar == CalendarNone:
		if s.Window != 0 {
			bad("window", "concurrency has no window: leave it out, and say with hold how long a check holds its units")
		}
		if s.CountRejected != CountNone {
			bad("count_rejected", "concurrency does not count rejected checks: they hold nothing")
		}
	case s.Calendar != CalendarNone: // it has no window of its own
	case !windowOK:
		bad("window", "window %v is out of range: a window is 1ms to 400 days long", s.Window)
	case s.Window%TickDuration != 0:
		bad("window", "window %v is not a whole number of microseconds", s.Window)
	}
	s.blockProblems(bad)
	s.ceilingProblems(bad)
	if s.Align > AlignFirstHit {
		bad("align", "there is no alignment number %d", s.Align)
	}
	if s.Coverage > CoverageLenient {
		bad("coverage", "there is no coverage number %d", s.Coverage)
	}
	if s.Rounding > RoundCeil {
		bad("rounding", "there is no rounding number %d", s.Rounding)
	}
	if s.Drip > DripInterval {
		bad("drip", "there is no drip number %d", s.Drip)
	}
	if s.CountRejected > CountAll {
		bad("count_rejected", "there is no count_rejected number %d", s.CountRejected)
	}
	switch s.Algorithm {
	case SlidingWindow:
		m := s.subWindows()
		if m < 1 || m > MaxSubWindows {
			bad("sub_windows", "sub_windows %d is out of range: give 1 to %d", m, MaxSubWindows)
		} else if windowOK && (s.Window/TickDuration)%time.Duration(m) != 0 {
			bad("sub_windows", "window %v cannot be divided into %d sub-windows of whole microseconds", s.Window, m)
		}
	case SlidingCounter:
		if s.Weight != nil && (*s.Weight < 0 || *s.Weight > 1000) {
			bad("weight", "weight %d is out of range: give 0 to 1000 thousandths", *s.Weight)
		}
	case TokenBucket, LeakyBucket, GCRA:
		if s.Algorithm == LeakyBucket && limitOK {
			s.dripProblems(bad)
		}
		b := s.burst()
		if s.Burst != 0 && (b < 1 || b > MaxUnits) {
			bad("burst", "burst %d is out of range: give 1 to %d units", b, int64(MaxUnits))
		} else if limitOK && windowOK {
			hi, lo := bits.Mul64(uint64(b), uint64(s.Window/TickDuration))
			if hi >= uint64(s.Limit) || quo(hi, lo, uint64(s.Limit)) > uint64(Span(MaxRecovery)) {
				bad("burst", "burst %d takes over 100 years to recover at %d per %v; lower it or raise the rate", b, s.Limit,
					s.Window)
			}
		}
	}
	return out
}

// blockProblems returns what is wrong with the block, or with windows that a wide limit cannot have
// beside one: see blockedBit.
func (s *Spec) blockProblems(bad func(field, format string, args ...any)) {
	switch {
	case s.Block < 0 || s.Block > MaxWindow:
		bad("block", "block %v is out of range: a block is at most 400 days long", s.Block)
	case s.Block%TickDuration != 0:
		bad("block", "block %v is not a whole number of microseconds", s.Block)
	case s.Block == 0 || !s.wide() || s.wholeSeconds():
	case s.Algorithm == SlidingWindow:
		bad("block", "a limit above %d units has a block only with sub-windows of whole seconds: window %v has %d",
			int64(NarrowUnits), s.Window, s.subWindows())
	default:
		bad("block", "a limit above %d units has a block only with windows of whole seconds, not of %v", int64(NarrowUnits),
			s.Window)
	}
}

func (s *Spec) ceilingProblems(bad func(field, format string, args ...any)) {
	full := s.Limit
	if s.Algorithm == TokenBucket || s.Algorithm == LeakyBucket || s.Algorithm == GCRA {
		full = s.burst()
	}
	switch {
	case s.Ceiling == 0:
	case s.Ceiling < 0 || s.Ceiling > full:
		bad("ceiling", "ceiling %d is out of range: give 1 to %d units", s.Ceiling, full)
	case s.Algorithm == Concurrency, s.Block != 0, s.CountRejected != CountNone:
		bad("ceiling", "a limit with a ceiling is of a rate, without block and count_rejected: a denial by the ceiling "+
			"would concern checks that it is not for")
	}
}

// wholeSeconds reports whether windows that begin at multiples of their length, or sub-windows, begin at whole
// seconds.
func (s *Spec) wholeSeconds() bool {
	switch {
	case s.Calendar != CalendarNone:
		return true
	case s.Algorithm == SlidingWindow:
		return s.subWindows() <= 0 || s.Window%(time.Duration(s.subWindows())*time.Second) == 0
	default:
		return s.Algorithm != SlidingCounter && (s.Algorithm != FixedWindow || s.Align != AlignEpoch) ||
			s.Window%time.Second == 0
	}
}

// dripProblems returns what is wrong with the units that a leaky bucket leaks at once.
func (s *Spec) dripProblems(bad func(field, format string, args ...any)) {
	switch {
	case s.DripUnits == 0:
	case s.DripUnits < 0 || s.DripUnits > MaxUnits:
		bad("drip", "drip: an amount of %d is out of range: give 1 to %d units", s.DripUnits, int64(MaxUnits))
	case s.Drip != DripInterval:
		bad("drip", "drip: an amount needs drip by interval")
	case s.Limit%s.DripUnits != 0:
		bad("drip", "drip: limit %d is not divisible by an amount of %d: give units per window of which the amount is a "+
			"part, or another amount", s.Limit, s.DripUnits)
	}
}
