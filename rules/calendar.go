package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// fits reports whether an option of calendar windows has an effect on those of a unit.
func (o *option) fits(unit limiter.Calendar) bool {
	switch o.name {
	case "anchor_day":
		return unit >= limiter.CalendarMonth
	case "week_start":
		return unit == limiter.CalendarWeek
	case "at":
		return unit >= limiter.CalendarDay
	default:
		return unit != limiter.CalendarNone
	}
}

// calendarAlgorithm makes fixed_window the algorithm of a limit with a calendar,
// whatever algorithm it inherits. It must not set another one itself.
func (d limiting) calendarAlgorithm(s *spec, own []setting) {
	if s.Calendar == limiter.CalendarNone {
		return
	}
	for _, o := range own {
		if o.option.name == "algorithm" && s.Algorithm != limiter.FixedWindow {
			d.add(o.value, "%s has no calendar windows: leave the algorithm out, or write fixed_window", s.Algorithm)
		}
	}
	s.Algorithm = limiter.FixedWindow
}

// calendarField decodes the unit of a limit's calendar.
func (d limiting) calendarField(v *node, s *spec) {
	d.limitField(v, s, "calendar", func() string {
		units := namesOf[limiter.Calendar]()
		i := slices.Index(units, v.Text)
		if i < 1 {
			return unknown("unit", v.Text, units[1:])
		}
		s.Calendar = limiter.Calendar(i)
		return ""
	})
}

// calendarProblem returns what is wrong with one option of calendar windows.
func calendarProblem(s *limiter.Spec, field string) string {
	probe := limiter.Spec{Limit: 1, Calendar: limiter.CalendarMonth, Zone: s.Zone, AnchorDay: s.AnchorDay}
	for _, p := range probe.Problems() {
		if p.Field == field {
			return p.Text
		}
	}
	return ""
}

// notOfCalendar is the error for an option of calendars that has no effect with a unit, or
// without one.
func notOfCalendar(unit limiter.Calendar, name string) string {
	probe := limiter.Spec{Limit: 1, Calendar: unit, Zone: "UTC", AnchorDay: 1, At: time.Hour, WeekStart: limiter.Sunday}
	if unit == limiter.CalendarNone {
		probe.Window = time.Hour
	}
	for _, p := range probe.Problems() {
		if p.Field == name {
			return p.Text
		}
	}
	return quote(name) + " has no effect here; remove it" // cannot be: the option does not fit
}

// setAt decodes a time of day.
func setAt(s *limiter.Spec, n *node) string {
	t, err := time.Parse("15:04", n.Text)
	if err != nil || len(n.Text) != len("15:04") {
		return fmt.Sprintf(`at: %s is not a time of day: write two digits each for hour and minute, in quotes, as in "06:00"`,
			quote(n.Text))
	}
	s.At = time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute
	return ""
}
