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
	maxCancels = 64
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
// does nothing while 64 others are under way: the hold then ends by itself.
func (c *Cancels) Begin(ctx context.Context, q *limiter.Request) {
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
		if out, err := c.settle(ctx, r, 0, limiter.IgnoreUnknown()); err == nil && out.State != limiter.AmendUnknown {
			return
		}
		select {
		case <-time.After(cancelAgain):
			_, _ = c.settle(ctx, r, 0, limiter.IgnoreUnknown()) // if it fails, the hold ends by itself
		case <-ctx.Done():
		}
	}()
}
