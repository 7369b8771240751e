package resp

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// maxBatch is the most checks that are decided together.
const maxBatch = 64

// check is one command of a batch whose decision is still to come.
type check struct {
	of   *command
	rate rate // of CL.THROTTLE or a script
	cost int64
	form form
}

type form uint8

const (
	formThrottle form = iota // of CL.THROTTLE
	formScript               // of allowN
	formAtMost               // of allowAtMost, for a cost of 0
	formWindow               // of the scripts of windows
	formWeir                 // of WEIR.CHECK and WEIR.PEEK
)

// batch is checks that follow one another. Its memory is used again.
type batch struct {
	checks   []check
	requests []limiter.Request
	peeks    []bool
	limits   []*limiter.Limit // what requests have of their own
	ds       []limiter.Decision
	rate     rate           // the last one, with its limit
	limit    *limiter.Limit // nil: none yet
	tenant   string         // whose flushes are known
	user     string         // what its keys have in place of a user
	asked    bool           // tenant and user are known
	alike    alike
}

// alike is replies that the observer has not been told of yet: all of one command, with one
// code.
type alike struct {
	command *command
	code    string
	n       int
}

func (b *batch) add(c check, r limiter.Request, peek bool) {
	b.checks, b.requests, b.peeks = append(b.checks, c), append(b.requests, r), append(b.peeks, peek)
}

// own returns the limits of a request that has one of its own.
func (b *batch) own(l *limiter.Limit) []*limiter.Limit {
	b.limits = append(b.limits, l)
	n := len(b.limits)
	return b.limits[n-1 : n : n]
}

func (b *batch) clear() {
	clear(b.requests) // they hold texts of the client
	b.checks, b.requests, b.peeks, b.limits = b.checks[:0], b.requests[:0], b.peeks[:0], b.limits[:0]
	b.tenant, b.user, b.asked = "", "", false // the next batch may follow a flush
}

// decide decides the checks that wait, and appends their replies in their order.
func (c *conn) decide(ctx context.Context) {
	b := c.batch
	n := len(b.checks)
	if n == 0 {
		return
	}
	defer b.clear()
	if cap(b.ds) < n {
		b.ds = append(b.ds[:cap(b.ds)], make([]limiter.Decision, n-cap(b.ds))...)
	}
	b.ds = b.ds[:n]
	ctx, end := c.traced(ctx, b.method())
	defer end()
	err := c.caller.Decide(ctx, b.requests, b.ds, b.peeks)
	some, partly := errors.AsType[*limiter.BatchError](err)
	failed := 0
	for i := range n {
		why := err
		if partly {
			why = nil
			if failed < len(some.Index) && some.Index[failed] == i {
				why = some.Errs[failed]
				failed++
			}
		}
		c.answer(&b.checks[i], &b.ds[i], why)
	}
	c.observe()
}

// method returns the name of what is decided together, for traces.
func (b *batch) method() string {
	if len(b.checks) == 1 {
		return b.checks[0].of.method
	}
	return "RESP batch"
}

// traced begins a span, and returns its context and its end. The protocol has no place for
// the context of a trace, so the span is below no other.
func (c *conn) traced(ctx context.Context, method string) (context.Context, func()) {
	ctx, _, end := c.of.front.Trace(ctx, method, "", "")
	if end == nil {
		return ctx, func() {}
	}
	return ctx, func() { end(c.code) }
}

func (c *conn) answer(k *check, d *limiter.Decision, err error) {
	switch {
	case err != nil:
		c.failed(k.of.name, err)
		return
	case k.form == formWindow && !d.Allowed && k.cost > 0:
		c.fail(k.of.name, "ERR", "increment or decrement would overflow")
		return
	case k.form == formWindow:
		c.reply.counted(d)
	case k.form == formThrottle:
		c.reply.throttled(k.rate, k.cost, d)
	case k.form == formAtMost && d.Limit(0).Remaining == 0:
		c.reply.scriptDenied(k.rate, 1, d)
	case (k.form == formScript || k.form == formAtMost) && (d.Allowed || k.cost == 0 && k.rate.above(d.Limit(0)) == 0):
		c.reply.scriptAllowed(k.cost, d)
	case k.form == formScript || k.form == formAtMost:
		c.reply.scriptDenied(k.rate, k.cost, d)
	default:
		c.reply.decision(d)
	}
	code := "OK"
	if !d.Allowed && (k.cost > 0 || k.form == formWeir) {
		code = "DENIED"
	}
	c.code = code
	a := &c.batch.alike
	if a.command != k.of || a.code != code {
		c.observe()
		*a = alike{command: k.of, code: code}
	}
	a.n++
}

// observe tells the observer of the replies to checks.
func (c *conn) observe() {
	a := &c.batch.alike
	if o := c.of.options.Observer; o != nil && a.n > 0 {
		o.ServedMany(a.command.method, a.code, time.Since(c.began), a.n)
	}
	*a = alike{}
}

// decision appends the reply to WEIR.CHECK and WEIR.PEEK, as names and values. Limit,
// remaining and reset are those of the limit that denied, or of the one of which the least
// remains. A time is in milliseconds, rounded up; -1 means that there is none.
func (r *reply) decision(d *limiter.Decision) {
	retry := int64(-1)
	if !d.Allowed && !d.Never {
		retry = limiter.Millis(d.RetryAfter)
	}
	l := tightest(d)
	limit, remaining, reset := int64(-1), int64(-1), int64(-1)
	if l != nil {
		limit, remaining, reset = int64(l.Limit.Limit()), int64(l.Remaining), limiter.Millis(l.ResetAfter)
	}
	r.mapping(8)
	r.raw("$7\r\nallowed\r\n")
	r.truth(d.Allowed)
	r.raw("$4\r\nrule\r\n")
	r.bulk(d.Rule)
	r.raw("$5\r\nlimit\r\n")
	r.integer(limit)
	r.raw("$9\r\nremaining\r\n")
	r.integer(remaining)
	r.raw("$14\r\nretry_after_ms\r\n")
	r.integer(retry)
	r.raw("$14\r\nreset_after_ms\r\n")
	r.integer(reset)
	r.raw("$6\r\nsource\r\n")
	r.bulk(d.Source.String())
	r.raw("$8\r\nrepeated\r\n")
	r.truth(d.Repeated)
}

// tightest returns the limit that denied, or the one of which the least remains, nil if
// there is none. Shadow limits do not count.
func tightest(d *limiter.Decision) (l *limiter.LimitDecision) {
	if by := d.BlockedBy(); by != nil {
		return by
	}
	for i := range d.Len() {
		if at := d.Limit(i); !at.Rule.Shadow && (l == nil || at.Remaining < l.Remaining) {
			l = at
		}
	}
	return l
}

// served tells the observer of a reply.
func (c *conn) served(name, code string) {
	c.code = code
	if o := c.of.options.Observer; o != nil {
		method := "RESP unknown"
		if k := c.of.commands[name]; k != nil {
			method = k.method
		}
		o.ServedMany(method, code, time.Since(c.began), 1)
	}
}
