package console

import (
	"strings"
	"testing"
	"time"
)

// A span that ends before it begins is an error, as nothing is ever found in it.
func TestSpanOf(t *testing.T) {
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct{ since, until, want string }{
		{"", "", ""}, {"1h", "", ""}, {"", "1h", ""}, {"2h", "1h", ""}, {"11:00", "11:30", ""},
		{"23:00", "01:00", ""}, // since yesterday
		{"1h", "2h", `until "2h" is not later than since "1h"`},
		{"2026-01-05T11:00:00Z", "11:00", "nothing lies between"},
		{"x", "1h", `since "x" is not a time`}, {"1h", "x", `until "x" is not a time`},
	} {
		from, to, err := spanOf(c.since, c.until, now)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q to %q: %v, want %q", c.since, c.until, err, c.want)
			}
			continue
		}
		if err != nil || from.IsZero() != (c.since == "") || to.IsZero() != (c.until == "") {
			t.Errorf("%q to %q: %v to %v, %v", c.since, c.until, from, to, err)
		}
	}
}
