package limitertest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// player runs the commands of one transcript.
type player struct {
	s     Subject
	named map[string]charged
	tb    testing.TB
}

// charged is a check that may be refunded.
type charged struct {
	request *limiter.Request
	receipt limiter.Receipt
}

// runTranscript runs all commands on a new subject and records the answers. It returns
// the unit of the times in them.
func runTranscript(tb testing.TB, f Factory, tr *transcript) Tick {
	if strings.Contains(tr.begin.rules, "algorithm: concurrency") {
		if _, can := f(tb, "version: 1\nrules: []\n").(Concurrent); !can {
			tb.Skip("this decider does not limit concurrency")
		}
	}
	s := f(tb, tr.begin.rules)
	p := player{s: s, named: map[string]charged{}, tb: tb}
	cs := tr.commands()
	for _, c := range cs {
		if _, can := s.(Refunder); c.verb == "refund" && !can {
			tb.Skip("this decider takes no charges back")
		}
		if _, can := s.(Amender); !can && (c.args["hold"] != "" || c.amends()) {
			tb.Skip("this decider has no reservations")
		}
	}
	for i, c := range cs {
		if i > 0 && c.at < cs[i-1].at {
			tb.Fatalf("line %d: the time goes back", c.line)
		}
		s.SetTime(c.at)
		c.got = p.play(c)
	}
	return stepOf(s)
}

// play runs one command and returns the lines of its answer.
func (p *player) play(c *command) []string {
	ctx := context.Background()
	switch c.verb {
	case "rules":
		if err := p.s.SetRules(c.rules); err != nil {
			return []string{"refused"}
		}
		return []string{"loaded"}
	case "refund":
		old, ok := p.named[c.path]
		if !ok {
			p.tb.Fatalf("line %d: no check is named %s", c.line, c.path)
		}
		return done(p.s.(Refunder).Refund(ctx, *old.request, old.receipt))
	}
	r, err := c.request()
	if err != nil {
		p.tb.Fatalf("line %d: %v", c.line, err)
	}
	switch {
	case c.verb == "reset":
		return done(p.s.Reset(ctx, *r))
	case c.verb == "keys":
		return p.keys(c, r)
	case c.amends():
		return p.amend(c, r)
	case c.args["times"] != "":
		return p.many(c, r)
	}
	var d limiter.Decision
	if c.verb == "peek" && c.args["cost"] != "" {
		peeker, can := p.s.(Peeker)
		if c.skipped = !can; c.skipped {
			return nil
		}
		err = peeker.PeekInto(ctx, r, &d)
	} else {
		err = p.s.CheckInto(ctx, r, &d)
	}
	if name := c.args["as"]; name != "" {
		p.named[name] = charged{r, d.Receipt}
	}
	if err != nil {
		return done(err)
	}
	return describe(&d)
}

// done returns the answer of a command that returns only an error.
func done(err error) []string {
	switch {
	case err == nil:
		return []string{"done"}
	case errors.Is(err, limiter.ErrInvalid):
		return []string{"invalid"}
	case errors.Is(err, limiter.ErrSettled):
		return []string{"refused, the id is spent"}
	default:
		return []string{"failed: " + err.Error()}
	}
}

// amends reports whether the command settles or extends a reservation.
func (c *command) amends() bool {
	return c.verb == "settle" || c.verb == "cancel" || c.verb == "extend"
}

// amend settles or extends a reservation.
func (p *player) amend(c *command, r *limiter.Request) []string {
	if c.verb == "cancel" {
		r.Cost = limiter.Units(0)
	}
	var how limiter.Settling
	for name, text := range c.args {
		if attribute, ok := strings.CutPrefix(name, "actual."); ok {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				p.tb.Fatalf("line %d: %s: %v", c.line, name, err)
			}
			if how.Named = true; how.Actual == nil {
				how.Actual = make(map[string]int64)
			}
			how.Actual[attribute] = n
		}
	}
	how.Extend, how.IgnoreUnknown = c.verb == "extend", c.args["unknown"] == "ignore"
	a, err := p.s.(Amender).Amend(context.Background(), *r, how)
	const differs = "refused, the rules have reserved different numbers"
	if errors.Is(err, limiter.ErrCosts) {
		return []string{differs}
	}
	if err != nil {
		return done(err)
	}
	text := a.State.String()
	switch a.State {
	case limiter.AmendDone:
		text = fmt.Sprintf("done, estimate %d", a.Estimate)
	case limiter.AmendSettled:
		text = fmt.Sprintf("refused, it is settled with %d", a.First)
	case limiter.AmendLacks:
		text = "invalid"
	case limiter.AmendDiffers:
		text = differs
	case limiter.AmendDenied:
		text = "DENIED, retry after " + span(limiter.Span(a.RetryAfter))
	}
	if a.Over > 0 {
		text += fmt.Sprintf(", %d beyond the limit", a.Over)
	}
	return []string{text}
}

