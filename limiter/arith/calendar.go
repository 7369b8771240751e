package arith

import "github.com/weirlimit/weir/limiter"

// reach returns a bound of the length of any window. The clocks of a zone may be moved
// back, by less than a day.
func (l *window) reach() limiter.Tick {
	if l.Cal == nil || l.Window <= limiter.Hour {
		return l.Window
	}
	return l.Window + limiter.Day
}

// end returns the end of the aligned or calendar window that begins at start.
func (l *window) end(start limiter.Tick) limiter.Tick {
	if l.Cal == nil {
		return start + l.Window
	}
	_, end := l.Cal.Window(int64(start))
	return limiter.Tick(end)
}

// rollCalendar is [window.roll] for calendar windows.
func (l *window) rollCalendar(s *Counts, now limiter.Tick) {
	if start, _ := l.Cal.Window(int64(now)); s.A == 0 || limiter.Tick(start) > s.Time {
		s.Time, s.A = limiter.Tick(start), 0
	}
}

// nearest returns the beginning of a window that is the nearest to an instant, and not
// after the end of the window of now.
func (l *window) nearest(at, now limiter.Tick) limiter.Tick {
	if l.Cal == nil {
		return min(l.start(at+l.Window/2), l.start(now)+l.Window)
	}
	start, end := l.Cal.Window(int64(at))
	if int64(at)-start >= end-int64(at) {
		start = end
	}
	_, end = l.Cal.Window(int64(now))
	return limiter.Tick(min(start, end))
}

// CalendarBounds returns, for a limit with calendar windows, the beginnings of the window
// before the one that contains now, of that window, of the next one, and the end of
// that. For another limit it returns false.
func CalendarBounds(l *limiter.Limit, now limiter.Tick) (bounds [4]limiter.Tick, ok bool) {
	if of(l).Cal == nil {
		return bounds, false
	}
	for i, b := range of(l).Cal.Around(int64(now)) {
		bounds[i] = limiter.Tick(b)
	}
	return bounds, true
}
