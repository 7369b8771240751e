package cluster

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// staleAfter is how long a dead member counts for available partitions. keepGone is how
// long this node remembers that a member left or was forgotten, because others may not
// have heard of it.
const (
	staleAfter = 10 * limiter.Minute
	keepGone   = 24 * 60 * limiter.Minute
)

// peerBook remembers the members by name, dead ones included: a dead member counts until
// it leaves or is forgotten. A live name is always accepted. Other names are accepted
// while there are fewer than maxPeers names, live ones included; at that bound a name
// that does not count makes room.
type peerBook struct {
	known map[string]*acquaintance
}

type acquaintance struct {
	instance peer.Instance
	gone     bool         // it left or was forgotten
	live     bool         // it is in the view
	since    limiter.Tick // when it stopped being live, or was heard of

	// runs are the last instances that links reported under this name, newest first.
	// leaves is the instance that a link reported as leaving, gone or forgotten.
	runs   [maxRuns]peer.Instance
	leaves peer.Instance
}

// maxRuns is how many instances of a name are remembered as reported by links. Two may
// exist at a time: one that ends and one that starts.
const maxRuns = 4

// told records what a link reports of an instance of this name, and reports whether it
// is new.
func (a *acquaintance) told(k peer.Known) (news bool) {
	if !slices.Contains(a.runs[:], k.Instance) {
		copy(a.runs[1:], a.runs[:])
		a.runs[0], news = k.Instance, true
	}
	if k.Gone && a.leaves != k.Instance {
		a.leaves, news = k.Instance, true
	}
	return news
}

// SetMembers records the members that are joining, active or leaving, this node
// included, and those that left gracefully. It returns the number of members by name
// that count: known for closed partitions, recent for the others.
func (c *Core) SetMembers(members []peer.Member, left []peer.Known) (known, recent int) {
	now := c.sched.Now()
	c.peersMu.Lock()
	defer c.peersMu.Unlock()
	for name, a := range c.peers.known {
		switch {
		case a.live:
			a.live, a.since = false, now
		case a.gone && now-a.since >= keepGone:
			delete(c.peers.known, name)
		}
	}
	for i := range members {
		m := &members[i]
		c.peers.room(m.Name)
		next := acquaintance{instance: m.Instance, live: true}
		if a := c.peers.known[m.Name]; a != nil {
			next.runs, next.leaves = a.runs, a.leaves
		}
		c.peers.known[m.Name] = &next
	}
	for _, k := range left {
		c.peers.hear(k, now)
	}
	return c.peers.count(now)
}

// hear records what this node's membership, or a link, says about a member.
func (b *peerBook) hear(k peer.Known, now limiter.Tick) {
	have := b.known[k.Name]
	switch {
	case have == nil && b.room(k.Name):
		b.known[k.Name] = &acquaintance{instance: k.Instance, gone: k.Gone, since: now}
	case have == nil || have.live:
	case have.instance == k.Instance:
		have.gone = have.gone || k.Gone
	case have.gone && !k.Gone:
		// A later instance, which is not known to have left.
		have.instance, have.gone, have.since = k.Instance, false, now
	}
}

// room makes room for a name and reports whether there is any. At the bound, the name
// that has been gone longest is removed.
func (b *peerBook) room(name string) bool {
	if _, ok := b.known[name]; ok || len(b.known) < maxPeers {
		return true
	}
	oldest, at := "", limiter.Tick(0)
	for name, a := range b.known {
		if a.gone && !a.live && (oldest == "" || a.since < at || a.since == at && name < oldest) {
			oldest, at = name, a.since
		}
	}
	delete(b.known, oldest)
	return oldest != ""
}

// count returns how many members count. known are all names that have not left. recent
// leaves out members that have been dead for staleAfter. Only a majority may leave a
// member out: of the members counted at that step, more than half must have been alive
// when the dead member's time was over, or be alive now.
func (b *peerBook) count(now limiter.Tick) (known, recent int) {
	live := 0
	var dead []limiter.Tick // when each died
	for _, a := range b.known {
		switch {
		case a.live:
			live++
		case !a.gone:
			dead = append(dead, a.since)
		}
	}
	slices.Sort(dead)
	known = live + len(dead)
	recent = known
	for _, since := range dead {
		over := since + staleAfter
		later, _ := slices.BinarySearch(dead, over+1)
		alive := live + len(dead) - later // alive when that time was over, or now
		if now < over || 2*alive <= recent {
			break
		}
		recent--
	}
	return known, recent
}

