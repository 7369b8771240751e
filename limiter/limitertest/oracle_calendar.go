package limitertest

import (
	"time"

	"github.com/weirlimit/weir/limiter"
)

// calendarModel: count in the calendar window of now + n <= limit. It finds the window
// with package time, by looking at what the clocks show.
type calendarModel struct {
	limit  uint64
	spec   limiter.Spec
	zone   *time.Location
	most   uint64 // that a counter counts
	counts counts
}

func newCalendarModel(s limiter.Spec) *calendarModel {
	zone, err := time.LoadLocation(s.Zone)
	if err != nil {
		panic(err)
	}
	return &calendarModel{limit: uint64(s.Limit), spec: s, zone: zone, most: mostUnits(s), counts: counts{}}
}

// slot numbers the windows by the instants at which they begin.
func (m *calendarModel) slot(now Tick) int64 {
	t := now.Time().In(m.zone)
	switch m.spec.Calendar {
	case limiter.CalendarMinute:
		return t.Unix() - int64(t.Second())
	case limiter.CalendarHour:
		return t.Unix() - int64(t.Second()) - 60*int64(t.Minute())
	}
	for date := time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, time.UTC); ; date = date.AddDate(0, 0, -1) {
		if !m.begins(date) {
			continue
		}
		if b := m.firstShown(date.Add(m.spec.At)); !b.After(t) {
			return b.Unix()
		}
	}
}

// firstShown returns the first minute in which the clocks show a date and time or more.
func (m *calendarModel) firstShown(want time.Time) time.Time {
	guess := time.Date(want.Year(), want.Month(), want.Day(), want.Hour(), want.Minute(), 0, 0, m.zone)
	from, until := guess.Add(-4*time.Hour), guess.Add(4*time.Hour)
	_, before := from.Zone()
	if _, after := until.Zone(); before == after {
		return guess // the clocks do not move near it
	}
	for u := from; ; u = u.Add(time.Minute) {
		if shown := time.Date(u.Year(), u.Month(), u.Day(), u.Hour(), u.Minute(), 0, 0, time.UTC); !shown.Before(want) {
			return u
		}
	}
}

// begins reports whether a window begins on a date.
func (m *calendarModel) begins(date time.Time) bool {
	switch m.spec.Calendar {
	case limiter.CalendarDay:
		return true
	case limiter.CalendarWeek:
		return (int(date.Weekday())+6)%7 == int(m.spec.WeekStart)
	case limiter.CalendarQuarter:
		if date.Month()%3 != 1 {
			return false
		}
	case limiter.CalendarYear:
		if date.Month() != time.January {
			return false
		}
	}
	last := time.Date(date.Year(), date.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return date.Day() == min(max(1, m.spec.AnchorDay), last)
}

func (m *calendarModel) admits(n uint64, now Tick) bool {
	return m.counts.at(m.slot(now), m.most)+n <= m.limit
}

func (m *calendarModel) charge(n uint64, now Tick) { m.counts.add(m.slot(now), n) }

func (m *calendarModel) refund(n, _ uint64, at, _ Tick, entry bool) {
	m.counts.sub(m.slot(at), n, entry, m.most)
}

// calendarSpec returns a random limit with calendar windows.
func calendarSpec(c Choices) []limiter.Spec {
	s := limiter.Spec{Algorithm: limiter.FixedWindow, Limit: pick[int64](c, 1, 2, 3, 5, 10, 100)}
	s.Calendar = 1 + limiter.Calendar(c.Pick(int(limiter.CalendarQuarter)))
	s.Zone = pick(c, "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/Santiago")
	if s.Calendar >= limiter.CalendarDay {
		s.At = pick(c, 0, 0, 150*time.Minute, 6*time.Hour)
	}
	if s.Calendar == limiter.CalendarWeek {
		s.WeekStart = pick(c, limiter.Monday, limiter.Sunday)
	}
	if s.Calendar >= limiter.CalendarMonth {
		s.AnchorDay = pick(c, 1, 15, 29, 30, 31)
	}
	s.CountRejected = pick(c, limiter.CountNone, limiter.CountNone, limiter.CountRoom, limiter.CountAll)
	if c.Pick(6) == 0 {
		s.Block = time.Hour
	}
	return []limiter.Spec{s}
}
