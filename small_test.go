package weir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/rules"
)

// Even traffic at the rate of a small limit passes in the part that docs/algorithms.md states, and all of it with
// rounding: floor.
func TestEvenTrafficOfSmallLimits(t *testing.T) {
	passed := func(l int, rate float64, rounding limiter.Rounding) int {
		lim := limitertest.Limit(t, weir.Spec{Limit: int64(l), Window: time.Minute, Rounding: rounding})
		allowed, asked := 0, 0
		for phase := range 10 {
			start := time.Date(2026, 1, 1, 0, 0, 0, 0,
				time.UTC).Add(time.Duration((float64(phase)/10 + 0.013) * float64(time.Minute)))
			now := start
			n, err := weir.Open(t.Context(), weir.Config{Now: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 120 * l {
				now = start.Add(time.Duration(float64(i) * float64(time.Minute) / float64(l) / rate))
				d, err := n.Allow(t.Context(), "even", lim)
				if err != nil {
					t.Fatal(err)
				}
				if asked++; d.Allowed {
					allowed++
				}
			}
			n.Close()
		}
		return (allowed*200 + asked) / (2 * asked)
	}
	page, err := os.ReadFile(filepath.Join("docs", "algorithms.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ limit, most, exact int }{{1, 67, 50}, {2, 67, 50}, {3, 89, 67}, {5, 100, 80},
		{10, 100, 90}} {
		got := fmt.Sprint(passed(row.limit, 0.75, limiter.RoundExact), passed(row.limit, 1, limiter.RoundExact),
			passed(row.limit, 1, limiter.RoundFloor))
		if want := fmt.Sprint(row.most, row.exact, 100); got != want {
			t.Errorf("limit %d: %s %% pass, want %s", row.limit, got, want)
		}
		told := fmt.Sprintf("\n| %d | %d %% | %d %% | 100 %% |", row.limit, row.most, row.exact)
		if !strings.Contains(string(page), told) {
			t.Errorf("docs/algorithms.md lacks%s", told)
		}
	}
}

// After all of a limit at the beginning of a window and a quiet rest, a log has room at once, and sliding_counter after
// the part of the window that the hint of such a limit names. A request fewer, and it has room too.
func TestQuietWindowOfSmallLimits(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	after := func(s weir.Spec, used int) (wait time.Duration, allowed bool) {
		lim := limitertest.Limit(t, s)
		now := begin
		n, err := weir.Open(t.Context(), weir.Config{Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		var d weir.Decision
		for range used {
			if d, err = n.Allow(t.Context(), "quiet", lim); err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		now = begin.Add(s.Window)
		if d, err = n.Allow(t.Context(), "quiet", lim); err != nil {
			t.Fatal(err)
		}
		return d.RetryAfter, d.Allowed
	}
	for l := 1; l < 10; l++ {
		s := weir.Spec{Limit: int64(l), Window: time.Hour}
		wait, allowed := after(s, l)
		if want := (s.Window + time.Duration(l)*time.Microsecond - 1) / time.Duration(l); allowed ||
			wait != want.Truncate(time.Microsecond) {
			t.Errorf("limit %d: allowed: %v, after %v; want %v", l, allowed, wait, want)
		}
		file := fmt.Appendf(nil, "rules: [{name: a, key: [user], limits: [%d/hour]}]", l)
		set, err := rules.Parse("a.yaml", file, rules.Options{})
		if err != nil {
			t.Fatal(err)
		}
		first := "the first " + wait.Round(time.Millisecond).String() + " of"
		if h := set.Hints(); len(h) != 1 || !strings.Contains(h[0].Text, first) {
			t.Errorf("limit %d: %v, and the hint is %+v", l, wait, h)
		}
		if _, allowed := after(s, l-1); !allowed {
			t.Errorf("limit %d denies after %d", l, l-1)
		}
		s.Algorithm = limiter.SlidingLog
		if _, allowed := after(s, l); !allowed {
			t.Errorf("limit %d: a log denies", l)
		}
	}
}
