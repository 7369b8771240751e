package arith

import (
	"fmt"
	"math/bits"

	"github.com/weirlimit/weir/limiter"
)

// States move between nodes as spans (ages and remaining times), since an instant of
// one clock has no meaning for another. The transfer takes time, so an imported instant
// is slightly late, which errs on the side of denying.
//
// Windows aligned to the epoch are aligned in every node. An imported one becomes the
// nearest window of the importer's clock. So if the clocks differ by less than half a
// window, nothing changes, however often a state moves; what is admitted in a window of
// the one clock and in a window of the other may be more than the limit. If the importer's
// clock is behind, the window may begin in the future, at most one window ahead; it counts
// until its end all the same.
//
// Calendar windows are the same in every node, too, as far as the nodes have the same time
// zone database, and are treated alike.
//
// Sub-windows and drips promise more: the limit in every interval. Between clocks that
// agree a sub-window is a little late by the time of the transfer, and is put where it was.
// Otherwise it keeps its instants, so it does not begin at a multiple of its length until
// the counter is empty. A drip is put where it was too, or becomes the next one.

// alignedWithin is the most that two clocks which agree, and a transfer between them, make
// a state late. For sub-windows and drips shorter than twice that it is half of them.
const alignedWithin = 25 * limiter.Millisecond

// Held returns how many words an exported state has. [State.Words] returns how many one
// needs for a charge.
func (s *State) Held(l *limiter.Limit) int {
	c := s.Open(l)
	return c.held(of(l))
}

func (s *Counts) held(l *rate) int {
	switch {
	case l.P.Algorithm == limiter.SlidingWindow && s.A > 0:
		return (*ring)(l).words()
	case l.P.Algorithm == limiter.SlidingLog && s.B > 1:
		return 1 + int(s.B)
	case l.P.Algorithm == Holds:
		return int(s.A) * HoldWords
	default:
		return 0
	}
}

// Export converts the instants of a state into spans relative to now, in place;
// positive spans lie ahead. The state must have been rolled to now. Its words,
// [State.Held] of them, must be those of [State.Move]. A state that counts nothing
// becomes zero.
func (s *State) Export(l *limiter.Limit, words []uint64, now limiter.Tick) {
	if of(l).P.Algorithm == Holds {
		moveHolds(s, words, -now)
		return
	}
	c := s.Open(l)
	c.export(of(l), words, now)
	*s = c.State(l)
}

func (s *Counts) export(l *rate, words []uint64, now limiter.Tick) {
	if l.P.Algorithm == Remembered {
		s.moveID(now, -now)
		return
	}
	if s.Until != 0 {
		s.Until -= now
	}
	if l.idle(s, now) {
		s.Time, s.A, s.B = 0, 0, 0
		return
	}
	switch {
	case l.P.Algorithm == limiter.SlidingLog:
		shiftLog(s, words, -now)
	case l.P.Algorithm == limiter.LeakyBucket && !l.Shared:
		s.Time = (*drips)(l).last(s.Time)
	case l.Shared:
		s.B = 0 // in the exporter's clock
	}
	s.Time -= now
}

// Import converts the spans of an exported state into instants of the clock of now, in
// place, and rolls it to now. The state must have passed [State.CheckExported].
func (s *State) Import(l *limiter.Limit, words []uint64, now limiter.Tick) {
	if of(l).P.Algorithm == Holds {
		moveHolds(s, words, now)
		return
	}
	c := s.Open(l)
	c.take(of(l), words, now)
	*s = c.State(l)
}

func (s *Counts) take(l *rate, words []uint64, now limiter.Tick) {
	if l.P.Algorithm == Remembered {
		s.moveID(0, now)
		return
	}
	if s.Until != 0 {
		s.Until += now
	}
	if l.idle(s, 0) {
		s.Time = 0
		s.roll(l, words, now)
		return
	}
	at := s.Time + now
	switch l.P.Algorithm {
	case limiter.FixedWindow:
		if l.P.Align == limiter.AlignEpoch {
			at = (*window)(l).nearest(at, now)
		}
	case limiter.SlidingCounter:
		at = (*window)(l).nearest(at, now)
	case limiter.SlidingWindow:
		if nearest := floorTo(at+l.Sub/2, l.Sub); max(at-nearest, nearest-at) <= alignedWithin {
			at = nearest
		}
		at = min(at, floorTo(now, l.Sub)+l.Sub)
	case limiter.SlidingLog:
		shiftLog(s, words, now)
	case limiter.Concurrency:
	default:
		if !l.Shared {
			at = min((*drips)(l).aligned(max(at, 0)), (*drips)(l).next(max(now, 0)))
			s.A = min(s.A, l.Most)
		}
	}
	s.Time = at
	s.roll(l, words, now)
	if l.Shared {
		(*bucket)(l).capDebt(s, now)
	}
}

