package cluster

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// linkSet is the set of all links. It is immutable.
type linkSet struct {
	byID map[peer.Instance]*link
	list []*link // sorted by instance
}

// link returns the link to an instance and creates it if necessary. The link to an
// instance that is not in the view and was never connected is not kept: what is sent on
// it goes to a relay at the end of the turn. So frames from invented instances use no
// memory here.
func (c *Core) link(to peer.Instance) *link {
	if l, ok := c.links.Load().byID[to]; ok {
		return l
	}
	c.linksMu.Lock()
	defer c.linksMu.Unlock()
	if c.links.Load().byID[to] == nil && !c.view.Load().Has(to) {
		return &link{to: to, number: c.numbered, downAt: c.sched.Now()}
	}
	return c.linkLocked(to)
}

// linkLocked is link for callers that hold linksMu; it always keeps the link.
func (c *Core) linkLocked(to peer.Instance) *link {
	have := c.links.Load()
	if l, ok := have.byID[to]; ok {
		return l
	}
	// The member may have received higher numbers from this node earlier. It would
	// confirm those, and lower ones would count as confirmed by that.
	l := &link{to: to, number: c.numbered, downAt: c.sched.Now()}
	next := &linkSet{byID: maps.Clone(have.byID), list: append(slices.Clone(have.list), l)}
	next.byID[to] = l
	slices.SortFunc(next.list, func(a, b *link) int { return cmp.Compare(a.to, b.to) })
	c.links.Store(next)
	return l
}

// forgetEnded removes what is kept of instances that have been out of the view and out
// of reach for forgetAfter. Most of them have ended, and a name that restarts again and
// again would otherwise use ever more memory. An instance that returns later is treated
// as new.
func (c *Core) forgetEnded(now limiter.Tick, v *view.View) {
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
		over := !l.up && now-l.downAt >= forgetAfter && !v.Has(l.to)
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