// Forget stops counting a dead member and tells the members in reach. It reports whether
// there was a dead member of that name.
func (c *Core) Forget(name string) bool {
	c.peersMu.Lock()
	a := c.peers.known[name]
	if a == nil || a.live || a.gone {
		c.peersMu.Unlock()
		return false
	}
	a.gone, a.leaves = true, a.instance
	word := peer.Known{Name: name, Instance: a.instance, Gone: true}
	c.peersMu.Unlock()
	t := c.begin()
	defer t.end()
	c.pass(t, 0, []peer.Known{word})
	return true
}

// Dead returns the members that count although they are not in the view, by name.
func (c *Core) Dead() []peer.Known {
	var out []peer.Known
	for _, k := range c.acquaintances() {
		c.peersMu.Lock()
		a := c.peers.known[k.Name]
		dead := a != nil && !a.live && !a.gone
		c.peersMu.Unlock()
		if dead {
			out = append(out, k)
		}
	}
	return out
}

// Recount returns the present values of the counts that SetMembers returns.
func (c *Core) Recount() (known, recent int) {
	c.peersMu.Lock()
	defer c.peersMu.Unlock()
	return c.peers.count(c.sched.Now())
}

// acquaintances returns all names known, sorted.
func (c *Core) acquaintances() []peer.Known {
	c.peersMu.Lock()
	defer c.peersMu.Unlock()
	out := make([]peer.Known, 0, len(c.peers.known))
	for name, a := range c.peers.known {
		out = append(out, peer.Known{Name: name, Instance: a.instance, Gone: a.gone})
	}
	slices.SortFunc(out, func(a, b peer.Known) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// introduce tells a member all names that this node knows, its own included.
func (c *Core) introduce(t *turn, to peer.Instance) {
	known := c.acquaintances()
	if self := c.config.Self.Name; !slices.ContainsFunc(known, func(k peer.Known) bool { return k.Name == self }) {
		known = append(known, peer.Known{Name: self, Instance: c.self})
	}
	c.send(t, to, 64*len(known), false, func(_ *link, f *peer.Frame) { f.Known = append(f.Known, known...) })
}

// leave tells the members directly that this node is about to leave. Gossip may tell
// them too late for them to find another relay.
func (c *Core) leave(t *turn, v *view.View) {
	self := peer.Known{Name: c.config.Self.Name, Instance: c.self, Gone: true}
	for i := range v.Members {
		c.send(t, v.Members[i].Instance, 64, false, func(_ *link, f *peer.Frame) { f.Known = append(f.Known, self) })
	}
}

// hearOfMembers records what a member says about members, and passes news on. A member
// that reports itself as gone is leaving, but has not left yet. direct means that the
// report came on the member's own connection.
func (c *Core) hearOfMembers(t *turn, from peer.Instance, known []peer.Known, direct bool) {
	now := t.now
	var news []peer.Known
	c.peersMu.Lock()
	for _, k := range known {
		if !crediblyKnown(&k) {
			c.distrust(from, "a member's name")
			continue
		}
		if direct && k.Instance == from {
			c.introduced(&k)
		}
		leaves := k.Instance == from && k.Gone
		if !leaves {
			c.peers.hear(k, now)
		}
		if a := c.peers.known[k.Name]; a != nil && a.told(k) && !leaves {
			news = append(news, k)
		}
	}
	n, recent := c.peers.count(now)
	c.peersMu.Unlock()
	v := c.view.Load()
	if n != v.Known || recent != v.Recent {
		c.view.CompareAndSwap(v, v.Recounted(n, recent))
	}
	if c.onWord.Load() != nil {
		c.pass(t, from, news)
		c.word()
	}
}

// introduced records what a member says about itself on its own connection.
func (c *Core) introduced(k *peer.Known) {
	l := c.link(k.Instance)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.name, l.leaving = k.Name, l.leaving || k.Gone
}

// nearby returns the members that count, are not in the view, and have a direct
// connection to this node: members that have just started. all is false if any other
// member outside the view counts.
func (c *Core) nearby(v *view.View) (near []peer.Instance, all bool) {
	if v.Known == len(v.Members) {
		return nil, true
	}
	c.peersMu.Lock()
	for _, a := range c.peers.known {
		if !a.live && !a.gone {
			near = append(near, a.instance)
		}
	}
	c.peersMu.Unlock()
	slices.Sort(near)
	for _, i := range near {
		if v.Has(i) || !c.reachable(i) {
			return nil, false
		}
	}
	return near, len(near) == v.Known-len(v.Members)
}
