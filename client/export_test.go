package client

import (
	"time"

	"github.com/weirlimit/weir/limiter"
)

// WithClock returns a configuration of a client that has a test's clock.
func WithClock(c Config, now func() time.Time) Config {
	c.now = now
	return c
}

// WithPoll returns a configuration of a client that looks at its files this often.
func WithPoll(c Config, every time.Duration) Config {
	c.poll = every
	return c
}

// Suspended has a client with leases take the wall clock for what it was so long ago, as one does whose machine was
// suspended since it looked.
func Suspended(c *Client, span limiter.Tick) { c.leases.ahead.Add(-int64(span)) }

// WallClock returns what the next check takes the wall clock for, to decide by a lease.
func WallClock(c *Client) limiter.Tick { return c.leases.soon().At }
