package cluster

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// staleAfter is how long a dead member counts for partitions that are not
// closed, and keepGone how long it is known of one that left, or was forgotten, that it
// did: others may not have heard of it.
const (
	staleAfter = 10 * limiter.Minute
	keepGone   = 24 * 60 * limiter.Minute
)

// peerBook remembers by name who is a member, also those that are dead: they
// count until they leave, or are forgotten. No name is refused that is live; of others
// there are maxPeers at most, live ones included, and those that do not count make room.
type peerBook struct {
	known map[string]*acquaintance
}

type acquaintance struct {
	instance peer.Instance
	gone     bool         // left, or forgotten
	live     bool         // in the view
	since    limiter.Tick // when it was found dead

	// runs are the latest instances that links have told of under this name, the newest
	// first, and leaves is the one that links have said leaves, left or is forgotten.
	runs   [maxRuns]peer.Instance
	leaves peer.Instance
}

// maxRuns is how many instances of a name are remembered as told of by links. Two may
// be there at a time: the one that ends and the one that starts.
const maxRuns = 4

// told takes note of what a link says of an instance of this name. It reports whether
// that is news.
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

// SetMembers takes note of the members that are joining, active or leaving, this
// node included, and of those that left gracefully. It returns how many members
// there are by name, in any state: for closed partitions, and for the others.
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

// hear takes note of what is said of a member, by this node's membership or over a link.
func (b *peerBook) hear(k peer.Known, now limiter.Tick) {
	have := b.known[k.Name]
	switch {
	case have == nil && b.room(k.Name):
		b.known[k.Name] = &acquaintance{instance: k.Instance, gone: k.Gone, since: now}
	case have == nil || have.live:
	case have.instance == k.Instance:
		have.gone = have.gone || k.Gone
	case have.gone && !k.Gone:
		// Another run of it, of which it is not known that it left.
		have.instance, have.gone, have.since = k.Instance, false, now
	}
}

// room makes room for a name, and reports whether there is any: at the bound, who is
// gone for longest goes.
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

// count returns how many members count: all that are known, and without those
// that have been dead for long, of which only a majority forgets by itself: of
// those that counted, more than half were alive when the time of the dead one was
// over, or are alive now.
func (b *peerBook) count(now limiter.Tick) (known, recent int) {
	live := 0
	var dead []limiter.Tick // since when
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
		alive := live + len(dead) - later // then, or now
		if now < over || 2*alive <= recent {
			break
		}
		recent--
	}
	return known, recent
}

// Forget has a dead member count no more, and tells those in reach. It reports whether
// there was one of that name.
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

// Dead returns the members that count although they are not in the view.
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

// Recount returns the counts that SetMembers returned, as of now.
func (c *Core) Recount() (known, recent int) {
	c.peersMu.Lock()
	defer c.peersMu.Unlock()
	return c.peers.count(c.sched.Now())
}

// acquaintances returns all that is known, by name.
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

// introduce tells a member whom this node knows.
func (c *Core) introduce(t *turn, to peer.Instance) {
	known := c.acquaintances()
	if self := c.config.Self.Name; !slices.ContainsFunc(known, func(k peer.Known) bool { return k.Name == self }) {
		known = append(known, peer.Known{Name: self, Instance: c.self})
	}
	c.send(t, to, 64*len(known), false, func(_ *link, f *peer.Frame) { f.Known = append(f.Known, known...) })
}

// leave tells the members, directly, that this node is about to go: gossip may
// bring it to them when it is too late to find another relay.
func (c *Core) leave(t *turn, v *View) {
	self := peer.Known{Name: c.config.Self.Name, Instance: c.self, Gone: true}
	for i := range v.Members {
		c.send(t, v.Members[i].Instance, 64, false, func(_ *link, f *peer.Frame) { f.Known = append(f.Known, self) })
	}
}

// hearOfMembers takes note of whom another member knows. What it says of itself
// is that it leaves, which is not to have left. direct tells that it came on the member's
// own connection.
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
		next := *v
		next.Known, next.Recent = max(n, len(v.Members)), max(recent, len(v.Members))
		c.view.CompareAndSwap(v, &next)
	}
	if c.onWord.Load() != nil {
		c.pass(t, from, news)
		c.word()
	}
}

// introduced takes note of what a member says of itself on its own connection.
func (c *Core) introduced(k *peer.Known) {
	l := c.link(k.Instance)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.name, l.leaving = k.Name, l.leaving || k.Gone
}

// nearby returns the members that count, are not in the view, and have a direct
// connection to this node: those that have just started. all is false if there
// are others that count.
func (c *Core) nearby(v *View) (near []peer.Instance, all bool) {
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
		if v.has(i) || !c.reachable(i) {
			return nil, false
		}
	}
	return near, len(near) == v.Known-len(v.Members)
}