// idle reports whether a state counts nothing at now, apart from a block.
func (l *rate) idle(s *Counts, now limiter.Tick) bool {
	switch l.P.Algorithm {
	case limiter.FixedWindow, limiter.SlidingCounter, limiter.SlidingWindow:
		return s.A|s.B == 0
	case limiter.SlidingLog:
		return s.B == 0
	default:
		if l.Shared {
			return s.Time < now || s.Time == now && s.A == 0
		}
		return s.A == 0
	}
}

func floorTo(t, unit limiter.Tick) limiter.Tick {
	since := t % unit
	if since < 0 {
		since += unit
	}
	return t - since
}

// CheckExported validates a state and its words from another node, before
// [State.Import]. After it succeeded, no method goes out of bounds because of them. The
// error wraps [limiter.ErrInvalid].
func (s *State) CheckExported(l *limiter.Limit, words []uint64) error {
	if of(l).P.Algorithm == Holds {
		if !checkHolds(s, words) {
			return fmt.Errorf("%w state of %s: its parts contradict each other (until %d us, %d us, %d)", limiter.ErrInvalid,
				of(l).P.Name,
				s.Time, s.Until, s.A)
		}
		return nil
	}
	c := s.Open(l)
	return c.check(of(l), words)
}

func (s *Counts) check(l *rate, words []uint64) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w state of %s: %s", limiter.ErrInvalid, l.P.Name, fmt.Sprintf(format, args...))
	}
	if s.A > max(l.maxUnits(), l.mostEver()) || s.B > l.maxUnits() {
		return bad("counts of %d and %d units", s.A, s.B)
	}
	if l.P.Algorithm == Remembered {
		if len(words) > 0 || *s != (Counts{}) && !s.checkID() {
			return bad("its parts contradict each other (until %d us, %d us, %d, %d)", s.Time, s.Until, s.A, s.B)
		}
		return nil
	}
	if most := limiter.Tick(limiter.MaxWindow / limiter.TickDuration); s.Until < 0 || s.Until > most || s.Until > 0 &&
		l.P.Block == 0 {
		return bad("a block of %d us", s.Until)
	}
	if held := s.held(l); len(words) != held {
		return bad("%d words, not %d", len(words), held)
	}
	if s.Time == 0 && s.A|s.B == 0 {
		return nil
	}
	within := func(from, to limiter.Tick) bool { return s.Time > from && s.Time <= to }
	var ok bool
	switch l.P.Algorithm {
	case limiter.FixedWindow:
		ok = within(-(*window)(l).reach(), (*window)(l).reach()) && (s.B == 0 || s.Time > 0 && s.B > s.A && s.A > 0)
		if l.P.Align == limiter.AlignFirstHit {
			ok = within(-l.Window, 0) && s.B == 0
		}
	case limiter.SlidingCounter:
		ok = within(-l.Window, l.Window)
	case limiter.SlidingWindow:
		ok = within(-limiter.Tick(l.Subs)*l.Sub, l.Sub) && (s.A == 0 || s.Time > -l.Sub && (*ring)(l).agrees(s, words))
	case limiter.SlidingLog:
		ok = within(-l.Window, 0) && (*log)(l).agrees(s, words)
	case limiter.Concurrency:
		ok = within(0, l.Window) && s.A > 0 && s.B == 0
	default:
		if l.Shared {
			hi, lo := bits.Mul64(l.mostEver(), uint64(l.Window))
			ok = s.Time >= 0 && s.Time <= limiter.Tick(quo(hi, lo, l.Limit)) && s.B == 0 && s.A < l.Limit
		} else {
			ok = within(-l.Window, l.Window) && s.B == 0 && s.A <= l.mostEver()
		}
	}
	if !ok {
		return bad("its parts contradict each other (time %d us, %d, %d)", s.Time, s.A, s.B)
	}
	return nil
}

// mostEver returns the highest level of a bucket in any version: earlier ones let the debt end at 100 years only. An
// import lowers such a level.
func (l *rate) mostEver() uint64 {
	if !l.leaks() {
		return 0
	}
	return min((*limiter.Compiled)(l).LeaksIn(limiter.Span(limiter.MaxRecovery))+1, mostCounted)
}

// agrees reports whether the counts of sub-windows match the state.
func (l *ring) agrees(s *Counts, words []uint64) bool {
	if words[0] >= uint64(l.Subs) || l.count(words, int(words[0])) != 0 {
		return false
	}
	for i := range l.Subs {
		if l.count(words, i) > (*rate)(l).maxUnits() {
			return false
		}
	}
	return s.A == min(l.sum(words), (*rate)(l).maxUnits())
}

// agrees reports whether the entries of a log match the state: in order, the newest
// at its time, none older than a window.
func (l *log) agrees(s *Counts, words []uint64) bool {
	if s.B <= 1 {
		return s.A <= limiter.MaxLogUnits && min(s.A, 1) == s.B
	}
	if words[0] != 0 || s.A > limiter.MaxLogUnits {
		return false
	}
	sum, last := uint64(0), -l.Window
	for i := range int(s.B) {
		tick, cost := logAt(s, words, i)
		if tick < last {
			return false
		}
		sum, last = sum+cost, tick
	}
	return sum == s.A && last == s.Time
}
