package calendar

import (
	"fmt"
	"slices"
	"sort"
	"testing"
	"time"
)

// zones have clocks that move at midnight, by half an hour or two hours, in winter, twice
// around Ramadan, or never, and offsets that are no whole hours.
func zones() []string {
	return []string{
		"UTC", "Europe/Berlin", "America/New_York", "America/Santiago", "America/St_Johns", "Africa/Cairo",
		"Africa/Casablanca", "Asia/Beirut", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Chatham",
		"Antarctica/Troll", "Europe/Dublin", "Asia/Jerusalem",
	}
}

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := find(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone.location
}

// The reference below uses package time only: it looks at what the clocks of a zone show,
// minute by minute.

// shows returns what the clocks show, as if the zone were UTC.
func shows(at time.Time) time.Time {
	y, m, d := at.Date()
	return time.Date(y, m, d, at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), time.UTC)
}

// firstShown returns the first minute in which the clocks show a date and time or more.
func firstShown(zone *time.Location, y int, m time.Month, d, at int) time.Time {
	want := time.Date(y, m, d, at/60, at%60, 0, 0, time.UTC)
	guess := time.Date(y, m, d, at/60, at%60, 0, 0, zone)
	from := guess.Add(-4 * time.Hour)
	if shows(guess).Equal(want) && offset(from) == offset(guess) && offset(guess.Add(4*time.Hour)) == offset(guess) {
		return guess // the clocks do not move near it
	}
	for u := from; ; u = u.Add(time.Minute) {
		if !shows(u).Before(want) {
			return u
		}
	}
}

func offset(t time.Time) int {
	_, o := t.Zone()
	return o
}

// moves returns the instants at which the clocks are moved.
func moves(zone *time.Location, from, until time.Time) (out []time.Time) {
	for u := from; u.Before(until); u = u.Add(time.Hour) {
		if offset(u.In(zone)) == offset(u.Add(time.Hour).In(zone)) {
			continue
		}
		v := u
		for offset(v.In(zone)) == offset(u.In(zone)) {
			v = v.Add(time.Minute)
		}
		out = append(out, v)
	}
	return out
}

