package limitertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// randomRules makes up to three rules that all match, some of them shadows, and
// some that count by two keys at once.
func randomRules(c Choices) (yaml string, windows []time.Duration) {
	var b strings.Builder
	b.WriteString("version: 1\nrules:\n")
	for i := range 1 + c.Pick(3) {
		keys := pick(c, "key: [rule, user]", "key: [rule, ip]", "keys: [[ip], [user]]")
		fmt.Fprintf(&b, "  - name: r%d\n    continue: true\n    shadow: %t\n    %s\n    cost: %d\n    limits:\n",
			i, c.Pick(3) == 0, keys, 1+c.Pick(2))
		for j := range 1 + c.Pick(2) {
			s := RandomWideSpec(c, limiter.Algorithm(c.Pick(algorithmCount())), fmt.Sprintf("l%d", j), time.Hour)
			if s.Limit = min(s.Limit, 10); s.DripUnits > 0 && s.Limit%s.DripUnits != 0 {
				s.DripUnits = 0
			}
			if s.Burst > 20 {
				s.Burst = 0
			}
			windows = append(windows, s.Window)
			fmt.Fprintf(&b, "      - %s\n", spellLimit(s))
		}
	}
	return b.String(), windows
}

// A5, B1: a check over several rules and keys, shadows among them, is decided
// as the oracle decides it: all or nothing, the shadows apart.
func TestSeveralKeysMatchTheOracle(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("one goroutine, many times slower under the race detector; make wire runs it")
	}
	var p premise
	shadows := 0
	for seed := range uint64(400) {
		c := SeededChoices(seed)
		yaml, windows := randomRules(c)
		s := newJudged(t, yaml).(*judged)
		now := noon
		for range 40 {
			if c.Pick(3) == 0 {
				w := limiter.Tick(pick(c, windows...) / limiter.TickDuration)
				now += w / limiter.Tick(1+c.Pick(12)) * limiter.Tick(c.Pick(3))
				now += limiter.Tick(c.Pick(2))
			}
			s.SetTime(now)
			r := &limiter.Request{
				Path: "/", User: pick(c, "ada", "bob"), IP: pick(c, "10.0.0.1", "10.0.0.2"),
				Cost: pick(c, limiter.Cost{}, limiter.Units(0), limiter.Units(2), limiter.Units(int64(c.Pick(12)))),
			}
			var d limiter.Decision
			if err := s.judge(r, &d, c.Pick(15) == 0); err != nil {
				t.Fatal(err)
			}
			p.count(d.Allowed)
			if d.ShadowDenied {
				shadows++
			}
			if c.Pick(25) == 0 {
				if err := s.Reset(context.Background(), *r); err != nil {
					t.Fatal(err)
				}
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d\n%s", seed, yaml)
		}
	}
	p.hold(t)
	if 20*shadows < p.checks {
		t.Errorf("only %d of %d checks met a shadow that would deny", shadows, p.checks)
	}
}
