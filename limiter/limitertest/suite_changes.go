package limitertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// variants returns the limits between which changes are tested: each algorithm, in each
// form with a state of its own, 10 per minute.
func variants() []limiter.Spec {
	vs := []limiter.Spec{
		{Algorithm: limiter.SlidingCounter},
		{Algorithm: limiter.FixedWindow},
		{Algorithm: limiter.FixedWindow, Align: limiter.AlignFirstHit},
		{Algorithm: limiter.SlidingLog},
		{Algorithm: limiter.SlidingWindow},
		{Algorithm: limiter.SlidingWindow, SubWindows: 4, Coverage: limiter.CoverageLenient},
		{Algorithm: limiter.TokenBucket},
		{Algorithm: limiter.LeakyBucket},
		{Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval},
		{Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval, DripUnits: 5},
		{Algorithm: limiter.GCRA},
	}
	for i := range vs {
		vs[i].Name, vs[i].Limit, vs[i].Window = "main", 10, time.Minute
	}
	for _, zone := range []string{"UTC", "Asia/Kathmandu"} {
		vs = append(vs, limiter.Spec{
			Name: "main", Algorithm: limiter.FixedWindow, Limit: 10, Calendar: limiter.CalendarMinute, Zone: zone,
		})
	}
	return vs
}

// change is the change of one limit into another.
type change struct {
	rule     string
	from, to limiter.Spec
}

// changes returns all pairs of variants, where the second has the same limit, half or
// twice as much, or another window; and the rules before and after.
func changes() (cs []change, before, after *rulesFile) {
	before, after = new(rulesFile), new(rulesFile)
	for i, from := range variants() {
		for j, to := range variants() {
			for k, f := range []func(*limiter.Spec){
				func(*limiter.Spec) {},
				func(s *limiter.Spec) { s.Limit = 5 },
				func(s *limiter.Spec) { s.Limit = 20 },
				func(s *limiter.Spec) { setWindow(s, time.Hour, limiter.CalendarHour) },
				func(s *limiter.Spec) { setWindow(s, time.Second, limiter.CalendarMinute) },
			} {
				c := change{fmt.Sprintf("c%d-%d-%d", i, j, k), from, to}
				f(&c.to)
				cs = append(cs, c)
				before.add(c.rule, c.from)
				after.add(c.rule, c.to)
			}
		}
	}
	if testing.Short() { // one in shortStep, since they make most of the suite's checks
		short := cs[:0]
		for i := 0; i < len(cs); i += shortStep {
			short = append(short, cs[i])
		}
		cs = short
	}
	return cs, before, after
}

// shortStep has no factor in common with the number of variants or of changes of one, so that each of
// them is tried with -short, too.
const shortStep = 7

func setWindow(s *limiter.Spec, window time.Duration, unit limiter.Calendar) {
	if s.Calendar == limiter.CalendarNone {
		s.Window = window
	} else {
		s.Calendar = unit
	}
}

// changedLimits: a limit that changes at half consumption then admits at most what the
// larger of the two would have left, and at least what the smaller would.
func changedLimits(t *testing.T, f Factory) {
	cs, before, after := changes()
	ask := newAsker(t, f, before.String())
	ask.goTo(ask.now + 5*limiter.Second)
	for _, c := range cs {
		if !ask.check(c.rule, "u", uint64(c.from.Limit/2)).Allowed {
			t.Fatalf("%s: half of the limit was denied", spellLimit(c.from))
		}
	}
	ask.setRules(after)
	used := c10 / 2
	for _, c := range cs {
		admitted := ask.drain(c.rule, "u", 50)
		most, least := max(c.from.Limit, c.to.Limit)-used, max(0, min(c.from.Limit, c.to.Limit)-used)
		if admitted > most || admitted < least {
			t.Errorf("%s, %d used, changed to %s: admits %d, want %d to %d", spellLimit(c.from), used, spellLimit(c.to),
				admitted, least, most)
		}
	}
}

const c10 = int64(10) // the limit of every variant

// drain checks single units until one is denied, at most n times, and returns how many
// were admitted.
func (a *asker) drain(rule, user string, n int) int64 {
	admitted := int64(0)
	for range n {
		if !a.check(rule, user, 1).Allowed {
			break
		}
		admitted++
	}
	return admitted
}

// changedLimitsBounds: after a change, admissions stay within the promise of the new
// limit, and the old consumption eventually expires.
func changedLimitsBounds(t *testing.T, f Factory) {
	cs, before, after := changes()
	ask := newAsker(t, f, before.String())
	histories := make([]History, len(cs))
	start := ask.now
	for i := range 3 {
		ask.goTo(start + Tick(i)*17*limiter.Second + 1)
		for _, c := range cs {
			ask.check(c.rule, "u", 3)
		}
	}
	ask.setRules(after)
	for i := range cs {
		histories[i].Disturbed = true
	}
	for i := range 60 {
		ask.goTo(ask.now + Tick(i%5)*1_700_003)
		for j, c := range cs {
			if ask.check(c.rule, "u", uint64(1+i%3)).Allowed {
				histories[j].Add(ask.now, uint64(1+i%3))
			}
		}
	}
	ask.goTo(ask.now + 3*limiter.Hour)
	for j, c := range cs {
		if err := Bound(c.to, histories[j]); err != nil {
			t.Errorf("%s changed to %s: %v", spellLimit(c.from), spellLimit(c.to), err)
		}
		if d := ask.check(c.rule, "u", 0); d.Limit(0).Remaining != uint64(c.to.Limit) {
			t.Errorf("%s changed to %s: long after %v", spellLimit(c.from), spellLimit(c.to), describe(d))
		}
	}
}
