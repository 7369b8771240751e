package cluster

import (
	"log/slog"
	"slices"
	"sync"
)

// failures counts failures of the core until they are logged. At the bound of counters
// every update of a copy fails, as many as there are checks, and a log record for each
// would cost more than the updates.
type failures struct {
	mu    sync.Mutex
	items []failure // one for each text of the core

	ignored ignored
}

// failure is one kind of failure since the last report.
type failure struct {
	what  string
	last  error
	times uint64
}

// add counts a failure. It is safe for concurrent use.
func (c *failures) add(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.items, func(o failure) bool { return o.what == what })
	if i < 0 {
		i = len(c.items)
		c.items = append(c.items, failure{what: what})
	}
	c.items[i].last = err
	c.items[i].times++
}

// report logs each kind of failure since the last report, with its number and the last
// error.
func (c *failures) report(log *slog.Logger) {
	c.mu.Lock()
	items := c.items
	c.items = nil
	c.mu.Unlock()
	for _, o := range items {
		log.Error("a cluster operation failed", "what", o.what, "error", o.last, "times", o.times)
	}
}
