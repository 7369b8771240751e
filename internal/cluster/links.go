package cluster

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// linkSet is all links, immutable.
type linkSet struct {
	byID map[peer.Instance]*link
	list []*link // by instance
}

// link returns the link to an instance, which it makes if need be. That to one which is
// not in the view, and never was connected, is not kept: what is to be sent to it goes out
// with the end of the turn, by a relay, and nothing stays. So whoever invents instances
// leaves nothing here.
func (c *Core) link(to peer.Instance) *link {
	if l, ok := c.links.Load().byID[to]; ok {
		return l
	}
	c.linksMu.Lock()
	defer c.linksMu.Unlock()
	if c.links.Load().byID[to] == nil && !c.view.Load().has(to) {
		return &link{to: to, number: c.numbered, downAt: c.sched.Now()}
	}
	return c.linkLocked(to)
}

// linkLocked does the same; linksMu is held.
func (c *Core) linkLocked(to peer.Instance) *link {
	have := c.links.Load()
	if l, ok := have.byID[to]; ok {
		return l
	}
	// Who has seen higher numbers from here would take these for confirmed.
	l := &link{to: to, number: c.numbered, downAt: c.sched.Now()}
	next := &linkSet{byID: maps.Clone(have.byID), list: append(slices.Clone(have.list), l)}
	next.byID[to] = l
	slices.SortFunc(next.list, func(a, b *link) int { return cmp.Compare(a.to, b.to) })
	c.links.Store(next)
	return l
}

// forgetEnded forgets what is kept of instances that have been out of the view, and
// out of reach, for long: most have ended, and a name that starts again and again
// would leave ever more of them. One that is met again is met as if it was never seen.
func (c *Core) forgetEnded(now limiter.Tick, v *View) {
	c.tickMu.Lock()
	for i, since := range c.silenced {
		if now-since >= forgetAfter {
			delete(c.silenced, i)
		}
	}
	c.tickMu.Unlock()
	c.linksMu.Lock()
	defer c.linksMu.Unlock()
	have := c.links.Load()
	ended := func(l *link) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		over := !l.up && now-l.downAt >= forgetAfter && !v.has(l.to)
		if over {
			c.numbered = max(c.numbered, l.number)
		}
		return over
	}
	list := make([]*link, 0, len(have.list))
	for _, l := range have.list {
		if !ended(l) {
			list = append(list, l)
		}
	}
	if len(list) == len(have.list) {
		return
	}
	next := &linkSet{byID: make(map[peer.Instance]*link, len(list)), list: list}
	for _, l := range list {
		next.byID[l.to] = l
	}
	c.links.Store(next)
}
