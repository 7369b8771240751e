package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Gossip tells who may be a member and where; anyone who reaches its port may speak
// there, unless it is encrypted. Links are between members: both sides have shown that
// they have the secret. So what counts is the word of links: that a name is a member's,
// that it leaves or is forgotten, and that it is alive. A member tells of itself over its
// links, and of others whom links have told it of. See docs/decisions.md.

const (
	// answersWithin is how long a member that gossip calls dead, and whose link is up, may
	// take to answer, and freshFor how long after it was heard it is not asked again.
	answersWithin = 500 * limiter.Millisecond
	freshFor      = 250 * limiter.Millisecond
	// lookGap is the most that counts of the time between two looks for an answer.
	lookGap = reviewEvery + 50*limiter.Millisecond
)

// OnWord has f called, by the scheduler, after a link told something of members or
// came down.
func (c *Core) OnWord(f func()) { c.onWord.Store(&f) }

func (c *Core) word() {
	if f := c.onWord.Load(); f != nil {
		c.sched.After(0, *f)
	}
}

// pass passes on to all who are in reach what was told of members, but to who told it.
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
// this node or to one that told it so. Who is linked to this node stays met, whatever
// others tell of runs of its name.
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

// SaidGone reports whether a link has said of an instance that it leaves, left, or is
// forgotten: the instance itself, or another member.
func (c *Core) SaidGone(name string, i peer.Instance) bool {
	c.peersMu.Lock()
	defer c.peersMu.Unlock()
	a := c.peers.known[name]
	return a != nil && i != 0 && (a.leaves == i || a.gone && a.instance == i)
}

// counts reports whether somebody of a name counts, live or dead.
func (c *Core) counts(name string) bool {
	c.peersMu.Lock()
	defer c.peersMu.Unlock()
	a := c.peers.known[name]
	return a != nil && (a.live || !a.gone)
}

// Vouched reports whether links confirm what gossip says of a member that is not live:
// that it is one, or, if it is gone, that it left or was forgotten.
func (c *Core) Vouched(k peer.Known) bool {
	if k.Gone {
		return c.SaidGone(k.Name, k.Instance)
	}
	return c.Met(k.Name, k.Instance) && !c.SaidGone(k.Name, k.Instance)
}

// Answers reports whether a member that gossip calls dead is alive all the same: its
// link is up, and it was heard a moment ago. Otherwise it is asked something, and is
// given half a second to answer if patient, in which it is taken to be alive.
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
		// A longer gap is one in which this node stood still: the answer may be here.
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
