package members

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// The times of leaving.
const (
	leaveWithin = 10 * limiter.Second // partitions not handed over by then are left as after a crash
	// A leaving node that sees no other member that stays waits this long for one that counts.
	aloneWithin  = 3 * limiter.Second
	drainedEvery = 10 * limiter.Millisecond // interval of drain
)

// Leave starts the handoff of everything that this node owns. It calls left once: with
// true when no other member depends on this node any more, or with false after ten
// seconds or if the membership is closed. A node that sees no other member that stays, although
// members count that it does not see, waits three seconds for a link to one of them. Until [Membership.Close] the node
// still answers. A second call returns [ErrLeaving].
func (m *Membership) Leave(left func(whole bool)) error {
	m.mu.Lock()
	if m.closed || m.self.State == peer.Leaving {
		m.mu.Unlock()
		return ErrLeaving
	}
	now := m.config.Scheduler.Now()
	m.empty = m.self.State == peer.Joining
	m.self.State, m.began, m.leaveBy, m.left = peer.Leaving, now, now+leaveWithin, left
	m.renewViewLocked()
	m.mu.Unlock()
	m.publish()
	m.config.Scheduler.After(2*drainedEvery, m.drain)
	return nil
}

// drain checks whether the node may go, and schedules itself again if not.
func (m *Membership) drain() {
	m.mu.Lock()
	closed, built, by, empty := m.closed, m.inForce(), m.leaveBy, m.empty
	now := m.config.Scheduler.Now()
	alone := !empty && now-m.began < aloneWithin && !m.roll.anyStays() && len(m.config.Core.Registry().Dead()) > 0
	m.mu.Unlock()
	whole := built && (empty || m.config.Core.Drained())
	switch {
	case closed || whole && !alone || now >= by:
		m.left(whole)
	default:
		if alone {
			m.review() // a link to one of them may be up again
		}
		m.config.Scheduler.After(drainedEvery, m.drain)
	}
}

// CountsOn reports whether a node that leaves must not say so to the members, which then count it
// as dead until it is back or forgotten. That is the case if it sees no more than half of the
// others that count. What was decided where it is may be known to fewer than half of those: if
// it did not count any more, a majority of them could decide without knowing.
func (m *Membership) CountsOn() bool {
	v := m.config.Core.View()
	others := v.Known - 1
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.empty && others > 0 && 2*(len(v.Members)-1) <= others
}

// Left returns what to tell others of an instance that has left.
func (r *Registry) Left(name string, i peer.Instance) peer.Known {
	c := r.lock()
	defer r.mu.Unlock()
	k := peer.Known{Name: name, Instance: i, Gone: true}
	k.Path = c.path(k)
	return k
}

// SaidGone reports whether a link has reported that an instance leaves, has left or is forgotten: the instance itself,
// or another member. If gossip calls it dead, only its own word that it has left counts.
func (r *Registry) SaidGone(name string, i peer.Instance, dead bool) bool {
	c := r.lock()
	defer r.mu.Unlock()
	a := c.known[name]
	if a == nil || i == 0 {
		return false
	}
	x := a.run(i)
	return x != nil && (x.ended || !dead && x.gone()) || !dead && a.gone && a.instance == i
}

// Leaves reports whether an instance has said over its own link that it leaves. That is
// believed for 15 seconds; leaving takes ten at most.
func (r *Registry) Leaves(name string, i peer.Instance, now limiter.Tick) bool {
	c := r.lock()
	defer r.mu.Unlock()
	a := c.known[name]
	return a != nil && i != 0 && a.leaving == i && now-a.leavingAt < believedLeaving
}
