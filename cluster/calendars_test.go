package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// clockZones have clocks that move in spring and autumn, at midnight, by half an hour, by two
// hours, or around Ramadan.
func clockZones() []string {
	return []string{
		"Europe/Berlin", "Europe/Dublin", "America/New_York", "America/Santiago", "America/St_Johns", "Africa/Cairo",
		"Africa/Casablanca", "Asia/Beirut", "Asia/Jerusalem", "Australia/Lord_Howe", "Pacific/Chatham", "Antarctica/Troll",
	}
}

// clockRules has a rule for each zone, with limits of each unit and anchor day. Those of
// hours and days deny some of what is asked below.
func clockRules() string {
	var b strings.Builder
	b.WriteString("version: 1\nrules:\n")
	for i, zone := range clockZones() {
		fmt.Fprintf(&b, "  - name: zone%d\n    key: [user]\n    limits:\n", i)
		for _, l := range []string{
			"limit: 90, calendar: minute", "limit: 3, calendar: hour", "limit: 9, calendar: day",
			"limit: 90, calendar: day, at: \"02:30\"",
			"limit: 90, calendar: week, week_start: sunday", "limit: 90, calendar: quarter, anchor_day: 30",
			"limit: 90, calendar: year, anchor_day: 29",
			"limit: 90, calendar: month, anchor_day: 1", "limit: 90, calendar: month, anchor_day: 15",
			"limit: 90, calendar: month, anchor_day: 29",
			"limit: 90, calendar: month, anchor_day: 30", "limit: 90, calendar: month, anchor_day: 31, at: \"23:59\"",
		} {
			name := strings.NewReplacer("limit: ", "", "calendar: ", "", ", ", "_", ": ", "", "\"", "", ":", "").Replace(l)
			fmt.Fprintf(&b, "      - {name: %s, %s, zone: %s}\n", name, l, zone)
		}
	}
	return b.String()
}

// clockMove is an instant near a change of a zone's clocks, or near a 29 February there.
type clockMove struct {
	at   time.Time
	zone int
}

// clockMoves returns those of 2026 to 2030, in their order.
func clockMoves(t *testing.T) (moves []clockMove) {
	t.Helper()
	for i, name := range clockZones() {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		near := func(at time.Time) {
			for _, d := range []time.Duration{-time.Microsecond, 0, 30 * time.Minute, time.Hour} {
				moves = append(moves, clockMove{at.Add(d), i})
			}
		}
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, zone)
		for range 100 {
			if _, at = at.ZoneBounds(); at.IsZero() || at.Year() > 2030 {
				break
			}
			near(at)
		}
		for day := range 2 {
			near(time.Date(2028, 2, 29+day, 0, 0, 0, 0, zone))
		}
	}
	slices.SortStableFunc(moves, func(a, b clockMove) int { return a.at.Compare(b.at) })
	return moves
}

// decided is what a decision says of its limits.
func decided(d *weir.Decision) string {
	var b strings.Builder
	fmt.Fprint(&b, d.Allowed, " ", d.RetryAfter)
	for i := range d.Len() {
		l := d.Limit(i)
		fmt.Fprintf(&b, "; %s %d left, reset %v, wait %v", l.FullName(), l.Remaining, l.ResetAfter, l.RetryAfter)
	}
	return b.String()
}

// Memory, three nodes and Redis decide alike at each change of the clocks from 2026 to 2030
// and around 29 February, in twelve zones, by limits of each unit and anchor day.
func TestCalendarsDecideAlike(t *testing.T) {
	c := new(seedClock)
	moves := clockMoves(t)
	c.set(moves[0].at.Add(-time.Hour))
	worlds := map[string]*seedWorld{}
	for mode, nodes := range seedModes(clockRules()) {
		worlds[mode] = &seedWorld{at: c, nodes: nodes(t, c)}
	}
	denied, zones := 0, map[int]bool{}
	for _, m := range moves {
		c.set(m.at)
		r := weir.Request{Rule: fmt.Sprint("zone", m.zone), User: "ada"}
		for range 2 {
			want := check(t, worlds["memory"].node(), r)
			for _, mode := range []string{"cluster", "redis"} {
				d := check(t, worlds[mode].node(), r)
				if d.Source.ByPolicy() {
					t.Fatalf("%s: %v decided", mode, d.Source)
				}
				if got, want := decided(d), decided(want); got != want {
					t.Fatalf("%v in %s:\n%s decides %s\nmemory %s", m.at, clockZones()[m.zone], mode, got, want)
				}
			}
			if !want.Allowed {
				denied++
			}
			zones[m.zone] = true
		}
	}
	if len(moves) < 12*11*4 || denied < 100 || len(zones) != 12 {
		t.Errorf("%d instants, %d denials, %d zones", len(moves), denied, len(zones))
	}
}

