package cluster

import (
	"log/slog"
	"slices"
	"sync"
)

// complaints sums what the core could not do. At the bound of counters that is each
// update of a copy, as many as there are checks: one record for each would be more
// work than they are.
type complaints struct {
	mu    sync.Mutex
	items []complaint // as many as the core has texts
}

// complaint is what could not be done since it was last said.
type complaint struct {
	what  string
	last  error
	times uint64
}

// add takes note of something that could not be done. It may be called from many
// goroutines.
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

// report says what could not be done since the last report, and how often, with the
// last reason.
func (c *complaints) report(log *slog.Logger) {
	c.mu.Lock()
	items := c.items
	c.items = nil
	c.mu.Unlock()
	for _, o := range items {
		log.Error("the cluster cannot do something", "what", o.what, "error", o.last, "times", o.times)
	}
}
