package engine

import (
	"fmt"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
)

// Unheld returns an error for a resolved check that would hold units of a limit on concurrency
// for good.
func Unheld(m rules.Match, c *limiter.Charge) error {
	if !m.Unheld || c.Peek {
		return nil
	}
	for i := range c.Len() {
		if c.Key(i).Cost > 0 {
			return fmt.Errorf("%w: a rule that counts the request limits concurrency: give the request an id, by which what it holds is given back, and a hold, or give the rule a hold", limiter.ErrInvalid)
		}
	}
	return nil
}
