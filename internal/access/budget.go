package access

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// maxStreams bounds the streams of a budget.
const maxStreams = 1 << 20

// budget is what one identity may use at this node. The zero value has no bound. It counts
// with the arithmetic of all limits: checks, bytes and keys are token buckets that hold what
// is allowed in a second.
type budget struct {
	checks, bytes, keys *limiter.Limit // nil: no bound
	streams             int            // most at a time; 0: no bound
	used                *used
}

// used is what an identity has used. It outlives the reading of another file.
type used struct {
	now func() time.Time

	mu                  sync.Mutex
	checks, bytes, keys *arith.Counter
	decision            limiter.Decision
	streams             int
}

// keep has a budget go on with what the identity has used. The limits are the new ones.
func (b *budget) keep(u *used) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.checks.SetLimits(limitsOf(b.checks)...)
	u.bytes.SetLimits(limitsOf(b.bytes)...)
	u.keys.SetLimits(limitsOf(b.keys)...)
	b.used = u
}

func limitsOf(l *limiter.Limit) []*limiter.Limit {
	if l == nil {
		return nil
	}
	return []*limiter.Limit{l}
}

func newUsed(now func() time.Time) *used {
	return &used{now: now, checks: arith.NewCounter(), bytes: arith.NewCounter(), keys: arith.NewCounter()}
}

// Spend implements [frontend.Caller]. A message that one part of the budget does not allow
// is charged to none.
func (c *caller) Spend(checks, bytes int) error {
	b := &c.budget
	if b.checks == nil && b.bytes == nil && b.keys == nil {
		return nil
	}
	u := b.used
	u.mu.Lock()
	defer u.mu.Unlock()
	now := limiter.TickOf(u.now())
	if checks > 0 && b.keys != nil {
		if u.keys.Peek(now, 1, &u.decision); !u.decision.Allowed {
			return c.over("new keys", 1, &u.decision)
		}
	}
	both := bytes > 0 && b.bytes != nil && checks > 0 && b.checks != nil // else one is charged, or is not
	if both {
		if u.checks.Peek(now, uint64(checks), &u.decision); !u.decision.Allowed {
			return c.over("checks", checks, &u.decision)
		}
	}
	if bytes > 0 && b.bytes != nil {
		if u.bytes.Check(now, uint64(bytes), &u.decision); !u.decision.Allowed {
			return c.over("bytes", bytes, &u.decision)
		}
	}
	if checks > 0 && b.checks != nil {
		if u.checks.Check(now, uint64(checks), &u.decision); !u.decision.Allowed {
			return c.over("checks", checks, &u.decision)
		}
	}
	return nil
}

// CountsKeys implements [frontend.KeyBudget].
func (c *caller) CountsKeys() bool { return c.budget.keys != nil }

// SpendKeys implements [frontend.KeyBudget]. How many keys of a message are new is known
// once it is decided, so it may take the budget below nothing: to two seconds' worth at
// most, so that one message with many new keys refuses no more than that.
func (c *caller) SpendKeys(n int) {
	u := c.budget.used
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.budget.keys == nil {
		return
	}
	now := limiter.TickOf(u.now())
	for most := int(c.budget.keys.Capacity()); n > 0; n -= most {
		u.keys.Check(now, uint64(min(n, most)), &u.decision)
		if u.decision.Len() > 0 && u.decision.RetryAfter > 2*time.Second {
			return
		}
	}
}

// over returns the error of a message that is beyond the budget.
func (c *caller) over(what string, n int, d *limiter.Decision) error {
	l := d.Limit(0).Limit // of the newest file, while c may be of an older one
	text := fmt.Sprintf("%v: caller %q has a budget of %d %s a second at this node, and it is used up: send less, or "+
		"again in %v",
		frontend.ErrBudget, c.name, l.Limit(), what, d.RetryAfter)
	if d.Never {
		text = fmt.Sprintf("%v: caller %q has a budget of %d %s a second at this node, and the message has %d: send "+
			"smaller messages",
			frontend.ErrBudget, c.name, l.Limit(), what, n)
	}
	return &overBudgetError{text, d.RetryAfter}
}

func (c *caller) OpenStream() error {
	u := c.budget.used
	u.mu.Lock()
	defer u.mu.Unlock()
	if most := c.budget.streams; most > 0 && u.streams >= most {
		return &overBudgetError{fmt.Sprintf("caller %q has a budget of %s at this node, and has them: close one first",
			c.name, plural(most, "stream")), 0}
	}
	u.streams++
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func (c *caller) CloseStream() {
	u := c.budget.used
	u.mu.Lock()
	defer u.mu.Unlock()
	u.streams--
}

// overBudgetError is why a message is beyond a budget.
type overBudgetError struct {
	text string
	wait time.Duration // 0: none is known, or none helps
}

func (e *overBudgetError) Error() string { return e.text }

func (e *overBudgetError) Unwrap() error { return frontend.ErrBudget }

// RetryAfter returns how long to wait.
func (e *overBudgetError) RetryAfter() time.Duration { return e.wait }

func (l *loader) budget(c *caller) func(*node) {
	return func(n *node) {
		b := &c.budget
		l.fields(n, "a budget", map[string]func(*node){
			"checks":  l.rate("checks", &b.checks, limiter.CountNone),
			"bytes":   l.rate("bytes", &b.bytes, limiter.CountNone),
			"keys":    l.rate("keys", &b.keys, limiter.CountAll), // also what is above the budget
			"streams": func(n *node) { b.streams = int(l.number(n, "streams", maxStreams)) },
		})
	}
}

// rate returns a reader of units a second.
func (l *loader) rate(name string, to **limiter.Limit, rejected limiter.CountRejected) func(*node) {
	return func(n *node) {
		v := l.number(n, name, limiter.NarrowUnits)
		if v == 0 {
			return
		}
		limit, err := limiter.NewLimit(limiter.Spec{Name: name, Algorithm: limiter.TokenBucket, Limit: v, Window: time.Second,
			CountRejected: rejected})
		if err != nil {
			l.add(n, "%v", err)
			return
		}
		*to = limit
	}
}

// number reads a whole number above 0; 0 after a mistake.
func (l *loader) number(n *node, name string, most int64) int64 {
	v, err := strconv.ParseInt(n.Text, 10, 64)
	if n.Kind != yamltree.Scalar || err != nil || v < 1 || v > most {
		l.add(n, "%s must be a whole number from 1 to %d", name, most)
		return 0
	}
	return v
}

// adopt has the budgets go on with what the identities of the old file have used, by their
// names. old is nil at the start.
func (p *policy) adopt(old *policy, now func() time.Time) {
	before := old.byName()
	for name, c := range p.byName() {
		u := newUsed(now)
		if was := before[name]; was != nil {
			u = was.budget.used
		}
		c.budget.keep(u)
	}
}

func (p *policy) byName() map[string]*caller {
	out := map[string]*caller{}
	if p == nil {
		return out
	}
	for _, c := range p.callers {
		out[c.name] = c
	}
	if p.anonymous != nil {
		out[p.anonymous.name] = p.anonymous
	}
	return out
}
