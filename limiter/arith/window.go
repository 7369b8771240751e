package arith

import (
	"math/bits"

	"github.com/weirlimit/weir/limiter"
)

// fixed_window and sliding_counter count in aligned windows.

// start returns the start of the aligned window that contains now.
func (l *window) start(now limiter.Tick) limiter.Tick {
	since := (now - l.Shift) % l.Window
	if since < 0 {
		since += l.Window
	}
	return now - since
}

func (l *window) roll(s *Counts, now limiter.Tick) {
	if l.P.Align == limiter.AlignFirstHit {
		if now >= s.Time+l.Window {
			s.A = 0
		}
		return
	}
	switch {
	case s.B != 0:
		l.rollBefore(s, now)
	case l.Cal != nil:
		l.rollCalendar(s, now)
	case now >= s.Time+l.Window || s.A == 0:
		s.Time, s.A = l.start(now), 0
	}
}

// rollBefore is [window.roll] for a state that counts in two windows: see [State.Merge].
func (l *window) rollBefore(s *Counts, now limiter.Tick) {
	if now < s.Time {
		return
	}
	s.B = 0
	l.roll(s, now)
}

// refund takes back n units if the window in which they were charged has not
// ended.
func (l *window) refund(s *Counts, at limiter.Tick, n, rest uint64, known bool) {
	if at < s.Time || !known && (*rate)(l).saturated(s.A) {
		return
	}
	if l.P.Align == limiter.AlignFirstHit && at == s.Time && n < s.A && rest == 0 {
		// Without this hit the window would have begun with a later one, whose instant
		// is not recorded. So only the sole hit of a window can be taken back.
		return
	}
	s.A -= min(s.A, n)
}

func (l *counter) roll(s *Counts, now limiter.Tick) {
	switch {
	case s.A|s.B == 0 || now >= s.Time+2*l.Window:
		s.Time, s.A, s.B = (*window)(l).start(now), 0, 0
	case now >= s.Time+l.Window:
		s.Time, s.A, s.B = s.Time+l.Window, 0, s.A
	}
}

// tail returns r(previous * (window-elapsed) * weight / window). For the rounding
// exact, r rounds up: all other terms are whole, so the decisions are the same, and the
// remainder is the floored one.
func (l *counter) tail(s *Counts, now limiter.Tick) uint64 {
	if s.B == 0 {
		return 0
	}
	if now < s.Time {
		return s.B // imported: the window that will be the previous one still runs
	}
	left := uint64(l.Window - (now - s.Time))
	full := 1000 * uint64(l.Window)
	hi, lo := bits.Mul64(s.B*l.Weight, left)
	lo, carry := bits.Add64(lo, full-1-l.slack(full), 0)
	if hi += carry; hi == 0 {
		return lo / full
	}
	return quo(hi, lo, full)
}

// slack returns by how much previous*(window-elapsed)*weight may exceed a multiple of
// full = 1000*window and still be rounded to it.
func (l *counter) slack(full uint64) uint64 {
	switch l.P.Rounding {
	case limiter.RoundFloor:
		return full - 1
	case limiter.RoundNearest:
		return full/2 - 1
	default:
		return 0
	}
}

// tailFits returns the first instant, of the window that begins at start, at which the
// part of previous is at most room.
func (l *counter) tailFits(start limiter.Tick, previous uint64, room uint64) limiter.Tick {
	rate := previous * l.Weight
	if rate == 0 {
		return start
	}
	full := 1000 * uint64(l.Window)
	if room == 0 && l.slack(full) == 0 {
		return start + l.Window
	}
	hi, lo := bits.Mul64(room, full)
	lo, carry := bits.Add64(lo, l.slack(full), 0)
	if hi += carry; hi >= rate {
		return start
	}
	return start + max(0, l.Window-limiter.Tick(min(quo(hi, lo, rate), uint64(l.Window))))
}

func (l *counter) admitsAt(s *Counts, n uint64) limiter.Tick {
	if s.A+n <= l.Cap {
		return l.tailFits(s.Time, s.B, l.Cap-n-s.A)
	}
	return l.tailFits(s.Time+l.Window, s.A, l.Cap-n)
}

func (l *counter) emptyAt(s *Counts) limiter.Tick {
	switch {
	case s.A > 0 && l.WholeTail:
		return s.Time + 2*l.Window
	case s.A > 0:
		return l.tailFits(s.Time+l.Window, s.A, 0)
	case s.B > 0:
		return l.tailFits(s.Time, s.B, 0)
	default:
		return 0
	}
}

func (l *counter) refund(s *Counts, at limiter.Tick, n uint64, known bool) {
	switch {
	case at >= s.Time:
		if known || !(*rate)(l).saturated(s.A) {
			s.A -= min(s.A, n)
		}
	case at >= s.Time-l.Window:
		if known || !(*rate)(l).saturated(s.B) {
			s.B -= min(s.B, n)
		}
	}
}
