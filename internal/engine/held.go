package engine

import (
	"fmt"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// Unheld returns an error for a resolved check that would hold units of a limit on concurrency
// for good, and for a lease that lasts for no time, or that is only peeked.
func Unheld(m rules.Match, c *arith.Charge) error {
	switch lent := c.ID != nil && c.ID.Lent; {
	case lent && c.ID.Hold == 0:
		return fmt.Errorf("%w: units are to be lent for no time: give the request a hold", limiter.ErrInvalid)
	case lent && c.Peek:
		return fmt.Errorf("%w: a peek charges nothing, so that nothing is lent: ask for the units by a check",
			limiter.ErrInvalid)
	}
	if !m.Unheld || c.Peek {
		return nil
	}
	for i := range c.Len() {
		if c.Key(i).Cost > 0 {
			return fmt.Errorf("%w: a rule that counts the request limits concurrency: give the request an id, by which what "+
				"it holds is given back, and a hold, or give the rule a hold", limiter.ErrInvalid)
		}
	}
	return nil
}

// Spent returns an error for a decision that denies for good because the id of the check is that of a reservation
// that is over: the answer is a repeated one, and a limit on concurrency would never allow the cost.
func Spent(d *limiter.Decision) error {
	if d.Allowed || !d.Never || !d.Repeated {
		return nil
	}
	for i := range d.Len() {
		if l := d.Limit(i); l.Never && !l.Rule.Shadow && l.Limit.Algorithm() == limiter.Concurrency {
			return table.ErrSpent
		}
	}
	return nil
}
