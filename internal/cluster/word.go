package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Gossip proposes members and their addresses. Unless gossip is encrypted, anyone who
// reaches its port may send anything. Links exist only between members, because both
// sides of a link have proved that they know the secret. So links decide that a name is
// a member's, that a member leaves or is forgotten, and that it is alive. A member
// reports over its links about itself, and about others of which links have told it. See
// docs/decisions.md.

const (
	// answersWithin is how long a member with a link may take to answer after gossip
	// calls it dead. freshFor is how long after a message from it it is not asked again.
	answersWithin = 500 * limiter.Millisecond
	freshFor      = 250 * limiter.Millisecond
	// lookGap is the most that the time between two looks for an answer adds to the
	// wait.
	lookGap = reviewEvery + 50*limiter.Millisecond
)

// OnWord sets the function that the scheduler calls after a link brought news about
// members or came down.
func (c *Core) OnWord(f func()) { c.onWord.Store(&f) }

func (c *Core) word() {
	if f := c.onWord.Load(); f != nil {
		c.sched.After(0, *f)
	}
}

// pass forwards news about members to all members in reach except the one that sent it.
func (c *Core) pass(t *turn, from peer.Instance, news []peer.Known) {
	if len(news) == 0 {
		return
	}
	for _, l := range c.links.Load().list {
		l.mu.Lock()
		up := l.up
		l.mu.Unlock()
		if !up || l.to == from {
			continue
		}
		c.send(t, l.to, 64*len(news), false, func(_ *link, f *peer.Frame) { f.Known = append(f.Known, news...) })
	}
}

// Met reports whether an instance of a member's name has shown itself over a link, to
// this node or to a member that told this node. An instance that is linked to this node
// stays met, whatever others report about its name.
func (c *Core) Met(name string, i peer.Instance) bool {
	if l := c.links.Load().byID[i]; l != nil {
		l.mu.Lock()
		met := l.up && l.name == name
		l.mu.Unlock()
		if met {
			return true
		}
	}
	c.peersMu.Lock()
	defer c.peersMu.Unlock()
	a := c.peers.known[name]
	return a != nil && i != 0 && slices.Contains(a.runs[:], i)
}

// SaidGone reports whether a link has reported that an instance leaves, has left or is
// forgotten. The report may come from the instance itself or from another member.
func (c *Core) SaidGone(name string, i peer.Instance) bool {
	c.peersMu.Lock()
	defer c.peersMu.Unlock()
	a := c.peers.known[name]
	return a != nil && i != 0 && (a.leaves == i || a.gone && a.instance == i)
}

// counts reports whether a member of that name counts, live or dead.
func (c *Core) counts(name string) bool {
	c.peersMu.Lock()
	defer c.peersMu.Unlock()
	a := c.peers.known[name]
	return a != nil && (a.live || !a.gone)
}

// Vouched reports whether links confirm what gossip says of a member that is not live:
// that it is a member or, if k.Gone, that it left or was forgotten.
func (c *Core) Vouched(k peer.Known) bool {
	if k.Gone {
		return c.SaidGone(k.Name, k.Instance)
	}
	return c.Met(k.Name, k.Instance) && !c.SaidGone(k.Name, k.Instance)
}

// Answers reports whether a member that gossip calls dead is alive: its link is up and a
// message from it arrived within freshFor. Otherwise Answers sends it a question. If
// patient, the member then counts as alive for answersWithin.
func (c *Core) Answers(i peer.Instance, patient bool) bool {
	t := c.begin()
	defer t.end()
	l := c.links.Load().byID[i]
	if l == nil {
		return false
	}
	l.mu.Lock()
	if !l.up {
		l.mu.Unlock()
		return false
	}
	if l.heardAt != 0 && t.now-l.heardAt < freshFor {
		l.mu.Unlock()
		return true
	}
	asked := l.challengedAt > l.heardAt
	if asked {
		// In a longer gap this node was paused, and the answer may have arrived
		// meanwhile.
		l.awaited += min(t.now-l.lookedAt, lookGap)
		l.lookedAt = t.now
	}
	if asked && (patient || l.awaited < answersWithin) {
		l.mu.Unlock()
		return patient && l.awaited < answersWithin
	}
	l.challengedAt, l.lookedAt, l.awaited = t.now, t.now, 0
	l.mu.Unlock()
	c.probe(t, i)
	return patient
}
