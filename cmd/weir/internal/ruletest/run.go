package ruletest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Decider decides the requests of one test: a node that has counted nothing yet.
type Decider interface {
	CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
	KeyName(r *limiter.Request, l *limiter.LimitDecision) string
}

// Run runs one test. setTime sets the clock of the decider. It returns what differs first, and
// how many requests were made; later steps of a test that differs mean nothing. The error is one of
// the decider that is not about a request.
func (t *Test) Run(ctx context.Context, d Decider, setTime func(time.Time)) (differs *Problem, requests int,
	err error) {
	now := t.Start
	for i := range t.Steps {
		s := &t.Steps[i]
		now = now.Add(s.After)
		for n := range s.Times {
			if n > 0 {
				now = now.Add(s.Every)
			}
			setTime(now)
			requests++
			r, decision := s.Request, new(limiter.Decision)
			if s.Times > 1 && r.ID != "" {
				r.ID = fmt.Sprintf("%s-%d", r.ID, n+1) // each is a request of its own
			}
			err := d.CheckInto(ctx, &r, decision)
			if err != nil && !errors.Is(err, limiter.ErrInvalid) && !errors.Is(err, limiter.ErrSettled) {
				return nil, requests, err
			}
			text := s.differs(decision, n)
			if err != nil {
				text = "is an error: " + err.Error() + s.want(n)
			}
			if text != "" {
				which := describe(&r)
				if s.Times > 1 {
					which = fmt.Sprintf("request %d of %d, %s,", n+1, s.Times, which)
				}
				return &Problem{s.Line, s.Column, t.Name, fmt.Sprintf("step %d at %s: %s %s", i+1,
					now.UTC().Format("2006-01-02 15:04:05.999"), which, text)}, requests, nil
			}
		}
	}
	return nil, requests, nil
}

// want says what is expected of request n of a step, after a comma.
func (s *Step) want(n int) string {
	switch {
	case s.First > 0 && s.First < s.Times:
		return fmt.Sprintf("; want the first %d allowed and the others denied", s.First)
	case n < s.First:
		return "; want allowed"
	}
	return "; want denied"
}

// differs says how the decision of request n differs from what is expected, "" if it does not.
func (s *Step) differs(d *limiter.Decision, n int) string {
	if d.Allowed != (n < s.First) {
		return verdict(d) + s.want(n)
	}
	if s.By != nil && d.Rule != *s.By {
		if d.Rule == "" {
			return fmt.Sprintf("is decided by no rule; want rule %q", *s.By)
		}
		return fmt.Sprintf("is decided by rule %q; want rule %q", d.Rule, *s.By)
	}
	if n < s.Times-1 {
		return ""
	}
	wait := d.RetryAfter.Round(time.Millisecond)
	if s.RetryAfter != nil && (d.Never || wait != s.RetryAfter.Round(time.Millisecond)) {
		if d.Never {
			return fmt.Sprintf("is denied for ever, as it costs more than the limit; want a wait of %v", *s.RetryAfter)
		}
		return fmt.Sprintf("is to wait %v; want %v", wait, *s.RetryAfter)
	}
	if s.Remaining != nil {
		left, ok := remaining(d)
		switch {
		case !ok:
			return fmt.Sprintf("is counted by no limit; want %d remaining", *s.Remaining)
		case left != *s.Remaining:
			return fmt.Sprintf("leaves %d remaining; want %d", left, *s.Remaining)
		}
	}
	return ""
}

// remaining returns the least that limits in force have left.
func remaining(d *limiter.Decision) (least uint64, ok bool) {
	for i := range d.Len() {
		if l := d.Limit(i); !l.Rule.Shadow && (!ok || l.Remaining < least) {
			least, ok = l.Remaining, true
		}
	}
	return least, ok
}

// verdict says what a decision is, and why.
func verdict(d *limiter.Decision) string {
	b := d.BlockedBy()
	switch {
	case d.Allowed && d.Rule == "":
		return "is allowed, since no rule matches it"
	case d.Allowed && d.Len() == 0:
		return fmt.Sprintf("is allowed by rule %q, which has no limit", d.Rule)
	case d.Allowed && d.ShadowDenied:
		return fmt.Sprintf("is allowed by rule %q; a rule in shadow would deny it", d.Rule)
	case d.Allowed:
		left := []string{}
		for i := range d.Len() {
			l := d.Limit(i)
			left = append(left, fmt.Sprintf("%d of %d a %s left", l.Remaining, l.Limit.Capacity(), l.Limit.Name()))
		}
		return fmt.Sprintf("is allowed by rule %q with %s", d.Rule, strings.Join(left, ", "))
	case b == nil:
		return fmt.Sprintf("is denied by rule %q", d.Rule)
	case d.Never:
		return fmt.Sprintf("is denied for ever by rule %q: it costs more than limit %q admits, %d", b.Rule.Name,
			b.Limit.Name(), b.Limit.Capacity())
	}
	return fmt.Sprintf("is denied by rule %q, limit %q of %d, for %v", b.Rule.Name, b.Limit.Name(), b.Limit.Capacity(),
		d.RetryAfter.Round(time.Millisecond))
}

func describe(r *limiter.Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Method, r.Path)
	for _, f := range [][2]string{{"user", r.User}, {"from", r.IP}, {"group", r.Group}, {"tenant", r.Tenant},
		{"rule", r.Rule}} {
		if f[1] != "" {
			fmt.Fprintf(&b, " %s %s", f[0], f[1])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Attributes)) {
		fmt.Fprintf(&b, " %s=%s", name, r.Attributes[name])
	}
	return b.String()
}
