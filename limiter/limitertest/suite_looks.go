package limitertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// lookedAt has buckets whose numbers each request chooses: pro has 1000 a day, free has 100, and others have 10.
const lookedAt = `
version: 1
rules:
  - name: by
    match: {path: "^/by"}
    key: [rule, user]
    limits: [{limit: {by: "attr:plan", of: {100: 100, 1000: 1000}, else: 10}, window: 1d, algorithm: %[1]s}]
  - name: from
    match: {path: "^/from"}
    key: [rule, user]
    limits: [{limit: {from: "attr:plan", most: 1000, else: 10}, window: 1d, algorithm: %[1]s}]
  - name: block
    match: {path: "^/block"}
    key: [rule, user]
    limits: [{limit: {by: "attr:plan", of: {100: 100, 1000: 1000}, else: 10}, window: 1d, algorithm: %[1]s, block: 1s}]
  - name: plain
    match: {path: "^/plain"}
    key: [rule, user]
    limits: [{name: main, limit: %[2]d, window: 1d, algorithm: %[1]s}]
`

// looks: what one number has used up of a bucket, a request with another number neither forgets nor changes: not by a
// denial, and not by a settlement of an id that is not known. So the wait that was told stays exact. And a limit that
// is lowered for a while, and only asked then, has forgotten nothing when it is what it was.
func looks(t *testing.T, f Factory) {
	for _, algorithm := range []string{"token_bucket", "leaky_bucket", "leaky_bucket, drip: interval", "gcra"} {
		rules := func(plain int) string { return fmt.Sprintf(lookedAt, algorithm, plain) }
		a := newAsker(t, f, rules(1000))
		ask := func(path, plan string, cost int64) *limiter.Decision {
			t.Helper()
			r := &limiter.Request{Path: path, User: "ada", Cost: limiter.Units(cost)}
			if plan != "" {
				r.Attributes = map[string]string{"plan": plan}
			}
			d := new(limiter.Decision)
			if err := a.s.CheckInto(context.Background(), r, d); err != nil {
				t.Fatalf("%s with %q: %v", path, plan, err)
			}
			return d
		}
		for _, path := range []string{"/by", "/from"} {
			if !ask(path, "1000", 1000).Allowed {
				t.Fatalf("%s: all of a new bucket was denied", algorithm)
			}
			wait := ask(path, "1000", 500).RetryAfter
			if want := 12 * time.Hour; wait < want-100*time.Second || wait > want+100*time.Second {
				t.Errorf("%s %s: half of a day's units come after %v", algorithm, path, wait)
			}
			for _, plan := range []string{"100", "", "100"} {
				if d := ask(path, plan, 1); d.Allowed || d.RetryAfter < 21*time.Hour || d.RetryAfter > 24*time.Hour {
					t.Errorf("%s %s: a request of plan %q: %v, want denied until the units leak that pro has used", algorithm,
						path, plan, describe(d))
				}
			}
			if d := ask(path, "1000", 1); d.Allowed {
				t.Errorf("%s %s: a look by a lower number gave a used-up bucket back: %v", algorithm, path, describe(d))
			}
			if s, can := a.s.(Amender); can {
				r := limiter.Request{Path: path, User: "ada", ID: "unknown", Cost: limiter.Units(10)}
				if out, err := s.Amend(context.Background(), r, limiter.Settling{}); err != nil ||
					out.State != limiter.AmendCharged {
					t.Errorf("%s %s: %+v, %v", algorithm, path, out, err)
				}
				if d := ask(path, "1000", 500); d.Allowed || d.RetryAfter <= wait {
					t.Errorf("%s %s: a settlement by a lower number cut what counts: %v", algorithm, path, describe(d))
				}
				wait = ask(path, "1000", 500).RetryAfter
			}
			now := a.now
			a.goTo(now + limiter.Span(wait) - stepOf(a.s))
			ask(path, "", 1)
			if ask(path, "1000", 500).Allowed {
				t.Errorf("%s %s: admitted before the wait of %v was over", algorithm, path, wait)
			}
			a.goTo(now + limiter.Span(wait))
			ask(path, "", 1)
			if d := ask(path, "1000", 500); !d.Allowed {
				t.Errorf("%s %s: told to wait %v, and denied then: %v", algorithm, path, wait, describe(d))
			}
			keepsRate(t, a, ask, algorithm, path)
		}
		ask("/block", "1000", 150)
		ask("/block", "100", 1) // begins a block, and charges nothing
		if d := ask("/block", "1000", 900); d.Allowed || d.RetryAfter > 2*time.Hour {
			t.Errorf("%s: a block has a bucket leak by its number: %v", algorithm, describe(d))
		}
		if !ask("/plain", "", 1000).Allowed {
			t.Fatalf("%s: all of a new bucket was denied", algorithm)
		}
		for _, plain := range []int{100, 10} {
			if err := a.s.SetRules(rules(plain)); err != nil {
				t.Fatal(err)
			}
			a.goTo(a.now + limiter.Second)
			if d := ask("/plain", "", 1); d.Allowed {
				t.Errorf("%s, used up, lowered to %d: %v", algorithm, plain, describe(d))
			}
		}
		if err := a.s.SetRules(rules(1000)); err != nil {
			t.Fatal(err)
		}
		if d := ask("/plain", "", 1); d.Allowed {
			t.Errorf("%s, used up, lowered and raised again: %v", algorithm, describe(d))
		}
	}
}

// keepsRate: a look by a number that has room for all that counts has a bucket leak no slower, either.
func keepsRate(t *testing.T, a *asker, ask func(path, plan string, cost int64) *limiter.Decision,
	algorithm, path string) {
	a.goTo(a.now + limiter.Span(48*time.Hour)) // the bucket is empty
	ask(path, "1000", 50)
	if ask(path, "100", 100).Allowed {
		t.Errorf("%s %s: 100 units were admitted under plan 100 beside 50", algorithm, path)
	}
	a.goTo(a.now + limiter.Span(time.Hour))
	if d := ask(path, "1000", 970); !d.Allowed {
		t.Errorf("%s %s: after a look a bucket leaks by the number of the look: %v", algorithm, path, describe(d))
	}
}
