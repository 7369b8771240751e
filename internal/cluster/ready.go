package cluster

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Worry is what keeps a node from holding what it should.
type Worry struct {
	// Unsettled is how many partitions are not as the view calls for; 0 of a node
	// that is joining.
	Unsettled int
	// Others is how many members gossip sees that are not leaving, this node not
	// counted, and Unreached those of them to whom there is no connection.
	Others    int
	Unreached []peer.Member
	// Minority tells that no more than half of the members that count are in sight.
	Minority bool
	// State is joining, or active. An active node is Ready all the same, and
	// decides by policy what it does not hold, or, being cut off, is not.
	State peer.State
	Ready bool
}

// unreached returns how many of the others have some state or are on the way to
// it, and those of them to whom there is no connection. m.mu is held.
func (m *Membership) unreached(from peer.State) (n int, list []peer.Member) {
	for _, of := range [][]peer.Member{m.others, m.roll.sighted} {
		for i := range of {
			if o := &of[i]; o.State == peer.Active || o.State == from {
				n++
				if !m.config.Core.Reaches(o.Instance) {
					list = append(list, *o)
				}
			}
		}
	}
	return n, list
}

// cutOff tells whether others are there, active or of the given state, and none
// of them can be talked to, although this node is in no minority: then they serve,
// and it is this one that had better not. m.mu is held.
func (m *Membership) cutOff(or peer.State) bool {
	n, list := m.unreached(or)
	return n > 0 && len(list) == n && !m.config.Core.View().minority()
}

// worry returns what Worry is to be told now, nil if it was. m.mu is held.
func (m *Membership) worry(unsettled int) *Worry {
	w := &Worry{Unsettled: unsettled, State: m.self.State, Ready: m.settled, Minority: m.config.Core.View().minority()}
	w.Others, w.Unreached = m.unreached(peer.Joining)
	if m.told != nil && m.told.State == w.State && m.told.Ready == w.Ready {
		return nil
	}
	m.told = w
	return w
}

// say tells Worry, unless there is nothing. m.mu is not held.
func (m *Membership) say(w *Worry) {
	if w != nil && m.config.Worry != nil {
		m.config.Worry(*w)
	}
}

// settle notes that the node holds what it should, or has tried for long
// enough: a minority, for one, never will. Who is cut off does not get ready by
// waiting.
func (m *Membership) settle(now limiter.Tick) bool {
	m.mu.Lock()
	if m.settled || m.self.State != peer.Active || !m.inForce() {
		defer m.mu.Unlock()
		return m.settled
	}
	var worry *Worry
	switch {
	case m.config.Core.Settled():
		m.settled = true
	case now-m.began >= settledWithin:
		m.settled = !m.cutOff(peer.Joining)
		worry = m.worry(m.unsettled())
	}
	settled := m.settled
	m.mu.Unlock()
	m.say(worry)
	return settled
}

// unsettled returns how many partitions are not as the view calls for.
func (m *Membership) unsettled() int {
	return len(m.config.Core.Unsettled(len(m.config.Core.Partitions())))
}

// Ready tells why the node is not ready to be asked, nil if it is: it is active,
// and holds what it should, or has tried for ten seconds. A node that sees others
// and can talk to none of them is not ready before it can, unless it is in a
// minority. Once ready it stays so until it leaves. The errors wrap [ErrJoining],
// [ErrSettling] or [ErrLeaving].
func (m *Membership) Ready() error {
	now := m.config.Scheduler.Now()
	m.mu.Lock()
	state, others, since := m.self.State, len(m.others)+len(m.roll.sighted), m.began
	why := ""
	if now-since >= informedWithin {
		why = m.whyCutOff()
	}
	m.mu.Unlock()
	switch {
	case state == peer.Leaving:
		return ErrLeaving
	case state == peer.Joining:
		return fmt.Errorf("%w, for %v, and sees %d other members%s", ErrJoining, (now - since).Duration().Round(time.Millisecond), others, why)
	case !m.settle(now):
		return fmt.Errorf("%w: %d of them%s", ErrSettling, m.unsettled(), why)
	}
	return nil
}

// whyCutOff says whom the node cannot talk to, if it is cut off, as the rest of a
// sentence. m.mu is held.
func (m *Membership) whyCutOff() string {
	if !m.cutOff(peer.Joining) {
		return ""
	}
	_, list := m.unreached(peer.Joining)
	return ", and reaches none at its peer address: " + NameMembers(list) + "; " + CheckPeerAddr
}

// CheckPeerAddr is what to do about a member that gossips and cannot be talked to.
const CheckPeerAddr = "check the peer addresses and those that are advertised, theirs and its own (--peer-addr, --advertise), and that nothing between blocks the port"

// maxNamed is how many members a text names.
const maxNamed = 8

// NameMembers names members with their peer addresses, the first eight of them.
func NameMembers(list []peer.Member) string {
	s := ""
	for i := range list[:min(len(list), maxNamed)] {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%q at %s", list[i].Name, list[i].PeerAddr)
	}
	if more := len(list) - maxNamed; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}
