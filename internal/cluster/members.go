package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/cluster/members"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
)

// Registry returns what this node knows of the members by name.
func (c *Core) Registry() *members.Registry { return c.registry }

// Forget stops counting a dead member and tells the members in reach. It reports whether
// there was a dead member of that name.
func (c *Core) Forget(name string) bool {
	gone, ok := c.registry.Forget(name)
	if ok {
		t := c.begin()
		defer t.end()
		t.Out.Spread([]peer.Known{gone}, 0)
	}
	return ok
}

// OnNews sets the function that the scheduler calls after a link brought news about
// members or came down.
func (c *Core) OnNews(f func()) { c.onNews.Store(&f) }

func (c *Core) news() {
	if f := c.onNews.Load(); f != nil {
		c.config.Scheduler.After(0, *f)
	}
}

// introduce tells a member all names that this node knows, its own included.
func (c *Core) introduce(t *turn, to peer.Instance) {
	known := c.registry.All()
	if self := c.config.Self.Name; !slices.ContainsFunc(known, func(k peer.Known) bool { return k.Name == self }) {
		known = append(known, peer.Known{Name: self, Instance: c.self})
	}
	t.Out.Known(to, known)
}

// leave tells the members directly that this node is about to leave. Gossip may tell
// them too late for them to find another relay.
func (c *Core) leave(t *turn, v *view.View) {
	self := []peer.Known{{Name: c.config.Self.Name, Instance: c.self, Gone: true}}
	for i := range v.Members {
		t.Out.Known(v.Members[i].Instance, self)
	}
}

// hearOfMembers records what a member says about members, and passes news on. direct
// means that the report came on the member's own connection.
func (c *Core) hearOfMembers(t *turn, from peer.Instance, known []peer.Known, direct bool) {
	valid := known[:0:0]
	for i := range known {
		k := &known[i]
		if !members.Valid(k) {
			c.distrust(from, "a member's name")
			continue
		}
		if direct && k.Instance == from {
			c.mesh.Introduced(*k)
		}
		valid = append(valid, *k)
	}
	news, n, recent := c.registry.Hear(from, valid, t.Now)
	if v := c.view.Load(); n != v.Known || recent != v.Recent {
		c.view.CompareAndSwap(v, v.Recounted(n, recent))
	}
	if c.onNews.Load() != nil {
		t.Out.Spread(news, from)
		c.news()
	}
}

// nearby returns the members that count, are not in the view, and have a direct
// connection to this node: members that have just started. all is false if any other
// member outside the view counts.
func (c *Core) nearby(v *view.View) (near []peer.Instance, all bool) {
	if v.Known == len(v.Members) {
		return nil, true
	}
	for _, k := range c.registry.Dead() {
		near = append(near, k.Instance)
	}
	slices.Sort(near)
	for _, i := range near {
		if v.Has(i) || !c.mesh.Reachable(i) {
			return nil, false
		}
	}
	return near, len(near) == v.Known-len(v.Members)
}

// Met reports whether an instance of a member's name has shown itself over a link, to
// this node or to a member that told this node. An instance that is linked to this node
// stays met, whatever others report about its name.
func (c *Core) Met(name string, i peer.Instance) bool {
	return c.mesh.LinkedAs(i, name) || c.registry.Met(name, i)
}

// Vouched reports whether links confirm what gossip says of a member that is not live:
// that it is a member or, if k.Gone, that it left or was forgotten.
func (c *Core) Vouched(k peer.Known) bool {
	if k.Gone {
		return c.registry.SaidGone(k.Name, k.Instance)
	}
	return c.Met(k.Name, k.Instance) && !c.registry.SaidGone(k.Name, k.Instance)
}
