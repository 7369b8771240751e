package rules_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// A calendar is fixed_window whatever the defaults say, takes the zone and the time of
// the defaults as far as its unit uses them, and what cannot be is said at its place.
func TestCalendarsInFiles(t *testing.T) {
	set, err := rules.Parse("f", []byte(`
version: 1
defaults: {algorithm: token_bucket, burst: 7, align: first_hit, zone: Europe/Berlin, at: "06:00", anchor_day: 15}
rules:
  - name: a
    limits:
      - {limit: 5, calendar: month}
      - {limit: 4, calendar: hour, name: hourly}
      - {limit: 3, calendar: week, week_start: sunday, zone: UTC, at: "00:00"}
      - 2/day
`), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var c arith.Charge
	if _, err := set.Resolve(&limiter.Request{Path: "/"}, &c); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"fixed_window 5/calendar month, zone Europe/Berlin, anchor_day 15, at 06:00",
		"fixed_window 4/calendar hour, zone Europe/Berlin",
		"fixed_window 3/calendar week, zone UTC, week_start sunday",
		"token_bucket 2/day, burst 7",
	}
	for i, l := range c.Key(0).Rule.Limits {
		if l.String() != want[i] {
			t.Errorf("got %s, want %s", l, want[i])
		}
	}
	for limit, want := range map[string]string{
		`{limit: 5, calendar: month, window: 1h}`:                 `window 1h0m0s and calendar month exclude each other`,
		`{limit: 5, calendar: month, algorithm: gcra}`:            `gcra has no calendar windows`,
		`{limit: 5, calendar: month, algorithm: sliding_counter}`: `sliding_counter has no calendar windows`,
		`{limit: 5, calendar: month, align: first_hit}`:           `align and calendar exclude each other`,
		`{limit: 5, calendar: mnoth}`:                             `calendar: unknown unit "mnoth"; did you mean "month"?`,
		`{limit: 5, calendar: none}`:                              `calendar: unknown unit "none"`,
		`{limit: 5, calendar: day, zone: Berlin}`:                 `there is no time zone "Berlin"`,
		`{limit: 5, calendar: day, anchor_day: 15}`: `anchor_day is for calendar month, quarter and year, ` +
			`not for day`,
		`{limit: 5, calendar: month, anchor_day: 32}`: `anchor_day 32 is out of range`,
		`{limit: 5, calendar: hour, at: "06:00"}`:     `at is for calendar day and longer units, not for hour`,
		`{limit: 5, calendar: day, at: "6am"}`:        `at: "6am" is not a time of day`,
		`{limit: 5, window: 1h, zone: UTC}`:           `zone is an option of calendar windows`,
		`{limit: 5, calendar: week, week_start: sun}`: `unknown weekday "sun"`,
	} {
		_, err := rules.Parse("f", []byte("rules: [{name: a, limits: ["+limit+"]}]"), rules.Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: %v, want %s", limit, err, want)
		}
	}
}

// Two files differ if their calendars do, and not otherwise.
func TestCalendarsInTheHash(t *testing.T) {
	hash := func(limit string) uint64 {
		set, err := rules.Parse("f", []byte("rules: [{name: a, limits: ["+limit+"]}]"), rules.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return set.Hash()
	}
	seen := map[uint64]string{}
	for _, limit := range []string{
		"{limit: 5, calendar: month}", "{limit: 5, calendar: month, anchor_day: 2}",
		"{limit: 5, calendar: month, zone: Europe/Berlin}",
		`{limit: 5, calendar: month, at: "06:00"}`, "{limit: 5, calendar: year, name: month}",
		"{limit: 5, window: month, algorithm: fixed_window}",
	} {
		h := hash(limit)
		if other := seen[h]; other != "" {
			t.Errorf("%s and %s have one hash", limit, other)
		}
		seen[h] = limit
	}
	if hash("{limit: 5, calendar: month}") != hash(`{limit: 5, calendar: month, zone: UTC, anchor_day: 1, at: "00:00"}`) {
		t.Error("a default that is written out makes another hash")
	}
}