// many repeats a check while the clock advances.
func (p *player) many(c *command, r *limiter.Request) []string {
	times, err := strconv.Atoi(c.args["times"])
	if err != nil {
		p.tb.Fatalf("line %d: times: %v", c.line, err)
	}
	every, err := time.ParseDuration(c.args["every"])
	if err != nil && c.args["every"] != "" {
		p.tb.Fatalf("line %d: every: %v", c.line, err)
	}
	allowed, now := 0, c.at
	for range times {
		p.s.SetTime(now)
		var d limiter.Decision
		if err := p.s.CheckInto(context.Background(), r, &d); err != nil {
			return done(err)
		}
		if d.Allowed {
			allowed++
		}
		now += limiter.Tick(every / limiter.TickDuration)
	}
	return []string{fmt.Sprintf("%d allowed, %d denied", allowed, times-allowed)}
}

// keys returns the names of a request's counters. It is skipped for subjects that
// cannot return them.
func (p *player) keys(c *command, r *limiter.Request) []string {
	namer, can := p.s.(KeyNamer)
	if c.skipped = !can; c.skipped {
		return nil
	}
	r.Cost = limiter.Units(0)
	var d limiter.Decision
	if err := p.s.CheckInto(context.Background(), r, &d); err != nil {
		return done(err)
	}
	lines := make([]string, d.Len())
	for i := range lines {
		lines[i] = namer.KeyName(r, d.Limit(i))
	}
	return lines
}

// request returns the request of a command.
func (c *command) request() (*limiter.Request, error) {
	r := &limiter.Request{
		Path: c.path, User: c.args["user"], IP: c.args["ip"], Group: c.args["group"], Method: c.args["method"],
		ID: c.args["id"],
	}
	if ttl := c.args["id_ttl"]; ttl != "" {
		var err error
		if r.IDTTL, err = time.ParseDuration(ttl); err != nil {
			return nil, err
		}
	}
	if hold := c.args["hold"]; hold != "" {
		var err error
		if r.Hold, err = time.ParseDuration(hold); err != nil {
			return nil, err
		}
	}
	for name, value := range c.args {
		if attr, ok := strings.CutPrefix(name, "attr."); ok {
			if r.Attributes == nil {
				r.Attributes = map[string]string{}
			}
			r.Attributes[attr] = value
		}
	}
	switch cost := c.args["cost"]; {
	case cost != "":
		n, err := strconv.ParseInt(cost, 10, 64)
		if err != nil {
			return nil, err
		}
		r.Cost = limiter.Units(n)
	case c.verb == "peek":
		r.Cost = limiter.Units(0)
	}
	return r, nil
}

// describe writes a decision in the form of transcripts: the verdict, and the result of
// each limit, on the same line if there is only one.
func describe(d *limiter.Decision) []string {
	verdict := "allowed"
	if d.Repeated {
		verdict = "repeated"
	}
	switch b := d.BlockedBy(); {
	case d.Never:
		verdict = "DENIED by " + b.FullName() + ", never"
	case !d.Allowed:
		verdict = "DENIED by " + b.FullName() + ", retry after " + span(limiter.Span(d.RetryAfter))
	case d.ShadowDenied:
		verdict = "allowed, a shadow rule would deny"
	case d.Rule == "":
		verdict = "allowed, no rule"
	case d.Len() == 0:
		verdict = "allowed, " + d.Rule + " is unlimited"
	}
	if d.Len() == 1 {
		return []string{verdict + "  " + describeLimit(d, 0)}
	}
	lines := []string{verdict}
	for i := range d.Len() {
		lines = append(lines, describeLimit(d, i))
	}
	return lines
}

func describeLimit(d *limiter.Decision, i int) string {
	l := d.Limit(i)
	name := l.Limit.Name()
	for j := range d.Len() {
		if d.Limit(j).Rule.Name != l.Rule.Name {
			name = l.FullName()
		}
	}
	for j := range d.Len() {
		if o := d.Limit(j); o.Rule.Name == l.Rule.Name && o.Key != l.Key {
			name = fmt.Sprintf("key %d %s", l.Key, name)
			break
		}
	}
	text := fmt.Sprintf("%s %d/%d left", name, l.Remaining, l.Limit.Capacity())
	if l.ResetAfter > 0 {
		text += ", resets in " + span(limiter.Span(l.ResetAfter))
	} else {
		text += ", as new"
	}
	if l.Blocked {
		text += ", blocked"
	}
	switch {
	case l.Never && d.Len() > 1:
		text += ", never"
	case l.RetryAfter > 0 && (d.Len() > 1 || d.Allowed):
		text += ", retry after " + span(limiter.Span(l.RetryAfter))
	}
	if l.Rule.Shadow {
		text += ", shadow"
	}
	return text
}

// span formats ticks like a Go duration, without superfluous zeros: 55s, 1m, 1h0m5s,
// 24h.
func span(t limiter.Tick) string {
	s := t.Duration().String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
