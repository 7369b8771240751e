package cluster

import (
	"slices"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/members"
	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
)

// memberNews is what links say about members: it keeps the registry, tells others what
// this node knows, and passes news on.
type memberNews struct {
	self     peer.Member // its state is that at the start
	registry *members.Registry
	links    *mesh.Mesh
	view     *atomic.Pointer[view.View]
	sched    Scheduler
	onNews   atomic.Pointer[func()] // called when a link brings news about members
}

// Registry returns what this node knows of the members by name.
func (m *memberNews) Registry() *members.Registry { return m.registry }

// OnNews sets the function that the scheduler calls after a link brought news about
// members or came down.
func (m *memberNews) OnNews(f func()) { m.onNews.Store(&f) }

// changed has the function of OnNews called.
func (m *memberNews) changed() {
	if f := m.onNews.Load(); f != nil {
		m.sched.After(0, *f)
	}
}

// introduce tells a member all names that this node knows, its own included, and whether it leaves.
func (m *memberNews) introduce(t *turn, to peer.Instance, leaves bool) {
	known := m.registry.All(t.Now)
	if self := m.self.Name; !slices.ContainsFunc(known, func(k peer.Known) bool { return k.Name == self }) {
		known = append(known, peer.Known{Name: self, Instance: m.self.Instance, Joining: m.self.State == peer.Joining})
	}
	if leaves {
		known = append(known, peer.Known{Name: m.self.Name, Instance: m.self.Instance, Gone: true})
	}
	t.Out.Known(to, known)
	if all := m.registry.Expulsions(); len(all) > 0 {
		t.Out.Expelled(to, all)
	}
}

// tellExpelled tells all members in reach, except one, who is expelled.
func (m *memberNews) tellExpelled(t *turn, news []peer.Expulsion, except peer.Instance) {
	t.Out.SpreadExpelled(news, except)
}

// hearExpelled records what a member says on its own connection of members that are
// expelled, and tells it on.
func (m *memberNews) hearExpelled(t *turn, from peer.Instance, all []peer.Expulsion) {
	name := m.links.NameOf(from)
	if name == "" {
		return // it introduces itself first
	}
	news := m.registry.HearExpelled(m.self.Name, name, all, t.Now)
	if len(news) == 0 {
		return
	}
	m.tellExpelled(t, news, from)
	m.changed()
}

// leave tells the members of the view and all in direct reach that this node is about to leave. Who connects later
// hears it then. Gossip may tell them too late for them to find another relay.
func (m *memberNews) leave(t *turn, v *view.View) {
	self := []peer.Known{{Name: m.self.Name, Instance: m.self.Instance, Gone: true}}
	for i := range v.Members {
		t.Out.Known(v.Members[i].Instance, self)
	}
	t.Out.Spread(self, v.Has)
}

// Goodbye tells the members in direct reach, and those that connect until this node ends, that it has left. Otherwise
// one that starts, and does not hear it from gossip or from a member that does, would count it as dead. If it counts
// on, as one that comes back, it tells the members of the view so, see [members.Membership.CountsOn].
func (c *Core) Goodbye(countsOn bool) {
	t := c.begin()
	defer t.end()
	v := t.view()
	self := peer.Known{Name: v.Self().Name, Instance: c.self, Joining: countsOn, Gone: !countsOn, Left: !countsOn}
	if !countsOn {
		c.registry.Hear(c.self, []peer.Known{self}, 0, t.Now)
		t.Out.Spread([]peer.Known{self}, nil)
		return
	}
	for i := range v.Members {
		t.Out.Known(v.Members[i].Instance, []peer.Known{self})
	}
}

// Departed tells all in direct reach which members have left. One that starts meanwhile may not hear of it by gossip,
// and would count them as dead.
func (c *Core) Departed(gone []peer.Known) {
	t := c.begin()
	defer t.end()
	t.Out.Spread(gone, nil)
}

// hear records what a member says about members, and passes news on. via is the member that relayed
// the report, 0 if it came on the member's own connection.
func (m *memberNews) hear(t *turn, from peer.Instance, known []peer.Known, via peer.Instance) {
	valid := known[:0:0]
	for i := range known {
		k := &known[i]
		if !members.Valid(k) || k.Instance == m.self.Instance && k.Name != m.self.Name {
			t.c.distrust(from, "a member's name")
			continue
		}
		if via == 0 && k.Instance == from {
			m.links.Introduced(*k)
		}
		valid = append(valid, *k)
	}
	news, n, recent := m.registry.Hear(from, valid, via, t.Now)
	if v := m.view.Load(); n != v.Known || recent != v.Recent {
		m.view.CompareAndSwap(v, v.Recounted(n, recent))
	}
	if m.onNews.Load() != nil {
		t.Out.Spread(news, func(i peer.Instance) bool { return i == from })
		m.changed()
	}
}

// nearby returns the members that count, are not in the view, and have a direct
// connection to this node: members that have just started. all is false if any other
// member outside the view counts.
func (m *memberNews) nearby(v *view.View) (near []peer.Instance, all bool) {
	if v.Known == len(v.Members) {
		return nil, true
	}
	for _, k := range m.registry.Dead() {
		near = append(near, k.Instance)
	}
	slices.Sort(near)
	for _, i := range near {
		if v.Has(i) || !m.links.Reachable(i) {
			return nil, false
		}
	}
	return near, len(near) == v.Known-len(v.Members)
}

// Met reports whether an instance of a member's name has shown itself over a link, to
// this node or to a member that told this node. An instance that is linked to this node
// stays met, whatever others report about its name.
func (m *memberNews) Met(name string, i peer.Instance) bool {
	return m.links.LinkedAs(i, name) || m.registry.Met(name, i)
}

// Vouched reports whether links confirm what gossip says of a member that is not live:
// that it is a member or, if k.Gone, that it left or was forgotten.
func (m *memberNews) Vouched(k peer.Known) bool {
	if k.Gone {
		return m.registry.SaidGone(k.Name, k.Instance, false)
	}
	return m.Met(k.Name, k.Instance) && !m.registry.SaidGone(k.Name, k.Instance, false)
}
