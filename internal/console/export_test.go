package console

// Watchers returns how many watch a page.
func (c *Console) Watchers() int {
	c.feeds.mu.Lock()
	defer c.feeds.mu.Unlock()
	return c.feeds.all
}
