package limitertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// ceilings: a draw up to a part of a quota is denied where more than that would count, and others may go on to use the
// rest. There is one counter, and who may use a part of it changes nothing for others.
func ceilings(t *testing.T, f Factory) {
	const window = 10 * time.Minute
	algorithms := []string{"sliding_counter", "fixed_window", "sliding_log", "sliding_window", "token_bucket",
		"leaky_bucket", "gcra", "leaky_bucket, drip: interval"}
	text := "version: 1\nquotas:\n"
	for i, algorithm := range algorithms {
		text += fmt.Sprintf("  - {name: q%d, key: [user], limits: [{limit: 10, window: 10m, algorithm: %s}]}\n", i, algorithm)
	}
	text += "rules:\n"
	for i := range algorithms {
		text += fmt.Sprintf("  - {name: part%d, match: {path: ^/%d/part}, quotas: [{name: q%d, up_to: 75%%}]}\n", i, i, i)
		text += fmt.Sprintf("  - {name: all%d, match: {path: ^/%d/all}, quotas: [q%d]}\n", i, i, i)
	}
	a := newAsker(t, f, text)
	a.goTo(a.now + limiter.Span(window) - a.now%limiter.Span(window)) // the windows begin
	ask := func(path string, cost int64) *limiter.Decision {
		t.Helper()
		d := new(limiter.Decision)
		r := &limiter.Request{Path: path, User: "ada", Cost: limiter.Units(cost)}
		if err := a.s.CheckInto(context.Background(), r, d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return d
	}
	for i, algorithm := range algorithms {
		is := func(path string, cost int64, allowed bool, remaining, capacity uint64) *limiter.Decision {
			t.Helper()
			d := ask(fmt.Sprintf("/%d/%s", i, path), cost)
			if l := d.Limit(0); d.Allowed != allowed || l.Remaining != remaining || l.Limit.Capacity() != capacity {
				t.Errorf("%s: %s with %d: %v of %d, want allowed %v with %d of %d left", algorithm, path, cost, describe(d),
					l.Limit.Capacity(), allowed, remaining, capacity)
			}
			return d
		}
		is("part", 5, true, 2, 7)
		is("part", 3, false, 2, 7)
		is("all", 3, true, 2, 10)
		is("part", 1, false, 0, 7)
		is("all", 3, false, 2, 10)
		is("all", 2, true, 0, 10)
		if d := is("part", 8, false, 0, 7); !d.Never {
			t.Errorf("%s: a cost above the part is denied for %v, want for ever", algorithm, d.RetryAfter)
		}
		d := is("part", 1, false, 0, 7)
		if all := is("all", 1, false, 0, 10); d.RetryAfter < all.RetryAfter {
			t.Errorf("%s: the part has room in %v, all of it only in %v", algorithm, d.RetryAfter, all.RetryAfter)
		}
		if i < 4 {
			continue // windows of different kinds end at different instants; the walks try them all
		}
		if want := 4 * window / 10; d.RetryAfter < want || d.RetryAfter > want+time.Millisecond {
			t.Errorf("%s: the part has room in %v, want after 4 of 10 units, in %v", algorithm, d.RetryAfter, want)
		}
	}
}
