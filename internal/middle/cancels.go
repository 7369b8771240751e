// Package middle is what the middlewares for HTTP and gRPC have in common: options, the memory of a check, and
// settlements. It uses the clock of the process.
package middle

import (
	"context"
	"maps"
	"time"

	"github.com/weirlimit/weir/limiter"
)

const (
	// maxCancels bounds the cancellations that one limiter makes at a time.
	maxCancels = 1024
	// cancelWithin bounds one of them, with its repetition after cancelAgain.
	cancelWithin, cancelAgain = 5 * time.Second, time.Second
)

// Cancels cancels reservations of which nobody knows whether they were made.
type Cancels struct {
	settle func(ctx context.Context, r limiter.Request, actual int64, opts ...limiter.SettleOption) (limiter.Amended,
		error)
	under chan struct{} // has an element for each cancellation under way
}

// NewCancels returns Cancels that cancel by a function that settles.
func NewCancels(settle func(context.Context, limiter.Request, int64, ...limiter.SettleOption) (limiter.Amended,
	error)) *Cancels {
	return &Cancels{settle, make(chan struct{}, maxCancels)}
}

// Begin cancels the reservation of a request in the background, within 5 s. The check may still be
// under way, so what is unknown or was not answered is cancelled once more a second later. Begin
// does nothing while 1024 others are under way: the hold then ends by itself.
func (c *Cancels) Begin(ctx context.Context, q *limiter.Request) { c.begin(ctx, q, true) }

// Wait cancels the reservation of a request at once, and waits for the answer. If need be, it is cancelled once more in
// the background, as by Begin.
func (c *Cancels) Wait(ctx context.Context, q *limiter.Request) {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWithin)
	defer cancel()
	if !c.done(within, q) {
		c.begin(ctx, q, false)
	}
}

// done cancels once, and reports whether a further time could change nothing.
func (c *Cancels) done(ctx context.Context, q *limiter.Request) bool {
	out, err := c.settle(ctx, *q, 0, limiter.IgnoreUnknown())
	return err == nil && out.State != limiter.AmendUnknown
}

// begin cancels in the background, first at once if atOnce is set.
func (c *Cancels) begin(ctx context.Context, q *limiter.Request, atOnce bool) {
	select {
	case c.under <- struct{}{}:
	default:
		return
	}
	r := *q // the caller's memory is used again
	r.Attributes = maps.Clone(q.Attributes)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWithin)
	go func() {
		defer func() {
			cancel()
			<-c.under
		}()
		if atOnce && c.done(ctx, &r) {
			return
		}
		select {
		case <-time.After(cancelAgain):
			_ = c.done(ctx, &r) // if it fails, the hold ends by itself
		case <-ctx.Done():
		}
	}()
}
