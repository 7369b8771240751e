package rules_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// randomLimit returns a limit of a file, with one of many algorithms or calendars.
func randomLimit(rnd *rand.Rand, name string) string {
	units := 1 + rnd.IntN(12)
	window := []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, time.Minute, time.Hour,
		24 * time.Hour}[rnd.IntN(6)]
	switch rnd.IntN(7) {
	case 0, 1:
		units *= 1 + 30*rnd.IntN(2)
		return fmt.Sprintf("{name: %s, limit: %d, calendar: %s, zone: %s, anchor_day: %d}", name, units,
			[]string{"month", "quarter", "year"}[rnd.IntN(3)], []string{"UTC", "Europe/Berlin"}[rnd.IntN(2)],
			[]int{1, 31}[rnd.IntN(2)])
	case 2:
		return fmt.Sprintf("{name: %s, limit: %d, calendar: %s, zone: %s}", name, units,
			[]string{"hour", "day", "week"}[rnd.IntN(3)], []string{"UTC", "Europe/Berlin"}[rnd.IntN(2)])
	}
	algorithm := []string{
		"sliding_counter", "fixed_window", "fixed_window, align: first_hit", "sliding_log", "sliding_window, sub_windows: 5",
		"sliding_window, sub_windows: 2, coverage: lenient",
		fmt.Sprintf("gcra, burst: %d", 1+rnd.IntN(12)), fmt.Sprintf("leaky_bucket, burst: %d, drip: interval",
			1+rnd.IntN(12)), "sliding_counter, weight: 0.5", "sliding_counter, rounding: nearest",
	}[rnd.IntN(10)]
	return fmt.Sprintf("{name: %s, limit: %d, window: %s, algorithm: %s}", name, units, window, algorithm)
}

// A limit of which a warning says that it never denies first never does: whatever is asked
// and when, another limit denies it too.
func TestWhatNeverDeniesFirst(t *testing.T) {
	pairs, denials := 0, 0
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 19))
		file := "rules:\n- {name: a, key: [rule], limits: [" + randomLimit(rnd, "x") + ", " + randomLimit(rnd, "y") + "]}\n"
		s, err := rules.Parse("f", []byte(file), rules.Options{})
		if err != nil {
			continue // an anchor of a calendar that has none, for example
		}
		never := [2]bool{}
		for _, w := range s.Warnings() {
			for i, name := range []string{"x", "y"} {
				never[i] = never[i] || strings.HasPrefix(w.Text, fmt.Sprintf("limit %q of rule \"a\" never denies first", name))
			}
		}
		if !never[0] && !never[1] {
			continue
		}
		pairs++
		denials += neverAlone(t, s, file, rnd, never)
	}
	if t.Logf("%d pairs, %d denials", pairs, denials); pairs < 300 || denials < 100_000 {
		t.Errorf("only %d pairs and %d denials", pairs, denials)
	}
}

// neverAlone asks at random instants, and returns the number of denials.
func neverAlone(t *testing.T, s *rules.Set, file string, rnd *rand.Rand, never [2]bool) (denials int) {
	t.Helper()
	counters := table.New(table.Config{})
	now := limiter.Tick(time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC).UnixMicro())
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	var c arith.Charge
	var d limiter.Decision
	steps := []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, time.Minute, time.Hour, 24 * time.Hour}
	for range 500 {
		// Bursts where windows end and begin, and where an earlier denial said, are the worst.
		switch rnd.IntN(8) {
		case 0:
			now += limiter.Tick(d.RetryAfter / limiter.TickDuration)
		case 1, 2:
			step := limiter.Tick(steps[rnd.IntN(len(steps))] / limiter.TickDuration)
			now += step - now%step - limiter.Tick(rnd.IntN(2))
		case 3:
			now += limiter.Tick(rnd.Int64N(int64(steps[rnd.IntN(len(steps))]))) / 1000
		case 4:
			if rnd.IntN(4) == 0 { // to the first or the last midnight of a later month
				zone := []*time.Location{berlin, time.UTC}[rnd.IntN(2)]
				day := time.UnixMicro(int64(now)).In(zone)
				now = max(now, limiter.Tick(time.Date(day.Year(), day.Month()+1+time.Month(rnd.IntN(2)), 1-rnd.IntN(2), 0, 0, 0,
					0, zone).UnixMicro()))
			}
		}
		r := limiter.Request{Cost: limiter.Units(1 + rnd.Int64N(2))}
		if _, err := s.Resolve(&r, &c); err != nil {
			t.Fatal(err)
		}
		counters.Decide(now, &c, &d)
		if d.Allowed {
			continue
		}
		denials++
		x, y := d.Limit(0), d.Limit(1)
		if never[0] && !x.Allowed && y.Allowed || never[1] && !y.Allowed && x.Allowed {
			t.Fatalf("%s at %v: a cost of %d is denied by one that never denies first: %v %v", file,
				time.UnixMicro(int64(now)).UTC(), x.Cost, x.Allowed, y.Allowed)
		}
	}
	return denials
}
