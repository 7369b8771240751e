package cluster

import (
	"log/slog"
	"slices"
	"sync"
)

// complaints counts failures of the core until they are logged. At the bound of counters
// every update of a copy fails, as many as there are checks, and a log record for each
// would cost more than the updates.
type complaints struct {
	mu    sync.Mutex
	items []complaint // one for each text of the core

	ignored ignored
}

// complaint is one kind of failure since the last report.
type complaint struct {
	what  string
	last  error
	times uint64
}

// add counts a failure. It is safe for concurrent use.
func (c *complaints) add(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.items, func(o complaint) bool { return o.what == what })
	if i < 0 {
		i = len(c.items)
		c.items = append(c.items, complaint{what: what})
	}
	c.items[i].last = err
	c.items[i].times++
}

// report logs each kind of failure since the last report, with its number and the last
// error.
func (c *complaints) report(log *slog.Logger) {
	c.mu.Lock()
	items := c.items
	c.items = nil
	c.mu.Unlock()
	for _, o := range items {
		log.Error("a cluster operation failed", "what", o.what, "error", o.last, "times", o.times)
	}
}
