package members

import (
	"fmt"
	"math"
	"time"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Problem describes what keeps a node from holding what it should.
type Problem struct {
	// Unsettled is the number of partitions that are not as the view calls for. It is 0
	// while the node is joining.
	Unsettled int
	// Others is the number of members that gossip sees and that are not leaving, this
	// node excluded. Unreached are those of them to which there is no connection.
	Others    int
	Unreached []peer.Member
	// Minority means that no more than half of the members that count are in the view.
	Minority bool
	// Awaited is the number of members that must be met before this node begins a cluster
	// with them, itself included; 0 if it waits for none. Met are those it has.
	Awaited, Met int
	// State is joining or active. Ready means that an active node reports ready although
	// it is not settled: it decides by policy about keys that it does not hold. An
	// active node that is cut off is not ready.
	State peer.State
	Ready bool
}

// unreached returns the number of other members that are active or in the state from,
// and those of them to which there is no connection.
func (r *roll) unreached(c Core, from peer.State) (n int, list []peer.Member) {
	for _, of := range [][]peer.Member{r.live, r.sighted} {
		for i := range of {
			if o := &of[i]; o.State == peer.Active || o.State == from {
				n++
				if !c.Reaches(o.Instance) {
					list = append(list, *o)
				}
			}
		}
	}
	return n, list
}

// cutOff reports whether there are other members, active or of the given state, and none
// of them can be reached, although this node is in no minority. Then the others serve,
// and this node had better not.
func (r *roll) cutOff(c Core, or peer.State) bool {
	n, list := r.unreached(c, or)
	return n > 0 && len(list) == n && !c.View().Minority()
}

// whoExpels returns the name of a member that refuses this node because operators have expelled it, if no other one
// that this node sees can be reached; else "". One hostile member's word is not enough while others have a link. m.mu
// is held.
func (m *Membership) whoExpels() string {
	if m.config.Expels == nil {
		return ""
	}
	n, list := m.roll.unreached(m.config.Core, peer.Joining)
	if len(list) < n {
		return ""
	}
	for i := range list {
		if m.config.Expels(list[i].Instance) {
			return list[i].Name
		}
	}
	return ""
}

// expelledSince reports whether that has changed since the last review.
func (m *Membership) expelledSince() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return (m.whoExpels() != "") != (m.expeller != "")
}

// Expelled returns why this node is in no cluster any more; nil if it was not expelled.
func (m *Membership) Expelled() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.expeller == "" {
		return nil
	}
	return expelledError(m.expeller)
}

// expelledError is why a node is not ready that an operator expelled: the name of a member that refuses it. It wraps
// [ErrJoining]: other members should be asked.
type expelledError string

func (e expelledError) Error() string {
	return fmt.Sprintf("expelled: member %q refuses this node because an operator has expelled it, and no other is in "+
		"reach: end it, or let it in again with weir members readmit", string(e))
}

// Unwrap implements the interface of package errors.
func (expelledError) Unwrap() error { return ErrJoining }

// met returns the number of members that links have shown and that are not leaving, this
// node included, and whether one of them is active.
func (r *roll) met() (n int, active bool) {
	n = 1
	for i := range r.live {
		switch r.live[i].State {
		case peer.Active:
			n, active = n+1, true
		case peer.Joining:
			n++
		}
	}
	return n, active
}

// awaited returns the number of members, this node included, that must be met before the
// node becomes active; 0 if there is nothing to wait for. Two clusters cannot begin side
// by side, because each needs more than half of the names. m.mu is held.
func (m *Membership) awaited() int {
	majority := m.config.Expect/2 + 1
	if n, active := m.roll.met(); m.config.Expect == 0 || active || n >= majority {
		return 0
	}
	return majority
}

