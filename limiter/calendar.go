package limiter

import (
	"cmp"
	"fmt"
	"time"

	"github.com/weirlimit/weir/limiter/calendar"
)

// A calendar window is a fixed window whose bounds come from a calendar: see package
// calendar, the only place where they are computed. The state is that of a fixed window.

// Calendar is the unit of calendar windows.
type Calendar uint8

// The units. The zero value is the default: windows have a fixed length.
const (
	CalendarNone Calendar = iota
	CalendarMinute
	CalendarHour
	CalendarDay
	CalendarWeek
	CalendarMonth
	CalendarQuarter
	CalendarYear
)

// String returns the unit's name in a rules file.
func (c Calendar) String() string {
	return nameOf([]string{"none", "minute", "hour", "day", "week", "month", "quarter", "year"}, int(c))
}

// Weekday is the day on which calendar weeks begin.
type Weekday uint8

// The days. The zero value is the default.
const (
	Monday Weekday = iota
	Tuesday
	Wednesday
	Thursday
	Friday
	Saturday
	Sunday
)

// String returns the day's name in a rules file.
func (d Weekday) String() string {
	return nameOf([]string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}, int(d))
}

// DefaultZone is the time zone of calendar windows if a spec has none.
const DefaultZone = calendar.UTC

// ZoneDataVersion returns the release of the time zone database that the program
// embeds, such as "2025c". Deciders with different releases may differ about the bounds
// of calendar windows.
func ZoneDataVersion() string { return calendar.Version() }

// longest returns the nominal length of the longest window of a unit.
func (c Calendar) longest() Tick {
	return [...]Tick{0, Minute, Hour, Day, Week, 31 * Day, 92 * Day, 366 * Day}[c]
}

// calendar returns the part of a valid spec that determines its windows.
func (s *Spec) calendar() calendar.Spec {
	if s.Calendar == CalendarNone {
		return calendar.Spec{}
	}
	c := calendar.Spec{Unit: calendar.Unit(s.Calendar), Zone: s.Zone}
	c.Zone = cmp.Or(c.Zone, DefaultZone)
	if s.Calendar >= CalendarDay {
		c.At = uint16(s.At / time.Minute)
	}
	if s.Calendar == CalendarWeek {
		c.WeekStart = uint8(s.WeekStart)
	}
	if s.Calendar >= CalendarMonth {
		c.AnchorDay = uint8(max(1, s.AnchorDay))
	}
	return c
}

func (s *Spec) calendarProblems(bad func(field, format string, args ...any)) {
	if s.Calendar > CalendarYear {
		bad("calendar", "there is no calendar number %d", s.Calendar)
		return
	}
	if s.Calendar == CalendarNone {
		for _, f := range []struct {
			name  string
			given bool
		}{{"zone", s.Zone != ""}, {"anchor_day", s.AnchorDay != 0}, {"at", s.At != 0}, {"week_start", s.WeekStart != 0}} {
			if f.given {
				bad(f.name, "%s is an option of calendar windows: add \"calendar: month\" or another unit, without a window",
					f.name)
			}
		}
		return
	}
	if s.Algorithm != FixedWindow && s.Algorithm != SlidingCounter {
		bad("algorithm", "%s has no calendar windows: they are windows of fixed_window", s.Algorithm)
	}
	if s.Window != 0 {
		bad("window", "window %v and calendar %s exclude each other: a calendar window is as long as the %s is", s.Window,
			s.Calendar, s.Calendar)
	}
	if s.Align != AlignEpoch {
		bad("align", "align %s and calendar %s exclude each other: the calendar says where windows begin", s.Align,
			s.Calendar)
	}
	if s.Zone != "" && !calendar.Known(s.Zone) {
		bad("zone", "there is no time zone %.100q in the time zone database %s: give an IANA name, such as Europe/Berlin "+
			"or UTC", s.Zone, ZoneDataVersion())
	}
	switch {
	case s.AnchorDay < 0 || s.AnchorDay > 31:
		bad("anchor_day", "anchor_day %d is out of range: give 1 to 31; 29 to 31 are the last day of shorter months",
			s.AnchorDay)
	case s.AnchorDay != 0 && s.Calendar < CalendarMonth:
		bad("anchor_day", "anchor_day is for calendar month, quarter and year, not for %s", s.Calendar)
	}
	switch {
	case s.At < 0 || s.At >= 24*time.Hour || s.At%time.Minute != 0:
		bad("at", "at %v is not valid: give a time of day from 00:00 to 23:59", s.At)
	case s.At != 0 && s.Calendar < CalendarDay:
		bad("at", "at is for calendar day and longer units, not for %s", s.Calendar)
	}
	switch {
	case s.WeekStart > Sunday:
		bad("week_start", "there is no weekday number %d: 0 is Monday, 6 is Sunday", s.WeekStart)
	case s.WeekStart != Monday && s.Calendar != CalendarWeek:
		bad("week_start", "week_start is for calendar week, not for %s", s.Calendar)
	}
}

// DefaultName returns the name of a limit whose spec has none: the calendar's unit, or
// the name of the window.
func (s *Spec) DefaultName() string {
	if s.Calendar != CalendarNone {
		return s.Calendar.String()
	}
	if s.Algorithm == Concurrency {
		return s.Algorithm.String()
	}
	return WindowName(s.Window)
}

// Calendar returns the unit of the limit's calendar windows, CalendarNone if its windows
// have a fixed length.
func (l *Limit) Calendar() Calendar { return Calendar(l.C.P.Calendar.Unit) }

// Period returns the window in words: "minute", "15m", "calendar month".
func (l *Limit) Period() string {
	if l.C.Cal != nil {
		return "calendar " + l.Calendar().String()
	}
	return WindowName(l.C.Window.Duration())
}

func (l *Limit) calendarText() string {
	c := &l.C.P.Calendar
	text := ", zone " + c.Zone
	if l.Calendar() >= CalendarMonth {
		text += fmt.Sprintf(", anchor_day %d", c.AnchorDay)
	}
	if l.Calendar() == CalendarWeek {
		text += ", week_start " + Weekday(c.WeekStart).String()
	}
	if c.At != 0 {
		text += fmt.Sprintf(", at %02d:%02d", c.At/60, c.At%60)
	}
	return text
}
