package rules_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/rules"
)

// Limits and durations as other programs write them are errors that say what to write, or mean what they say.
func TestOtherNotations(t *testing.T) {
	for written, want := range map[string]string{
		"10/30seconds": "10/30s", "100/15minutes": "100/15m", "5/2hours": "5/2h", "100/min": "100/minute", "5/s": "5/second",
		"5/sec": "5/second",
		"5/h":   "5/hour", "5/d": "5/day", "5/m": "5/minute", "5/ 2 days": "5/2d", "3/1 hour": "3/1h", "1/month": "",
		"5/3months": "5/90d", "5/1year": "5/365d",
		"0.1/second": "1/10s", "0.5/minute": "1/2m", "1.5/minute": "3/2m", "2.0/hour": "2/hour", ".5/s": "",
		"0.001/second":  "1/1000s",
		"10 per minute": "10/minute", "10 per 30 seconds": "10/30s", "10 times per minute": "10/minute",
		"5 requests/second": "5/second",
		"10r/s":             "10/second", "30r/m": "30/minute", "10 req/s": "10/second", "1k/hour": "1000/hour",
		"2M/day":      "2000000/day",
		"10,000/hour": "10000/hour",
		"1e6/day":     "1000000/day", "100-per-hour": "", "5/MINUTE": "5/minute", "5/PT1H30M": "5/1h30m",
		"5/1hr 30min": "5/1h30m", "10 every 5 minutes": "10/5m",
		"1/minute; 5/hour": "a list, [1/minute, 5/hour]", "10 per second, 100 per minute": "a list, [10/second, 100/minute]",
		"10/second|9r/m": "a list, [10/second, 9/minute]",
	} {
		got := strings.Join(found(t, "rules: [{name: a, key: [user], limits: [\""+written+"\"]}]"), "\n")
		switch {
		case want == "" && strings.Contains(got, "did you mean"):
			t.Errorf("%s: %s", written, got)
		case want != "" && !strings.Contains(got, "did you mean \""+want+"\"") &&
			!strings.Contains(got, "did you mean "+want):
			t.Errorf("%s: %s; want %s", written, got, want)
		case want != "" && want[0] != 'a':
			mustSet(t, "rules: [{name: a, key: [user], limits: [\""+want+"\"]}]", rules.Options{})
		}
	}
	for written, want := range map[string]string{
		"60000": "write 1m if these are milliseconds, or 60000s for seconds", "900000": "write 15m if",
		"60": "write 60s for seconds, for example", "1500": "write 1500s for seconds",
		"PT15M": `did you mean "15m"?`, "P1DT2H": `did you mean "1d2h"?`, "1 hour": `did you mean "1h"?`,
		"minutes": `did you mean "minute"?`, "15 mins": `did you mean "15m"?`,
		"1 day, 2 hours": `did you mean "1d2h"?`, "300 Seconds": `did you mean "300s"?`, "1M": `did you mean "1m"?`,
		"P": "is not a duration", "PT": "is not a duration", "fortnight": "is not a duration",
	} {
		got := strings.Join(found(t, "rules: [{name: a, key: [user], limits: [{limit: 5, window: \""+written+"\"}]}]"), "\n")
		if !strings.Contains(got, want) {
			t.Errorf("window %s: %s; want %s", written, got, want)
		}
	}
}

// found returns the problems of a file that may have none.
func found(tb testing.TB, file string) []string {
	tb.Helper()
	if _, err := rules.Parse("f", []byte(file), rules.Options{}); err != nil {
		return []string{err.Error()}
	}
	return nil
}