// What calendars do across a change of the clocks and a 29 February, as people would write
// it down, whoever decides.
func TestCalendarsByHand(t *testing.T) {
	file := `version: 1
rules:
  - {name: hours, match: {path: "^/hours"}, key: [user], limits: [{limit: 2, calendar: hour, zone: Europe/Berlin}]}
  - {name: days, match: {path: "^/days"}, key: [user], limits: [{limit: 2, calendar: day, zone: Europe/Berlin}]}
  - {name: gap, match: {path: "^/gap"}, key: [user], limits: [{limit: 2, calendar: day, at: "02:30", zone: Europe/Berlin}]}
  - {name: months, match: {path: "^/months"}, key: [user], limits: [{limit: 2, calendar: month, anchor_day: 31}]}
  - {name: years, match: {path: "^/years"}, key: [user], limits: [{limit: 2, calendar: year}]}
`
	of := func(path string) weir.Request { return weir.Request{Path: "/" + path, User: "ada"} }
	tellAll(t, map[string]story{
		"2028-02, a leap day": {file: file, begin: time.Date(2028, 2, 28, 12, 0, 0, 0, time.UTC), steps: []asking{
			{n: 3, r: of("months"), want: 2, by: "months/month", wait: 12 * time.Hour},
			{n: 3, r: of("years"), want: 2, by: "years/year", wait: (366-31-27)*24*time.Hour - 12*time.Hour},
			{after: 12*time.Hour - time.Microsecond, n: 1, r: of("months"), by: "months/month", wait: time.Microsecond},
			{after: time.Microsecond, n: 3, r: of("months"), want: 2, by: "months/month", wait: 31 * 24 * time.Hour},
			{after: 24 * time.Hour, n: 1, r: of("months"), by: "months/month", wait: 30 * 24 * time.Hour},
		}},
		// 00:00 in Berlin
		"2028-03, a day of 23 hours": {file: file, begin: time.Date(2028, 3, 25, 23, 0, 0, 0, time.UTC), steps: []asking{
			{n: 3, r: of("days"), want: 2, by: "days/day", wait: 23 * time.Hour},
			{n: 3, r: of("gap"), want: 2, by: "gap/day", wait: 2 * time.Hour}, // to 03:00 there
			{after: 2*time.Hour - time.Microsecond, n: 3, r: of("hours"), want: 2, by: "hours/hour", wait: time.Microsecond},
			{after: time.Microsecond, n: 3, r: of("hours"), want: 2, by: "hours/hour", wait: time.Hour},
			{n: 3, r: of("gap"), want: 2, by: "gap/day", wait: 23*time.Hour + 30*time.Minute},
			{after: 21*time.Hour - time.Microsecond, n: 1, r: of("days"), by: "days/day", wait: time.Microsecond},
			{after: time.Microsecond, n: 3, r: of("days"), want: 2, by: "days/day", wait: 24 * time.Hour},
		}},
		// 00:00 in Berlin
		"2028-10, a day of 25 hours": {file: file, begin: time.Date(2028, 10, 28, 22, 0, 0, 0, time.UTC), steps: []asking{
			{n: 3, r: of("days"), want: 2, by: "days/day", wait: 25 * time.Hour},
			// the first 02:15
			{after: 2*time.Hour + 15*time.Minute, n: 3, r: of("hours"), want: 2, by: "hours/hour", wait: 45 * time.Minute},
			// the second
			{after: time.Hour, n: 3, r: of("hours"), want: 2, by: "hours/hour", wait: 45 * time.Minute},
			// since the first 02:30
			{n: 3, r: of("gap"), want: 2, by: "gap/day", wait: 24*time.Hour + 15*time.Minute},
			{after: 21*time.Hour + 45*time.Minute - time.Microsecond, n: 1, r: of("days"), by: "days/day",
				wait: time.Microsecond},
			{after: time.Microsecond, n: 3, r: of("days"), want: 2, by: "days/day", wait: 24 * time.Hour},
		}},
	})
}
