package cluster

import (
	"context"
	"slices"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Begin starts a check and calls done once when it is decided, possibly before Begin
// returns. Until then the core owns answer. The charge must not be reused even
// afterwards: if the deadline ended the check, the core may still read it for a moment.
// until is when the policy answers; 0 means the configured deadline.
func (c *Core) Begin(charge *arith.Charge, answer *limiter.Decision, until limiter.Tick, done func()) {
	t := c.begin()
	defer t.end()
	if c.calls.Leases.Decide(&t.Turn, charge, answer) || c.calls.Begin(&t.Turn, charge, answer, until, done) == nil {
		t.later = append(t.later, func(*turn) { done() })
	}
}

// Refund takes back a charge by its receipt, see [route.Router.Refund].
func (c *Core) Refund(charge *arith.Charge, r limiter.Receipt, done func(route.Outcome)) {
	t := c.begin()
	defer t.end()
	defer t.Catch()
	if arith.Fields(&r).Charged == 0 {
		t.later = append(t.later, func(*turn) { done(route.Outcome{}) })
		return
	}
	if c.calls.Leases.Refund(&t.Turn, charge, r, done) {
		return
	}
	c.calls.Refund(&t.Turn, charge, r, done)
}

// Reset forgets the counters of a charge, wherever they are, see [route.Router.Reset].
func (c *Core) Reset(charge *arith.Charge, done func(route.Outcome)) {
	t := c.begin()
	defer t.end()
	defer t.Catch()
	if charge.Len() == 0 {
		t.later = append(t.later, func(*turn) { done(route.Outcome{}) })
		return
	}
	c.calls.Reset(&t.Turn, charge, done)
}

// Explain asks for the reasons of a decision, see [route.Router.Explain].
func (c *Core) Explain(charge *arith.Charge, done func([]route.Explained)) {
	t := c.begin()
	defer t.end()
	defer t.Catch()
	c.calls.Explain(&t.Turn, charge, done)
}

// Check decides a check and waits for the decision, at most for the configured deadline;
// then the policy answers. If ctx ends while it waits, Check returns the error of ctx:
// the check may have been charged, answer is not written any more, and the charge must
// not be reused.
func (c *Core) Check(ctx context.Context, charge *arith.Charge, answer *limiter.Decision) error {
	return c.CheckWithin(ctx, charge, answer, 0)
}

// CheckWithin is [Core.Check] with a time of its own for this check, if that is shorter than the
// configured deadline; 0 means that it has none.
func (c *Core) CheckWithin(ctx context.Context, charge *arith.Charge, answer *limiter.Decision,
	within limiter.Tick) (err error) {
	if charge.Trace != nil {
		defer c.traced(charge)()
	}
	t := c.begin()
	if c.decider.fast(t, charge, answer) || c.calls.Leases.Decide(&t.Turn, charge, answer) {
		t.end()
		return nil
	}
	w := c.calls.NewWaiting()
	o := c.calls.Begin(&t.Turn, charge, answer, t.until(within), w.Decided)
	t.end()
	if o != nil {
		err = w.One(ctx, o)
	}
	c.calls.End(w)
	return err
}

// CheckMany decides several checks, each as Check does, and waits for all of them.
// Checks for the same member share frames; within is that of CheckWithin. If ctx ends while it waits, CheckMany returns
// the indices of the undecided checks in ascending order; their answers are not written any more. All charges may be
// reused.
func (c *Core) CheckMany(ctx context.Context, charges []arith.Charge, answers []limiter.Decision,
	within limiter.Tick) (undecided []int) {
	if len(charges) > 0 && charges[0].Trace != nil {
		defer c.tracedMany(charges)()
	}
	w := c.calls.NewWaiting()
	w.Expect(int32(len(charges)))
	open, calls, own := c.beginMany(charges, answers, within, ctx.Done() != nil, w.Decided)
	w.Expect(int32(open - len(charges)))
	undecided = w.All(ctx, calls)
	c.calls.End(w)
	for _, o := range own {
		if _, lost := slices.BinarySearch(undecided, o.index); !lost {
			charges[o.index].Unnamed = o.charge.Unnamed
		}
	}
	return undecided
}

// ownCharge is the charge of a check of a batch that was not decided at once.
type ownCharge struct {
	index  int
	charge *arith.Charge
}

// BeginMany starts several checks in one turn, and returns how many of them wait for their
// decisions. It calls done once for each of those, possibly before BeginMany returns, and
// not for the others. The rules of Begin hold for each answer, and the charges may be reused; within is that of
// CheckWithin. With keep, BeginMany returns the calls that wait, by the index of their check; nil if none waits.
func (c *Core) BeginMany(charges []arith.Charge, answers []limiter.Decision, within limiter.Tick, keep bool,
	done func()) (open int, calls []*route.Call) {
	open, calls, _ = c.beginMany(charges, answers, within, keep, done)
	return open, calls
}

// beginMany is BeginMany, and returns the copies of the charges that were not decided at once. The core may
// read those for a moment after the deadline ended their checks.
func (c *Core) beginMany(charges []arith.Charge, answers []limiter.Decision, within limiter.Tick, keep bool,
	done func()) (open int, calls []*route.Call, own []ownCharge) {
	t := c.begin()
	by := t.until(within)
	for i := range min(table.Ahead, len(charges)) {
		c.decider.prefetch(t, &charges[i])
	}
	for i := range charges {
		if next := i + table.Ahead; next < len(charges) {
			c.decider.prefetch(t, &charges[next])
		}
		if next := i + table.Ahead/2; next < len(charges) {
			c.decider.prefetchIDs(t, &charges[next])
		}
		if c.decider.fast(t, &charges[i], &answers[i]) || c.calls.Leases.Decide(&t.Turn, &charges[i], &answers[i]) {
			continue
		}
		charge := charges[i].Clone()
		own = append(own, ownCharge{i, charge})
		o := c.calls.Begin(&t.Turn, charge, &answers[i], by, done)
		if o == nil {
			continue
		}
		open++
		if keep {
			if calls == nil {
				calls = make([]*route.Call, len(charges))
			}
			calls[i] = o
		}
	}
	t.end()
	return open, calls, own
}

// until returns when the policy answers a check that waits within a time of its own; 0, for the
// configured deadline, if it has none or a longer one.
func (t *turn) until(within limiter.Tick) limiter.Tick {
	if within <= 0 || within >= t.c.config.Deadline {
		return 0
	}
	return t.Now + within
}
