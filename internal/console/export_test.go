package console

import (
	"time"

	"github.com/weirlimit/weir"
)

// Watchers returns how many watch a page.
func (c *Console) Watchers() int {
	c.site.feeds.mu.Lock()
	defer c.site.feeds.mu.Unlock()
	return c.site.feeds.all
}

// SignIn begins a session, and returns its number.
func (c *Console) SignIn(name, token string, now time.Time) string {
	return c.site.sessions.add(name, token, now)
}

// EndOverrides sees members as a turn of Run does.
func (c *Console) EndOverrides(members ...weir.Member) { c.Overriding.end(members) }
