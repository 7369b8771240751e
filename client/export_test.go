package client

import "time"

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
