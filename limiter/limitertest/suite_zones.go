package limitertest

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// zoned is a rule whose time zone each request chooses.
const zoned = `
version: 1
rules:
  - name: own
    match: {path: "^/own"}
    key: [user]
    limits:
      - {limit: 5, calendar: day, zone: {from: "attr:tz", default: America/New_York}}
      - 20/hour
`

// zones: the windows of a limit are those of the zone that the request names, else of the
// default zone. A counter that changes its zone keeps what was used.
func zones(t *testing.T, f Factory) {
	a := newAsker(t, f, zoned)
	in := func(user, zone string) *limiter.Decision {
		t.Helper()
		r := &limiter.Request{Path: "/own", User: user}
		if zone != "" {
			r.Attributes = map[string]string{"tz": zone}
		}
		d := new(limiter.Decision)
		if err := a.s.CheckInto(context.Background(), r, d); err != nil {
			t.Fatalf("%s in %q: %v", user, zone, err)
		}
		return d
	}
	drain := func(user, zone string, want int) {
		t.Helper()
		for range want {
			if d := in(user, zone); !d.Allowed {
				t.Fatalf("%s in %q is denied: %v", user, zone, describe(d))
			}
		}
	}
	start := a.now + 6*limiter.Hour // 06:00 UTC on 5 January
	a.goTo(start)
	callers := []struct {
		user, zone string
		midnight   time.Duration // from the start until the next midnight there
	}{
		{"tokyo", "Asia/Tokyo", 9 * time.Hour},
		{"kathmandu", "Asia/Kathmandu", 12*time.Hour + 15*time.Minute},
		{"berlin", "Europe/Berlin", 17 * time.Hour},
		{"new york", "America/New_York", 23 * time.Hour},
		{"nowhere", "", 23 * time.Hour},
		{"unknown", "Europe/Atlantis", 23 * time.Hour},
		{"hostile", "../../etc/passwd", 23 * time.Hour},
	}
	for _, c := range callers {
		drain(c.user, c.zone, 5)
		if d := in(c.user, c.zone); d.Allowed || d.RetryAfter < c.midnight || d.RetryAfter > c.midnight+time.Millisecond {
			t.Errorf("%s waits until midnight there, %v, and is told %v", c.user, c.midnight, describe(d))
		}
	}
	for _, c := range callers { // by the order of their midnights
		if before := start + limiter.Span(c.midnight) - limiter.Second; before > a.now {
			a.goTo(before)
			for _, later := range callers {
				if later.midnight >= c.midnight && in(later.user, later.zone).Allowed {
					t.Errorf("%s is admitted before midnight", later.user)
				}
			}
		}
		a.goTo(start + limiter.Span(c.midnight))
		drain(c.user, c.zone, 5)
	}
	drain("mover", "Europe/Berlin", 3)
	drain("mover", "Asia/Tokyo", 1)
	drain("mover", "", 1)
	for _, zone := range []string{"Europe/Berlin", "Asia/Tokyo", "", "Asia/Kathmandu"} {
		if d := in("mover", zone); d.Allowed {
			t.Errorf("the caller has another limit in %q: %v", zone, describe(d))
		}
	}
}