// problem returns what to report now; nil if it was reported for this stage. m.mu is
// held.
func (m *Membership) problem(unsettled int) *Problem {
	p := &Problem{Unsettled: unsettled, State: m.self.State, Ready: m.settled, Minority: m.config.Core.View().Minority()}
	p.Others, p.Unreached = m.roll.unreached(m.config.Core, peer.Joining)
	if m.self.State == peer.Joining {
		p.Awaited = m.awaited()
		p.Met, _ = m.roll.met()
	}
	if m.reported != nil && m.reported.State == p.State && m.reported.Ready == p.Ready &&
		(m.reported.Awaited > 0) == (p.Awaited > 0) {
		return nil
	}
	m.reported = p
	return p
}

// report calls Report, if neither it nor p is nil. The membership's lock is not held.
func (c *Config) report(p *Problem) {
	if p != nil && c.Report != nil {
		c.Report(*p)
	}
}

// settle updates and reports whether the node is settled: it holds what it should, or
// has tried for settledWithin, as a minority for one never gets there. A node that is
// cut off does not become settled by waiting.
func (m *Membership) settle(now limiter.Tick) bool {
	m.mu.Lock()
	if m.settled || m.self.State != peer.Active || !m.inForce() {
		defer m.mu.Unlock()
		return m.settled
	}
	var problem *Problem
	switch {
	case len(m.config.Core.Unsettled(1)) == 0:
		m.settled = true
	case now-m.began >= settledWithin:
		m.settled = !m.roll.cutOff(m.config.Core, peer.Joining)
		problem = m.problem(m.config.unsettled())
	}
	settled := m.settled
	m.mu.Unlock()
	m.config.report(problem)
	return settled
}

// unsettled returns the number of partitions that are not as the view calls for.
func (c *Config) unsettled() int { return len(c.Core.Unsettled(math.MaxInt)) }

// Ready returns nil if the node is ready for requests, otherwise an error with the
// reason. A node is ready when it is active and holds what it should, or has tried for
// ten seconds. A node that sees others and reaches none of them waits until it does,
// unless it is in a minority. Once ready, a node stays ready until it leaves or is expelled. The errors
// wrap [ErrJoining], [ErrSettling] or [ErrLeaving].
func (m *Membership) Ready() error {
	now := m.config.Scheduler.Now()
	m.mu.Lock()
	state, others, since := m.self.State, len(m.roll.live)+len(m.roll.sighted), m.began
	why := ""
	if now-since >= informedWithin {
		why = m.roll.whyCutOff(m.config.Core)
	}
	if err := m.config.mute(); err != nil && others == 0 {
		why = fmt.Sprintf(", and waits up to %v because something takes connections at an address to join by, and does not "+
			"answer: %v", muteWithin.Duration(), err)
	}
	expeller := m.expeller
	if awaited := m.awaited(); awaited > 0 && state == peer.Joining {
		met, _ := m.roll.met()
		why += fmt.Sprintf(", and waits until it has met an active member or %d of the %d expected ones (it has met %d, "+
			"itself included)", awaited, m.config.Expect, met)
	}
	m.mu.Unlock()
	switch {
	case state == peer.Leaving:
		return ErrLeaving
	case expeller != "":
		return expelledError(expeller)
	case state == peer.Joining:
		return fmt.Errorf("%w, for %v, and sees %d other members%s", ErrJoining,
			(now - since).Duration().Round(time.Millisecond), others, why)
	case !m.settle(now):
		return fmt.Errorf("%w: %d of them%s", ErrSettling, m.config.unsettled(), why)
	}
	return nil
}

// whyCutOff returns the end of a sentence that names the members that the node cannot
// reach; "" if it is not cut off.
func (r *roll) whyCutOff(c Core) string {
	if !r.cutOff(c, peer.Joining) {
		return ""
	}
	_, list := r.unreached(c, peer.Joining)
	return ", and reaches none at its peer address: " + NameMembers(list) + "; " + CheckPeerAddr
}

// CheckPeerAddr tells operators what to do about a member that gossips and cannot be
// reached.
const CheckPeerAddr = "check the peer addresses and those that are advertised, theirs and its own (--peer-addr, " +
	"--advertise), and that nothing between blocks the port"

// maxNamed is the most members that a text names.
const maxNamed = 8

// NameMembers returns the names and peer addresses of the first eight members, and the
// number of further ones, as text.
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
