package console

import (
	"time"

	"github.com/weirlimit/weir"
)

// Watchers returns how many watch a page.
func (c *Console) Watchers() int {
	c.feeds.mu.Lock()
	defer c.feeds.mu.Unlock()
	return c.feeds.all
}

// SignIn begins a session, and returns its number.
func (c *Console) SignIn(name, token string, now time.Time) string {
	return c.sessions.add(name, token, now)
}

// EndOverrides sees members as a turn of Run does.
func (c *Console) EndOverrides(members ...weir.Member) { c.endOverrides(members) }
