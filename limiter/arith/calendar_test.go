package arith_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/weirlimit/weir/limiter"
	. "github.com/weirlimit/weir/limiter/arith"
)

func berlinDay(t testing.TB, limit int64) *Limit {
	t.Helper()
	l, err := NewLimit(Spec{Limit: limit, Calendar: CalendarDay, Zone: "Europe/Berlin"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func tickOf(t testing.TB, text string) Tick {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return TickOf(at)
}

// What a calendar cannot be is said, with the field.
func TestCalendarProblems(t *testing.T) {
	ok := Spec{Limit: 5, Calendar: CalendarMonth, Zone: "Europe/Berlin", AnchorDay: 31, At: 6 * time.Hour}
	if _, err := NewLimit(ok); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		field, text string
		change      func(*Spec)
	}{
		{"algorithm", "gcra has no calendar windows", func(s *Spec) { s.Algorithm = GCRA }},
		{"window", "window 1h0m0s and calendar month exclude each other", func(s *Spec) { s.Window = time.Hour }},
		{"align", "align first_hit and calendar month exclude", func(s *Spec) {
			s.Algorithm, s.Align = FixedWindow, AlignFirstHit
		}},
		{"calendar", "no calendar number 9", func(s *Spec) { s.Calendar = 9 }},
		{"zone", `no time zone "Europe/Berlln" in the time zone database`, func(s *Spec) { s.Zone = "Europe/Berlln" }},
		{"zone", `no time zone "Local"`, func(s *Spec) { s.Zone = "Local" }},
		{"anchor_day", "anchor_day 32 is out of range", func(s *Spec) { s.AnchorDay = 32 }},
		{"anchor_day", "for calendar month, quarter and year, not for day", func(s *Spec) { s.Calendar = CalendarDay }},
		{"at", "at 24h0m0s is not valid", func(s *Spec) { s.At = 24 * time.Hour }},
		{"at", "at 1s is not valid", func(s *Spec) { s.At = time.Second }},
		{"at", "for calendar day and longer units, not for hour", func(s *Spec) {
			s.Calendar, s.AnchorDay = CalendarHour, 0
		}},
		{"week_start", "for calendar week, not for month", func(s *Spec) { s.WeekStart = Sunday }},
		{"week_start", "no weekday number 7", func(s *Spec) { s.Calendar, s.AnchorDay, s.WeekStart = CalendarWeek, 0, 7 }},
		{"zone", `zone is an option of calendar windows: add "calendar: month"`, func(s *Spec) {
			*s = Spec{Limit: 1, Window: time.Hour, Zone: "UTC"}
		}},
	} {
		s := ok
		c.change(&s)
		problems := s.Problems()
		if len(problems) != 1 || problems[0].Field != c.field || !strings.Contains(problems[0].Text, c.text) {
			t.Errorf("%+v: %v, want %s: %s", s, problems, c.field, c.text)
		}
		if _, err := NewLimit(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// A calendar has the name of its unit, is what its spec says, and differs from others.
func TestCalendarLimits(t *testing.T) {
	base := Spec{Limit: 5, Calendar: CalendarMonth}
	specs := []Spec{base}
	for _, change := range []func(*Spec){
		func(s *Spec) { s.Zone = "Europe/Berlin" }, func(s *Spec) { s.AnchorDay = 15 }, func(s *Spec) { s.At = time.Hour },
		func(s *Spec) { s.Calendar = CalendarQuarter }, func(s *Spec) { s.Calendar = CalendarWeek },
		func(s *Spec) { s.Calendar, s.WeekStart = CalendarWeek, Sunday },
		func(s *Spec) { s.Calendar, s.Algorithm, s.Window = 0, FixedWindow, 31*24*time.Hour },
	} {
		s := base
		s.Name = "month"
		change(&s)
		specs = append(specs, s)
	}
	seen := map[uint64]Spec{}
	for _, s := range specs {
		l, err := NewLimit(s)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		again, err := NewLimit(l.Spec())
		if err != nil || !again.Equal(l) || ParamsID(again) != ParamsID(l) {
			t.Errorf("%+v: its spec makes another limit: %v", s, err)
		}
		if scaled := Scaled(Scaled(l, 3, 1), 1, 3); !scaled.Equal(l) || scaled.String() != l.String() {
			t.Errorf("%v scaled is %v", l, scaled)
		}
		if other, found := seen[ParamsID(l)]; found {
			t.Errorf("%+v and %+v have one ID", s, other)
		}
		seen[ParamsID(l)] = s
	}
	l, err := NewLimit(Spec{Limit: 5, Calendar: CalendarMonth, AnchorDay: 15, At: 6 * time.Hour, Zone: "Europe/Berlin"})
	if err != nil {
		t.Fatal(err)
	}
	if text := l.String(); text != "fixed_window 5/calendar month, zone Europe/Berlin, anchor_day 15, at 06:00" {
		t.Error(text)
	}
	if l.Name() != "month" || l.Period() != "calendar month" || l.Window() != 31*24*time.Hour ||
		l.Algorithm() != FixedWindow {
		t.Errorf("%s, %s, %v, %v", l.Name(), l.Period(), l.Window(), l.Algorithm())
	}
}

// A counter that moves between clocks that differ keeps its window, in the last hour of a
// day of 25 hours too. At a clock that is behind, the window lies ahead and counts on.
func TestCalendarMoves(t *testing.T) {
	l := berlinDay(t, 5)
	begin := tickOf(t, "2026-10-25T00:00:00+02:00")
	for _, c := range []struct {
		at, ahead Tick // of the receiver's clock
	}{{begin + 10*Second, 5 * Second}, {begin + 10*Second, -5 * Second}, {begin + 24*Hour + 59*Minute, 20 * Second},
		{begin + Second, -5 * Second}} {
		var s State
		s.Roll(l, nil, c.at)
		s.Charge(l, nil, c.at, 5)
		s.Export(l, nil, c.at)
		if err := s.CheckExported(l, nil); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		now := c.at + c.ahead
		s.Import(l, nil, now+10*Millisecond)
		if s.Time != begin || s.A != 5 {
			t.Errorf("%+v: the window begins at %v with %d", c, s.Time.Time(), s.A)
		}
		if at := s.EmptyAt(l, nil); at != begin+25*Hour {
			t.Errorf("%+v: it ends at %v", c, at.Time())
		}
		var out LimitDecision
		out.Cost = 1
		if s.Probe(l, nil, now, &out); out.Allowed {
			t.Errorf("%+v: a sixth unit is admitted", c)
		}
	}
	s := State{Time: -50 * Hour, A: 1}
	if err := s.CheckExported(l, nil); err == nil {
		t.Error("a day that began 50 hours ago is taken")
	}
}

// Two lineages of a counter, one of which is in the next window: the larger counts.
func TestCalendarMerge(t *testing.T) {
	l := berlinDay(t, 5)
	begin := tickOf(t, "2026-03-29T00:00:00+01:00")
	next := begin + 23*Hour
	var one, other State
	one.Roll(l, nil, next-Second)
	one.Charge(l, nil, next-Second, 4)
	other.Roll(l, nil, next+Second)
	other.Charge(l, nil, next+Second, 2)
	one.Merge(l, nil, &other, nil, next-Second)
	if one.Time != next || one.A != 2 || one.B != 4 {
		t.Errorf("merged: %+v", one)
	}
	one.Roll(l, nil, next)
	if one.A != 2 || one.B != 0 || one.EmptyAt(l, nil) != next+24*Hour {
		t.Errorf("in the next window: %+v, empty at %v", one, one.EmptyAt(l, nil).Time())
	}
}

// A check of a calendar window allocates nothing.
func TestCalendarAllocatesNothing(t *testing.T) {
	c, now := NewCounter(berlinDay(t, 1000)), tickOf(t, "2026-03-29T00:00:00+01:00")
	var d Decision
	c.Check(now, 1, &d)
	if n := testing.AllocsPerRun(100, func() { now += Second; c.Check(now, 1, &d) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkFixed(b *testing.B) {
	fixed, err := NewLimit(Spec{Limit: MaxUnits, Algorithm: FixedWindow, Window: 24 * time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	for name, l := range map[string]*Limit{"epoch": fixed, "calendar": berlinDay(b, MaxUnits)} {
		b.Run(name, func(b *testing.B) {
			c, now := NewCounter(l), tickOf(b, "2026-03-29T00:00:00+01:00")
			var d Decision
			for b.Loop() {
				now += Millisecond
				c.Check(now, 1, &d)
			}
		})
	}
}

// A counter whose limit gets another calendar counts in the present window of the new
// one, even if that began after the old one's.
func TestCalendarChanges(t *testing.T) {
	of := func(anchor int) *Limit {
		l, err := NewLimit(Spec{Limit: 5, Calendar: CalendarMonth, AnchorDay: anchor})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	c, now := NewCounter(of(1)), tickOf(t, "2026-03-20T00:00:00Z")
	var d Decision
	c.Check(now, 4, &d)
	c.SetLimits(of(15))
	c.Check(now, 2, &d)
	if wait := tickOf(t, "2026-04-15T00:00:00Z") - now; d.Allowed || Span(d.RetryAfter) != wait {
		t.Errorf("4 of 5 used, and a cost of 2: allowed %v, retry after %v; want %v", d.Allowed, d.RetryAfter,
			wait.Duration())
	}
}
