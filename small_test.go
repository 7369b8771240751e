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
)

// Even traffic at the rate of a small limit passes in the part that docs/rules.md states, and all of it with rounding:
// floor.
func TestEvenTrafficOfSmallLimits(t *testing.T) {
	passed := func(l int, rate float64, rounding limiter.Rounding) int {
		lim, err := weir.NewLimit(weir.Spec{Limit: int64(l), Window: time.Minute, Rounding: rounding})
		if err != nil {
			t.Fatal(err)
		}
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
	page, err := os.ReadFile(filepath.Join("docs", "rules.md"))
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
			t.Errorf("docs/rules.md lacks%s", told)
		}
	}
}