// beginnings returns the beginnings of all windows of a calendar around some years.
func beginnings(t *testing.T, s Spec, zone *time.Location, fromYear, toYear int) (out []time.Time) {
	t.Helper()
	add := func(y int, m time.Month, d int) { out = append(out, firstShown(zone, y, m, d, int(s.At))) }
	last := func(y int, m time.Month) int { return time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day() }
	switch s.Unit {
	case Day, Week:
		for day := time.Date(fromYear, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() <= toYear; day = day.AddDate(0, 0, 1) {
			if s.Unit == Day || (int(day.Weekday())+6)%7 == int(s.WeekStart) {
				add(day.Date())
			}
		}
	default:
		step := map[Unit]int{Month: 1, Quarter: 3, Year: 12}[s.Unit]
		for y := fromYear; y <= toYear; y++ {
			for m := 1; m <= 12; m += step {
				add(y, time.Month(m), min(int(s.AnchorDay), last(y, time.Month(m))))
			}
		}
	}
	if !slices.IsSortedFunc(out, time.Time.Compare) {
		t.Fatalf("%+v: the reference is not in order", s)
	}
	return slices.CompactFunc(out, time.Time.Equal)
}

// shortBeginnings returns the beginnings of the minutes or hours from an instant on.
func shortBeginnings(s Spec, zone *time.Location, from, until time.Time) (out []time.Time) {
	for u := from; u.Before(until); u = u.Add(time.Minute) {
		local, before := u.In(zone), u.Add(-time.Minute).In(zone)
		if s.Unit == Minute || local.Minute() == 0 || offset(local) != offset(before) {
			out = append(out, u)
		}
	}
	return out
}

// agrees compares the windows of some instants with the reference.
func agrees(t *testing.T, c *Calendar, begin []time.Time, at ...time.Time) {
	t.Helper()
	for _, x := range at {
		i := sort.Search(len(begin), func(i int) bool { return begin[i].After(x) })
		if i < 2 || i+1 >= len(begin) {
			t.Fatalf("%+v: the reference does not reach %v", c.spec, x)
		}
		want := Bounds{begin[i-2].UnixMicro(), begin[i-1].UnixMicro(), begin[i].UnixMicro(), begin[i+1].UnixMicro()}
		start, end := c.Window(x.UnixMicro())
		if start != want[1] || end != want[2] {
			t.Fatalf("%+v at %v: %v to %v, want %v to %v", c.spec, x, time.UnixMicro(start).In(c.zone.location),
				time.UnixMicro(end).In(c.zone.location),
				begin[i-1].In(c.zone.location), begin[i].In(c.zone.location))
		}
		if got := c.Around(x.UnixMicro()); got != want {
			t.Fatalf("%+v at %v: bounds %v, want %v", c.spec, x, got, want)
		}
	}
}

// near returns instants around one: a microsecond before and after, and so on.
func near(at time.Time) (out []time.Time) {
	for _, d := range []time.Duration{0, time.Microsecond, 30 * time.Minute, 90 * time.Minute, 24 * time.Hour} {
		out = append(out, at.Add(-d), at.Add(d))
	}
	return out
}

// Every change of the clocks from 2026 to 2030, and every 29 February, in every zone, for
// every unit: the windows are those of the reference.
func TestEveryMoveOfTheClocks(t *testing.T) {
	from, until := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	seen := 0
	for _, name := range zones() {
		zone := location(t, name)
		at := append(moves(zone, from, until), time.Date(2028, 2, 29, 12, 0, 0, 0, time.UTC), from, until)
		seen += len(at) - 3
		for _, unit := range []Unit{Minute, Hour} {
			c := calendarOf(t, Spec{Unit: unit, Zone: name})
			for _, x := range at {
				begin := shortBeginnings(c.spec, zone, x.Add(-30*time.Hour).Truncate(time.Hour), x.Add(30*time.Hour))
				agrees(t, c, begin, near(x)...)
			}
		}
		var specs []Spec
		for _, minutes := range []uint16{0, 90, 150, 6 * 60, 23*60 + 59} {
			specs = append(specs, Spec{Unit: Day, At: minutes}, Spec{Unit: Week, At: minutes},
				Spec{Unit: Week, WeekStart: 6, At: minutes})
			for _, day := range []uint8{1, 15, 29, 30, 31} {
				for _, unit := range []Unit{Month, Quarter, Year} {
					specs = append(specs, Spec{Unit: unit, AnchorDay: day, At: minutes})
				}
			}
		}
		for _, s := range specs {
			s.Zone = name
			years := 1
			if s.Unit >= Quarter {
				years = 3
			}
			begin := beginnings(t, s, zone, 2026-years, 2030+years)
			c := calendarOf(t, s)
			for _, x := range at {
				agrees(t, c, begin, near(x)...)
			}
			for _, x := range begin {
				if s.Unit > Day && x.After(from) && x.Before(until) {
					agrees(t, c, begin, x.Add(-time.Microsecond), x)
				}
			}
		}
	}
	if seen < 90 {
		t.Errorf("only %d moves of the clocks were seen", seen)
	}
}

func calendarOf(t *testing.T, s Spec) *Calendar {
	t.Helper()
	c, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Days and hours at the clocks' moves, as people would write them down.
func TestWindowsByHand(t *testing.T) {
	for _, c := range []struct {
		spec   Spec
		at     string
		window string
	}{
		{Spec{Unit: Day, Zone: "Europe/Berlin"}, "2026-03-29T12:00:00+02:00", "2026-03-29T00:00:00+01:00 23h0m0s"},
		{Spec{Unit: Day, Zone: "Europe/Berlin"}, "2026-10-25T12:00:00+01:00", "2026-10-25T00:00:00+02:00 25h0m0s"},
		// 02:30 does not exist: the first instant after the gap.
		{Spec{Unit: Day, Zone: "Europe/Berlin", At: 150}, "2026-03-29T12:00:00+02:00", "2026-03-29T03:00:00+02:00 23h30m0s"},
		// 02:30 exists twice: the first one.
		{Spec{Unit: Day, Zone: "Europe/Berlin", At: 150}, "2026-10-25T12:00:00+01:00", "2026-10-25T02:30:00+02:00 25h0m0s"},
		// The day begins at 01:00, since its midnight does not exist.
		{Spec{Unit: Day, Zone: "Africa/Cairo"}, "2026-04-24T12:00:00+03:00", "2026-04-24T01:00:00+03:00 23h0m0s"},
		{Spec{Unit: Hour, Zone: "Europe/Berlin"}, "2026-10-25T02:15:00+02:00", "2026-10-25T02:00:00+02:00 1h0m0s"},
		{Spec{Unit: Hour, Zone: "Europe/Berlin"}, "2026-10-25T02:15:00+01:00", "2026-10-25T02:00:00+01:00 1h0m0s"},
		{Spec{Unit: Hour, Zone: "Asia/Kathmandu"}, "2026-10-25T02:20:00+05:45", "2026-10-25T02:00:00+05:45 1h0m0s"},
		// The clocks go from 02:00 back to 01:30.
		{Spec{Unit: Hour, Zone: "Australia/Lord_Howe"}, "2026-04-05T01:45:00+11:00", "2026-04-05T01:00:00+11:00 1h0m0s"},
		{Spec{Unit: Hour, Zone: "Australia/Lord_Howe"}, "2026-04-05T01:45:00+10:30", "2026-04-05T01:30:00+10:30 30m0s"},
		{Spec{Unit: Month, AnchorDay: 31, Zone: "UTC"}, "2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z 744h0m0s"},
		{Spec{Unit: Month, AnchorDay: 31, Zone: "UTC"}, "2028-02-28T23:59:59Z", "2028-01-31T00:00:00Z 696h0m0s"},
		{Spec{Unit: Month, AnchorDay: 15, At: 360, Zone: "Europe/Berlin"}, "2026-04-15T05:59:59+02:00",
			"2026-03-15T06:00:00+01:00 743h0m0s"},
		{Spec{Unit: Year, AnchorDay: 1, Zone: "UTC"}, "2028-07-01T00:00:00Z", "2028-01-01T00:00:00Z 8784h0m0s"},
		// 30 December 2011 did not exist in Samoa.
		{Spec{Unit: Day, Zone: "Pacific/Apia"}, "2011-12-31T12:00:00+14:00", "2011-12-31T00:00:00+14:00 24h0m0s"},
		{Spec{Unit: Day, Zone: "Pacific/Apia"}, "2011-12-29T12:00:00-10:00", "2011-12-29T00:00:00-10:00 24h0m0s"},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		cal := calendarOf(t, c.spec)
		start, end := cal.Window(at.UnixMicro())
		got := fmt.Sprint(time.UnixMicro(start).In(cal.zone.location).Format(time.RFC3339), " ",
			time.Duration(end-start)*time.Microsecond)
		if got != c.window {
			t.Errorf("%+v at %s: %s, want %s", c.spec, c.at, got, c.window)
		}
	}
}

// Every zone of the database can be read, and its windows follow each other from 1970 on.
func TestEveryZone(t *testing.T) {
	if len(index()) < 590 {
		t.Fatalf("the database has only %d zones", len(index()))
	}
	for name := range index() {
		for _, s := range []Spec{{Unit: Hour}, {Unit: Day}, {Unit: Month, AnchorDay: 31}} {
			s.Zone = name
			c := calendarOf(t, s)
			at := int64(-1) // before the epoch
			for range 6 {
				start, end := c.Window(at)
				if start > at || end <= at {
					t.Fatalf("%+v at %d: %d to %d", s, at, start, end)
				}
				if s.Unit == Hour && end-start > 3600e6 {
					t.Fatalf("%+v: an hour of %d us", s, end-start)
				}
				if next, _ := c.Window(end); next != end {
					t.Fatalf("%+v: a window ends at %d and the next begins at %d", s, end, next)
				}
				at = end + 4000*secondsOfDay*1e6
			}
		}
	}
}

func TestZones(t *testing.T) {
	for _, name := range []string{"Local", "local", "Mars/Olympus", "../etc/passwd", "europe/berlin", "Europe/",
		"Europe"} {
		if _, err := New(Spec{Unit: Day, Zone: name}); err == nil {
			t.Errorf("%q is a zone", name)
		}
	}
	for _, name := range []string{"", "UTC", "Etc/UTC", "Europe/Berlin"} {
		if _, err := New(Spec{Unit: Day, Zone: name}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if v := Version(); len(v) != 5 {
		t.Errorf("version %q", v)
	}
}

// A check computes no date: the window is found in the memory.
func TestNoAllocations(t *testing.T) {
	c := calendarOf(t, Spec{Unit: Month, AnchorDay: 15, Zone: "Europe/Berlin"})
	at := time.Date(2026, 3, 20, 0, 0, 0, 0, time.UTC).UnixMicro()
	_, end := c.Window(at)
	if n := testing.AllocsPerRun(100, func() { c.Window(at); c.Window(end); c.Window(at - 10*secondsOfDay*1e6) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkWindow(b *testing.B) {
	c, err := New(Spec{Unit: Month, AnchorDay: 15, Zone: "Europe/Berlin"})
	if err != nil {
		b.Fatal(err)
	}
	at := time.Date(2026, 3, 20, 0, 0, 0, 0, time.UTC).UnixMicro()
	b.Run("known", func(b *testing.B) {
		for b.Loop() {
			c.Window(at)
		}
	})
	b.Run("computed", func(b *testing.B) {
		for b.Loop() {
			c.compute(at / 1e6)
		}
	})
}
