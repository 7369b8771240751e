package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/limiter"
)

// withForm returns a file whose limit has a form.
func withForm(limit, form string) string {
	return fmt.Sprintf("domain: d\ndescriptors:\n  - {key: a, rate_limit: {%s}, metadata: {plan: gold, weir: %s}}\n",
		limit, form)
}

// What metadata says under weir is how the limit counts, and is no metadata of answers.
func TestForms(t *testing.T) {
	for _, row := range []struct {
		limit, form string
		want        limiter.Spec
		line        string
	}{
		{"unit: minute, requests_per_unit: 60", "{algorithm: token_bucket, burst: 5}",
			limiter.Spec{Name: "minute", Algorithm: limiter.TokenBucket, Limit: 60, Window: time.Minute, Burst: 5},
			", algorithm: token_bucket, burst: 5"},
		{"unit: hour, requests_per_unit: 6", "{algorithm: sliding_window, sub_windows: 4}",
			limiter.Spec{Name: "hour", Algorithm: limiter.SlidingWindow, Limit: 6, Window: time.Hour, SubWindows: 4},
			", algorithm: sliding_window, sub_windows: 4"},
		{"unit: month, requests_per_unit: 6", `{calendar: yes, zone: Europe/Berlin, anchor_day: 15, at: 06:30}`, limiter.Spec{
			Name: "month", Algorithm: limiter.FixedWindow, Limit: 6, Calendar: limiter.CalendarMonth, Zone: "Europe/Berlin",
			AnchorDay: 15, At: 390 * time.Minute,
		}, ", calendar: true, zone: Europe/Berlin, anchor_day: 15, at: 06:30"},
		{"unit: week, requests_per_unit: 6", "{calendar: true, algorithm: fixed_window, week_start: sunday}", limiter.Spec{
			Name: "week", Algorithm: limiter.FixedWindow, Limit: 6, Calendar: limiter.CalendarWeek, WeekStart: limiter.Sunday,
		}, ", algorithm: fixed_window, calendar: true, week_start: sunday"},
		{"unit: week, requests_per_unit: 6", "{algorithm: fixed_window}", limiter.Spec{
			Name: "week", Algorithm: limiter.FixedWindow, Limit: 6, Calendar: limiter.CalendarWeek, WeekStart: limiter.Thursday,
		}, ", algorithm: fixed_window"},
		{"unit: day, requests_per_unit: 0", "{calendar: true}",
			limiter.Spec{Name: "day", Algorithm: limiter.FixedWindow, Calendar: limiter.CalendarDay}, ", calendar: true"},
		{"unit: minute, requests_per_unit: 6", "{unit_multiplier: 10}",
			limiter.Spec{Name: "minute", Algorithm: limiter.GCRA, Limit: 6, Window: 10 * time.Minute}, ", unit_multiplier: 10"},
		{"unit: week, requests_per_unit: 6", "{unit_multiplier: 2, algorithm: fixed_window}",
			limiter.Spec{Name: "week", Algorithm: limiter.FixedWindow, Limit: 6, Window: 14 * 24 * time.Hour},
			", algorithm: fixed_window, unit_multiplier: 2"},
		{"unit: day, requests_per_unit: 3", "{}", limiter.Spec{Name: "day", Algorithm: limiter.GCRA, Limit: 3,
			Window: 24 * time.Hour}, ""},
	} {
		c, err := parse(withForm(row.limit, row.form))
		if err != nil {
			t.Errorf("%s: %v", row.form, err)
			continue
		}
		l, _ := c.Lookup("d", []config.Entry{{Key: "a"}}, nil)
		if got := l.Spec(limiter.GCRA); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.form, got, row.want)
		}
		if len(l.Metadata) != 1 || l.Metadata["plan"] != "gold" {
			t.Errorf("%s: metadata %v", row.form, l.Metadata)
		}
		if lines := c.Lines(); !strings.HasSuffix(lines[0], "quota_mode: false"+row.line) {
			t.Errorf("%s: %q", row.form, lines)
		}
	}
}

