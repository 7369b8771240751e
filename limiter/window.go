package limiter

import "math/bits"

// fixed_window and sliding_counter count in aligned windows.

// start returns the start of the aligned window that contains now.
func (l *Limit) start(now Tick) Tick {
	since := (now - l.shift) % l.window
	if since < 0 {
		since += l.window
	}
	return now - since
}

func (l *Limit) rollFixed(s *Counts, now Tick) {
	if l.p.align == AlignFirstHit {
		if now >= s.Time+l.window {
			s.A = 0
		}
		return
	}
	switch {
	case s.B != 0:
		l.rollBefore(s, now)
	case l.cal != nil:
		l.rollCalendar(s, now)
	case now >= s.Time+l.window || s.A == 0:
		s.Time, s.A = l.start(now), 0
	}
}

// rollBefore is rollFixed for a state that counts in two windows: see [State.Merge].
func (l *Limit) rollBefore(s *Counts, now Tick) {
	if now < s.Time {
		return
	}
	s.B = 0
	l.rollFixed(s, now)
}

// refundFixed takes back n units if the window in which they were charged has not
// ended.
func (l *Limit) refundFixed(s *Counts, at Tick, n, rest uint64, known bool) {
	if at < s.Time || !known && l.saturated(s.A) {
		return
	}
	if l.p.align == AlignFirstHit && at == s.Time && n < s.A && rest == 0 {
		// Without this hit the window would have begun with a later one, whose instant
		// is not recorded. So only the sole hit of a window can be taken back.
		return
	}
	s.A -= min(s.A, n)
}

func (l *Limit) rollCounter(s *Counts, now Tick) {
	switch {
	case s.A|s.B == 0 || now >= s.Time+2*l.window:
		s.Time, s.A, s.B = l.start(now), 0, 0
	case now >= s.Time+l.window:
		s.Time, s.A, s.B = s.Time+l.window, 0, s.A
	}
}

// tail returns r(previous * (window-elapsed) * weight / window). For the rounding
// exact, r rounds up: all other terms are whole, so the decisions are the same, and the
// remainder is the floored one.
func (l *Limit) tail(s *Counts, now Tick) uint64 {
	if s.B == 0 {
		return 0
	}
	if now < s.Time {
		return s.B // imported: the window that will be the previous one still runs
	}
	left := uint64(l.window - (now - s.Time))
	full := 1000 * uint64(l.window)
	hi, lo := bits.Mul64(s.B*l.weight, left)
	lo, carry := bits.Add64(lo, full-1-l.slack(full), 0)
	if hi += carry; hi == 0 {
		return lo / full
	}
	return quo(hi, lo, full)
}

// slack returns by how much previous*(window-elapsed)*weight may exceed a multiple of
// full = 1000*window and still be rounded to it.
func (l *Limit) slack(full uint64) uint64 {
	switch l.p.rounding {
	case RoundFloor:
		return full - 1
	case RoundNearest:
		return full/2 - 1
	default:
		return 0
	}
}

// tailFits returns the first instant, of the window that begins at start, at which the
// part of previous is at most room.
func (l *Limit) tailFits(start Tick, previous uint64, room uint64) Tick {
	rate := previous * l.weight
	if rate == 0 {
		return start
	}
	full := 1000 * uint64(l.window)
	if room == 0 && l.slack(full) == 0 {
		return start + l.window
	}
	hi, lo := bits.Mul64(room, full)
	lo, carry := bits.Add64(lo, l.slack(full), 0)
	if hi += carry; hi >= rate {
		return start
	}
	return start + max(0, l.window-Tick(min(quo(hi, lo, rate), uint64(l.window))))
}

func (l *Limit) counterAdmitsAt(s *Counts, n uint64) Tick {
	if s.A+n <= l.limit {
		return l.tailFits(s.Time, s.B, l.limit-n-s.A)
	}
	return l.tailFits(s.Time+l.window, s.A, l.limit-n)
}

func (l *Limit) counterEmptyAt(s *Counts) Tick {
	switch {
	case s.A > 0 && l.wholeTail:
		return s.Time + 2*l.window
	case s.A > 0:
		return l.tailFits(s.Time+l.window, s.A, 0)
	case s.B > 0:
		return l.tailFits(s.Time, s.B, 0)
	default:
		return 0
	}
}

func (l *Limit) refundCounter(s *Counts, at Tick, n uint64, known bool) {
	switch {
	case at >= s.Time:
		if known || !l.saturated(s.A) {
			s.A -= min(s.A, n)
		}
	case at >= s.Time-l.window:
		if known || !l.saturated(s.B) {
			s.B -= min(s.B, n)
		}
	}
}
