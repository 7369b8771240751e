package limitertest

import (
	"regexp"
	"slices"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Rounder is implemented by subjects whose answers are coarser than a decision, such as
// JSON. Their times are multiples of Step, rounded up, and for a denied check they
// report the limit that denied, but not which others would have denied. Everything else
// is tested as for any subject, with times rounded in the same way.
type Rounder interface {
	// Step returns the unit of times; it is positive.
	Step() limiter.Tick
}

// stepOf returns the unit of times of a subject.
func stepOf(s Subject) Tick {
	if r, ok := s.(Rounder); ok {
		return r.Step()
	}
	return 1
}

// roundUp returns the least multiple of step that is at least t.
func roundUp(t, step Tick) Tick { return (t + step - 1) / step * step }

// diff is [Diff], at the precision of the subject.
func diff(s Subject, d *limiter.Decision, want OracleDecision) string {
	if _, coarse := s.(Rounder); coarse && d.Len() == len(want.Limits) {
		step := stepOf(s)
		want.RetryAfter = roundUp(want.RetryAfter, step)
		want.Limits = slices.Clone(want.Limits)
		for i := range want.Limits {
			l := &want.Limits[i]
			l.RetryAfter, l.ResetAfter = roundUp(l.RetryAfter, step), roundUp(l.ResetAfter, step)
			l.Allowed = d.Limit(i).Allowed
		}
	}
	return Diff(d, want)
}

var spanInAnswer = regexp.MustCompile(`(resets in |retry after )([0-9][^ ,]*)`)

// roundAnswer rounds the times in a line of a transcript's answer.
func roundAnswer(line string, step Tick) string {
	return spanInAnswer.ReplaceAllStringFunc(line, func(s string) string {
		m := spanInAnswer.FindStringSubmatch(s)
		d, err := time.ParseDuration(m[2])
		if err != nil {
			return s
		}
		return m[1] + span(roundUp(Tick(d/limiter.TickDuration), step))
	})
}

// wanted returns the answer expected of a subject with this unit of times.
func (c *command) wanted(step Tick) []string {
	out := make([]string, len(c.want))
	for i, line := range c.want {
		out[i] = roundAnswer(line, step)
	}
	return out
}