// A form that means nothing, or that no limit can have, is an error that says what to write.
func TestFormsThatAreNone(t *testing.T) {
	const minute = "unit: minute, requests_per_unit: 60"
	for _, row := range []struct{ limit, form, want string }{
		{minute, "token_bucket", "weir: it is not a map: give {algorithm: NAME} or {calendar: true}"},
		{minute, "[1]", "weir: it is not a map"},
		{minute, "{algorithm: leaky}", `weir: algorithm is "leaky": give one of sliding_counter, fixed_window, `},
		{minute, "{algorithm: 1}", `weir: algorithm is "1": give one of`},
		{minute, "{rate: 5}", "weir: unknown key 'rate': give algorithm, burst, "},
		{minute, "{algorithm: token_bucket, burst: 0}", `weir: burst is "0": give a number of requests, from 1`},
		{minute, "{algorithm: token_bucket, burst: 1.5}", `weir: burst is "1.5"`},
		{minute, "{algorithm: token_bucket, burst: many}", `weir: burst is "many"`},
		{minute, "{algorithm: token_bucket, burst: 4294967296}", `weir: burst is "4.294967296e+09"`},
		{minute, "{burst: 5}", "weir: burst has no effect: give algorithm: token_bucket, leaky_bucket or gcra beside it"},
		{minute, "{algorithm: sliding_log, burst: 5}", "weir: burst has no effect"},
		{minute, "{sub_windows: 5}", "weir: sub_windows has no effect: give algorithm: sliding_window beside it"},
		{minute, "{algorithm: sliding_window, sub_windows: 3601}", `weir: sub_windows is "3601": give 1 to 3600`},
		{minute, "{unit_multiplier: 0}", `weir: unit_multiplier is "0": give a number of units, from 1`},
		{minute, "{unit_multiplier: 576001}",
			"weir: unit_multiplier is 576001: give 1 to 576000 for unit: minute, since a period has at most 400 days"},
		{minute, "{unit_multiplier: 4294967296}", `weir: unit_multiplier is "4.294967296e+09"`},
		{minute, "{unit_multiplier: 2, calendar: true}",
			"weir: a window of a calendar is one unit: leave out unit_multiplier or calendar"},
		{minute, "{algorithm: gcra, calendar: true}", "weir: gcra has no calendar windows: leave out algorithm or calendar"},
		{minute, "{calendar: minute}", `weir: calendar is "minute": give true or false: the unit is that of the limit`},
		{minute, "{zone: Europe/Berlin}",
			"weir: zone, anchor_day, week_start and at are options of a calendar: give calendar: true beside them"},
		{minute, "{calendar: true, zone: Mars/Olympus}", `no time zone "Mars/Olympus"`},
		{minute, "{calendar: true, zone: 1}", `weir: zone is "1": give the IANA name`},
		{minute, "{calendar: true, at: '06:00'}", "at is for calendar day and longer units"},
		{"unit: day, requests_per_unit: 1", "{calendar: true, at: '6:00'}",
			`weir: at is "6:00": give a time of day in quotes, such as "06:00"`},
		{"unit: day, requests_per_unit: 1", "{calendar: true, anchor_day: 3}",
			"anchor_day is for calendar month, quarter and year, not for day"},
		{"unit: month, requests_per_unit: 1", "{calendar: true, anchor_day: 32}", `weir: anchor_day is "32": give 1 to 31`},
		{"unit: week, requests_per_unit: 1", "{calendar: true, week_start: someday}",
			`weir: week_start is "someday": give the name of a day, such as sunday`},
		{"unit: second, requests_per_unit: 1", "{calendar: true}", "weir: a second is as long in every calendar"},
		{"unit: day, requests_per_unit: 2000000", "{algorithm: sliding_log}", "limit 2000000 is out of range"},
		{"unlimited: true", "{algorithm: gcra}", "weir has no effect: the limit is unlimited"},
	} {
		_, err := parse(withForm(row.limit, row.form))
		if err == nil || !strings.HasPrefix(err.Error(), "config.basic.yaml: error parsing metadata: ") ||
			!strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %s", row.form, err, row.want)
		}
	}
	_, err := parse("domain: d\ndescriptors: [{key: a, metadata: {weir: {algorithm: gcra}}, descriptors: [{key: b}]}]")
	if err == nil || !strings.HasSuffix(err.Error(), "weir has no effect: the descriptor has no rate_limit") {
		t.Error(err)
	}
}
