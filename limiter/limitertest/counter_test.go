package limitertest

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/limiter"
)

func algorithms() []limiter.Algorithm {
	return []limiter.Algorithm{limiter.SlidingCounter, limiter.FixedWindow, limiter.SlidingLog,
		limiter.SlidingWindow, limiter.TokenBucket, limiter.LeakyBucket, limiter.GCRA}
}

func mustLimits(tb testing.TB, specs ...limiter.Spec) []*limiter.Limit {
	tb.Helper()
	limits := make([]*limiter.Limit, len(specs))
	for i, s := range specs {
		l, err := limiter.NewLimit(s)
		if err != nil {
			tb.Fatalf("%+v: %v", s, err)
		}
		limits[i] = l
	}
	return limits
}

// tally counts what a test met, so that its premises can be checked.
type tally struct{ checks, denied, refunds int }

// against runs a trace over the counter and the oracle and fails where they
// differ, with the whole trace, which is what it takes to find out why.
func against(tb testing.TB, c Choices, start Tick, steps int, n *tally, specs ...limiter.Spec) {
	tb.Helper()
	tr := NewTrace(start, specs...)
	tr.Refunds = c.Pick(3) == 0
	counter := limiter.NewCounter(mustLimits(tb, specs...)...)
	receipts := make([]limiter.Receipt, 0, steps)
	for i := 0; i < steps && c.More(); i++ {
		s, want := tr.Next(c)
		if s.Refund >= 0 {
			counter.Refund(s.Now, receipts[s.Refund], tr.Steps[s.Refund].Cost)
			n.refunds++
		}
		var d limiter.Decision
		if s.Peek {
			counter.Peek(s.Now, s.Cost, &d)
		} else {
			counter.Check(s.Now, s.Cost, &d)
		}
		receipts = append(receipts, d.Receipt)
		if diff := Diff(&d, want); diff != "" {
			tb.Fatalf("step %d differs from the oracle: %s\n%s", i, diff, story(tr))
		}
		n.checks++
		if !want.Allowed {
			n.denied++
		}
	}
}

func story(tr *Trace) string {
	text := ""
	for _, s := range tr.specs {
		text += fmt.Sprintf("  limit %+v", s)
		if s.Weight != nil {
			text += fmt.Sprintf(" weight %d", *s.Weight)
		}
		text += "\n"
	}
	for i, s := range tr.Steps {
		text += fmt.Sprintf("  step %d: %+v (+%d) -> allowed %v, retry %d\n", i, s, s.Now-tr.Steps[max(0, i-1)].Now, tr.Answers[i].Allowed, tr.Answers[i].RetryAfter)
	}
	return text
}

// startOf chooses where a trace begins: the epoch, or some instant of a later
// year.
func startOf(c Choices) Tick {
	return pick(c, 0, 1, 4*limiter.Day-1, noon, noon-1, noon+Tick(c.Pick(256))*7_777_777, 50_000*limiter.Day)
}

func TestRandomTracesMatchTheOracle(t *testing.T) {
	for _, a := range algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			var n tally
			for seed := range uint64(150) {
				c := SeededChoices(seed)
				spec := RandomSpec(c, a, "")
				against(t, c, startOf(c), 40, &n, spec)
			}
			t.Logf("%+v", n)
			if share := 100 * n.denied / n.checks; share < 20 || share > 80 {
				t.Errorf("%d %% of the decisions were denied, want 20 to 80", share)
			}
		})
	}
}
