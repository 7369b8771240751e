package limitertest

import (
	"regexp"
	"slices"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Rounder is implemented by subjects whose answers are coarser than a decision,
// as in JSON: their times are multiples of Step, rounded up, and of a check
// that was denied they tell which limit denied it, but not which others would
// have. Everything else is held against them as against any subject, and the
// times rounded alike.
type Rounder interface {
	// Step returns what times are multiples of; it is positive.
	Step() limiter.Tick
}

// stepOf returns what the times of a subject are multiples of.
func stepOf(s Subject) Tick {
	if r, ok := s.(Rounder); ok {
		return r.Step()
	}
	return 1
}

// roundUp returns the least multiple of step from t on.
func roundUp(t, step Tick) Tick { return (t + step - 1) / step * step }

// diff is [Diff], as coarse as the subject is.
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

// wanted returns the answer that a subject with such times is to give.
func (c *command) wanted(step Tick) []string {
	out := make([]string, len(c.want))
	for i, line := range c.want {
		out[i] = roundAnswer(line, step)
	}
	return out
}
