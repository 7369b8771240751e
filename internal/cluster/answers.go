package cluster

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

const (
	// answersWithin is how long a member with a link may take to answer after gossip
	// calls it dead. freshFor is how long after a message from it it is not asked again.
	answersWithin = 500 * limiter.Millisecond
	freshFor      = 250 * limiter.Millisecond
	// lookGap is the most that the time between two looks for an answer adds to the
	// wait. Reviews of the membership are 100 ms apart.
	lookGap = 150 * limiter.Millisecond
)

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
