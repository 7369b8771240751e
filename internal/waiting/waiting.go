// Package waiting repeats a check until it is allowed.
package waiting

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// least is the shortest pause between two checks, and the first after a denial that
// names no wait. With further such denials in a row the pause doubles, up to most.
const (
	least = 10 * time.Millisecond
	most  = time.Second
)

// The longest jitter is a tenth of the wait, and at most a minute: over that time even
// many callers ask again at a bearable rate.
const (
	spread = 10
	widest = time.Minute
)

// For waits. It returns after span, or with the context's error if that ends first.
type For func(ctx context.Context, span time.Duration) error

// Jitter returns a random number from 0 up to 1, without 1.
type Jitter func() float64

// Sleep waits in real time.
func Sleep(ctx context.Context, span time.Duration) error {
	t := time.NewTimer(span)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Until repeats a check until it is allowed. check overwrites d. After each denial Until
// waits for d.RetryAfter, or, if that is 0, for a pause that doubles. jitter lengthens each
// wait by up to a tenth, and at most a minute, so that callers that wait for one key do not
// all ask again at the same instant; it does not lengthen a wait beyond the context's
// deadline.
//
// Until gives up at once, with an error that wraps [limiter.ErrWait], if the check can
// never be allowed, or not before the context's deadline. Other errors are those of check
// and of the context.
func Until(ctx context.Context, d *limiter.Decision, check func() error, wait For, jitter Jitter) error {
	pause := least
	for {
		if err := check(); err != nil || d.Allowed {
			return err
		}
		if d.Source == limiter.SourceRule {
			return fmt.Errorf("%w: rule %q denies it, whatever was sent before", limiter.ErrWait, d.Rule)
		}
		if d.Never {
			return fmt.Errorf("%w: rule %q never admits so many units at once: lower the cost", limiter.ErrWait, d.Rule)
		}
		span := max(d.RetryAfter, least)
		if d.RetryAfter > 0 {
			pause = least
		} else {
			span, pause = pause, min(2*pause, most)
		}
		longer := max(span, span+time.Duration(jitter()*float64(min(span/spread, widest)))) // the sum may overflow
		until, some := ctx.Deadline()
		switch {
		case some && time.Until(until) < span:
			return fmt.Errorf("%w: rule %q admits it in %v at the earliest, which is after the deadline of the context: %w",
				limiter.ErrWait, d.Rule, span, context.DeadlineExceeded)
		case !some || time.Until(until) > longer:
			span = longer
		}
		if err := wait(ctx, span); err != nil {
			return err
		}
	}
}
