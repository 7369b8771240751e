package limitertest

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// planned has rules whose numbers each request chooses.
const planned = `
version: 1
rules:
  - name: plans
    match: {path: "^/plans"}
    key: [user]
    limits:
      - {limit: {by: "attr:plan", of: {free: 5/hour, pro: 8/hour}, else: 2/hour}}
      - 9/day
  - name: stated
    match: {path: "^/stated"}
    key: [user]
    limits:
      - {limit: {from: "attr:plan", most: 8/hour, else: 2/hour}}
  - name: bucket
    match: {path: "^/bucket"}
    key: [user]
    limits:
      - {limit: {by: "attr:plan", of: {free: 60/minute, pro: 120/minute}, else: 60/minute}, algorithm: token_bucket}
`

// numbers: the number of a limit is that of the plan that the request names, or the one that it states, else
// that of else. A counter whose number changes keeps what was used.
func numbers(t *testing.T, f Factory) {
	a := newAsker(t, f, planned)
	ask := func(path, user, plan string, cost int64) *limiter.Decision {
		t.Helper()
		r := &limiter.Request{Path: path, User: user, Cost: limiter.Units(cost)}
		if plan != "" {
			r.Attributes = map[string]string{"plan": plan}
		}
		d := new(limiter.Decision)
		if err := a.s.CheckInto(context.Background(), r, d); err != nil {
			t.Fatalf("%s with %q: %v", user, plan, err)
		}
		return d
	}
	is := func(d *limiter.Decision, allowed bool, limit, remaining uint64) {
		t.Helper()
		if l := d.Limit(0); d.Allowed != allowed || l.Limit.Limit() != limit || l.Remaining != remaining {
			t.Errorf("%v, want allowed %v with %d of %d left", describe(d), allowed, remaining, limit)
		}
	}
	for _, c := range []struct {
		path, plan string
		limit      uint64
	}{
		{"/plans", "free", 5}, {"/plans", "pro", 8}, {"/plans", "", 2}, {"/plans", "gold", 2}, {"/plans", "PRO", 2},
		{"/stated", "5", 5}, {"/stated", "8", 8}, {"/stated", "9", 8},
		{"/stated", "99999999999999999999", 8}, {"/stated", "", 2},
		{"/stated", "0", 2}, {"/stated", "-1", 2}, {"/stated", "none", 2},
	} {
		user := c.path + c.plan
		for n := range c.limit {
			is(ask(c.path, user, c.plan, 1), true, c.limit, c.limit-n-1)
		}
		is(ask(c.path, user, c.plan, 1), false, c.limit, 0)
	}
	// A higher plan has what it is more; a lower one waits until what was used is below its number.
	is(ask("/plans", "up", "free", 5), true, 5, 0)
	is(ask("/plans", "up", "free", 1), false, 5, 0)
	is(ask("/plans", "up", "pro", 2), true, 8, 1)
	is(ask("/plans", "up", "free", 1), false, 5, 0)
	is(ask("/plans", "up", "", 1), false, 2, 0)
	is(ask("/plans", "up", "pro", 1), true, 8, 0)
	is(ask("/stated", "up", "3", 3), true, 3, 0)
	is(ask("/stated", "up", "7", 3), true, 7, 1)
	is(ask("/stated", "up", "6", 1), false, 6, 0)
	// A bucket keeps its level, and leaks at the rate of the plan that was charged last.
	is(ask("/bucket", "up", "free", 60), true, 60, 0)
	is(ask("/bucket", "up", "pro", 60), true, 120, 0)
	waits := func(d *limiter.Decision, want time.Duration) {
		t.Helper()
		if d.Allowed || d.RetryAfter < want || d.RetryAfter > want+time.Millisecond {
			t.Errorf("%v, want a wait of %v", describe(d), want)
		}
	}
	waits(ask("/bucket", "up", "pro", 1), time.Second/2)
	a.goTo(a.now + 10*limiter.Second) // 20 of 120 have leaked
	is(ask("/bucket", "up", "pro", 20), true, 120, 0)
	waits(ask("/bucket", "up", "free", 1), 61*time.Second/2) // until 61 of 120 have leaked
}
