package limitertest_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// noon is 12:00 on a Monday.
var noon = limiter.TickOf(time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC))

func algorithms() []limiter.Algorithm {
	as := make([]limiter.Algorithm, len(limiter.AlgorithmNames()))
	for i := range as {
		as[i] = limiter.Algorithm(i)
	}
	return as
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

// startOf chooses where a trace begins: the epoch, or some instant of a later
// year.
func startOf(c limitertest.Choices) limiter.Tick {
	starts := []limiter.Tick{0, 1, 4*limiter.Day - 1, noon, noon - 1, noon + 7_777_777, 50_000 * limiter.Day}
	return starts[c.Pick(len(starts))]
}

// specsOf chooses a limit of that algorithm, or several of any.
func specsOf(c limitertest.Choices, a limiter.Algorithm, several bool) []limiter.Spec {
	if !several {
		return []limiter.Spec{limitertest.RandomWideSpec(c, a, "", limiter.MaxWindow)}
	}
	specs := make([]limiter.Spec, 2+c.Pick(4))
	for i := range specs {
		a := limiter.Algorithm(c.Pick(len(algorithms())))
		specs[i] = limitertest.RandomWideSpec(c, a, fmt.Sprintf("l%d", i), limiter.MaxWindow)
	}
	return specs
}

// tally counts what a test met, so that its premises can be checked.
type tally struct{ checks, denied, refunds int }

// against runs a trace over a counter and the oracle, and fails where they
// differ. Now and then the limits are set again, which must change nothing.
func against(tb testing.TB, c limitertest.Choices, steps int, n *tally, specs ...limiter.Spec) {
	tb.Helper()
	trace := limitertest.NewTrace(startOf(c), specs...)
	trace.Refunds, trace.Peeks = c.Pick(3) == 0, true
	counter := arith.NewCounter(mustLimits(tb, specs...)...)
	receipts := make([]limiter.Receipt, 0, steps)
	for i := 0; i < steps && c.More(); i++ {
		s, want := trace.Next(c)
		if i%7 == 6 {
			counter.SetLimits(mustLimits(tb, specs...)...)
		}
		if s.Refund >= 0 {
			counter.Refund(s.Now, receipts[s.Refund], trace.Steps[s.Refund].Cost)
			n.refunds++
		}
		var d limiter.Decision
		if s.Peek {
			counter.Peek(s.Now, s.Cost, &d)
		} else {
			counter.Check(s.Now, s.Cost, &d)
		}
		receipts = append(receipts, d.Receipt)
		if diff := limitertest.Diff(&d, want); diff != "" {
			tb.Fatalf("step %d differs from the oracle: %s\n%s", i, diff, trace)
		}
		n.checks++
		if !want.Allowed {
			n.denied++
		}
	}
}

// inRange checks the premise that both answers are frequent.
func (n *tally) inRange(tb testing.TB) {
	tb.Helper()
	tb.Logf("%+v", *n)
	if 5*n.denied < n.checks || 5*n.denied > 4*n.checks || n.refunds == 0 {
		tb.Errorf("%d of %d checks were denied, with %d refunds; 20 to 80 %% were to be, with some", n.denied, n.checks,
			n.refunds)
	}
}

// The fast arithmetic agrees with the oracle in every number of every answer,
// for every algorithm and option, at boundaries and a tick around them.
func TestRandomTracesMatchTheOracle(t *testing.T) {
	if limitertest.RaceEnabled && testing.Short() {
		t.Skip("one goroutine, many times slower under the race detector; make wire runs it")
	}
	for _, a := range algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			var n tally
			for seed := range uint64(500) {
				c := limitertest.SeededChoices(seed)
				against(t, c, 40, &n, specsOf(c, a, false)...)
			}
			n.inRange(t)
		})
	}
	t.Run("several", func(t *testing.T) {
		var n tally
		for seed := range uint64(500) {
			c := limitertest.SeededChoices(seed)
			against(t, c, 40, &n, specsOf(c, 0, true)...)
		}
		n.inRange(t)
	})
}

// fuzzSeeds are the inputs that each fuzz target begins with.
func fuzzSeeds() [][]byte {
	seeds := make([][]byte, 16)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range seeds {
		seeds[i] = make([]byte, 32<<(i%4))
		for j := range seeds[i] {
			seeds[i][j] = byte(r.UintN(256))
		}
	}
	return seeds
}

// fuzz holds a counter against the oracle on a trace that the bytes describe.
func fuzz(f *testing.F, a limiter.Algorithm, several bool) {
	for _, seed := range fuzzSeeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := limitertest.ByteChoices(b)
		var n tally
		against(t, c, 48, &n, specsOf(c, a, several)...)
	})
}

func FuzzSlidingCounter(f *testing.F) { fuzz(f, limiter.SlidingCounter, false) }
func FuzzFixedWindow(f *testing.F)    { fuzz(f, limiter.FixedWindow, false) }
func FuzzSlidingLog(f *testing.F)     { fuzz(f, limiter.SlidingLog, false) }
func FuzzSlidingWindow(f *testing.F)  { fuzz(f, limiter.SlidingWindow, false) }
func FuzzTokenBucket(f *testing.F)    { fuzz(f, limiter.TokenBucket, false) }
func FuzzLeakyBucket(f *testing.F)    { fuzz(f, limiter.LeakyBucket, false) }
func FuzzGCRA(f *testing.F)           { fuzz(f, limiter.GCRA, false) }
func FuzzSeveralLimits(f *testing.F)  { fuzz(f, 0, true) }

// The decisions of the fuzz targets are neither nearly all allowed nor nearly all
// denied.
func TestFuzzSeedsDenyAndAllow(t *testing.T) {
	for _, a := range algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			var n tally
			r := rand.New(rand.NewPCG(3, uint64(a)))
			for range 100 {
				b := make([]byte, 256)
				for j := range b {
					b[j] = byte(r.UintN(256))
				}
				c := limitertest.ByteChoices(b)
				against(t, c, 48, &n, specsOf(c, a, false)...)
			}
			n.inRange(t)
		})
	}
}
