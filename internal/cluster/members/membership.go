package members

import (
	"fmt"
	"slices"
	"sync"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// The times of the membership.
const (
	stillFor        = 300 * limiter.Millisecond // how long the view must not change before a node becomes active
	informedWithin  = 3 * limiter.Second        // the same if the others do not tell what they hold
	aloneAfter      = 3 * limiter.Second        // a node that finds no other address for this long is the first
	unansweredAfter = 10 * limiter.Second       // a node that no other answers for this long starts without them
	muteWithin      = 20 * limiter.Second       // the same if something took a connection and did not answer
	joinedWithin    = 30 * limiter.Second       // longest wait for the view to stop changing
	settledWithin   = 10 * limiter.Second       // an active node that is not settled by then is ready all the same
	lookEvery       = 50 * limiter.Millisecond  // interval of look while joining or settling
	recountEvery    = 500 * limiter.Millisecond // interval of look once ready, because time changes who counts
	reviewEvery     = 100 * limiter.Millisecond // interval of reviews while gossip and links disagree
)

var (
	// ErrJoining is wrapped by the error that [Membership.Ready] returns before the node
	// is active.
	ErrJoining = limiter.ErrJoining
	// ErrSettling is wrapped by the error that [Membership.Ready] returns while an
	// active node does not hold yet what it should.
	ErrSettling = limiter.ErrSettling
	// ErrLeaving is returned by [Membership.Ready] when the node leaves or has left, and
	// by [Membership.Leave] on a second call.
	ErrLeaving = limiter.ErrLeaving
)

// Scheduler is a node's clock and its timers.
type Scheduler interface {
	// Now returns the present time of the node's clock. It never goes back.
	Now() limiter.Tick
	// After calls f once, span from now, and never before it returns.
	After(span limiter.Tick, f func())
}

// Core is what a [Membership] needs of the rest of its node. Its methods may be called
// under the membership's lock, and must not wait.
type Core interface {
	// View returns the view in force, and SetView replaces it.
	View() *view.View
	SetView(v *view.View)
	// Registry returns what is known of the members by name. Forget also tells the
	// members in reach that one is forgotten.
	Registry() *Registry
	Forget(name string) bool
	// Departed tells the members in reach which others have left.
	Departed(gone []peer.Known)
	// OnNews sets the function to call after a link brought news about members or came
	// down.
	OnNews(f func())

	// Reaches reports whether there is a direct connection to a member. Met reports
	// whether an instance of a member's name has shown itself over a link. Answers
	// reports whether a member that gossip calls dead is alive, and asks it if that is
	// not known; if patient, the member counts as alive while its answer may come.
	Reaches(i peer.Instance) bool
	Met(name string, i peer.Instance) bool
	Answers(i peer.Instance, patient bool) bool

	// Informed reports whether this node has learned what others hold. Unsettled returns
	// the partitions that are not as the view calls for, at most as many as most.
	// Drained reports whether a leaving node may go.
	Informed() bool
	Unsettled(most int) []int
	Drained() bool
}

// Config configures a [Membership]. All fields are required unless their comment says
// otherwise.
type Config struct {
	// Core receives the views. Self is this node, as the core knows it.
	Core Core
	Self peer.Member
	// Scheduler is the core's.
	Scheduler Scheduler
	// Ring makes the ring of some sorted names. It is called from one goroutine at a
	// time, and may take long: nothing waits for it.
	Ring func(names []string) (view.Ring, error)
	// Publish sends this node's state to the others. It must not wait for them. Calls do
	// not overlap.
	Publish func(self peer.Member)
	// Seeds returns the number of addresses to join by, this node's own included. It is
	// called while the node is joining. If it is nil, the node joins no cluster and is
	// active at once.
	Seeds func() int
	// Expect, unless 0, is the number of members of the cluster when it begins. A joining
	// node then becomes active only if a link has shown it an active member, or more than
	// half of Expect, this node included.
	Expect int
	// Mute, unless nil, returns an error while something at an address to join by takes
	// connections and does not answer: a node may be there. It is called under a lock,
	// must not wait, and must not call the Membership.
	Mute func() error
	// Expels, unless nil, reports whether a member refuses this node because operators have expelled it. It is called
	// under a lock, and must not call the Membership.
	Expels func(i peer.Instance) bool
	// Report, unless nil, receives what keeps the node from holding what it should, once
	// for each stage. The scheduler calls it, or the caller of [Membership.Ready]. It
	// must not wait.
	Report func(p Problem)
	// RingFailed, unless nil, receives the error if a ring cannot be built. The old view
	// stays in force.
	RingFailed func(err error)
	// Changed, unless nil, is called when [Membership.Listed] may have changed. It must
	// not wait.
	Changed func()
}

// Membership makes the views of a core from what gossip reports, and takes a node
// through its states: joining, active, leaving. It never waits and has no clock: the
// scheduler calls it. It is safe for concurrent use.
type Membership struct {
	config     Config
	publishing sync.Mutex // held around Publish; taken before mu

	mu       sync.Mutex
	self     peer.Member
	roll     roll
	departed []peer.Known // those that left or were forgotten and that the core does not know of yet
	began    limiter.Tick // when the present state began
	changed  limiter.Tick // when the live members changed last
	settled  bool         // it was settled once; a ready node stays ready until it leaves or is expelled
	expeller string       // a member that refuses this node as expelled, as of the last review; see whoExpels
	reported *Problem     // the last problem reported; nil before the first
	empty    bool         // it leaves and was never active, so it holds nothing
	leaveBy  limiter.Tick
	left     func(whole bool)
	closed   bool

	building, again bool
	reviewing       bool     // a review is scheduled
	names           []string // the names that ring was made of
	ring            view.Ring
}

// New returns the membership of a node that knows no other member yet. It
// schedules the core's first view at once.
func New(c Config) *Membership {
	now := c.Scheduler.Now()
	m := &Membership{config: c, self: c.Self, began: now, changed: now}
	m.self.State = peer.Active
	if c.Seeds != nil {
		m.self.State = peer.Joining
	}
	m.renewView()
	c.Core.OnNews(m.review)
	c.Scheduler.After(lookEvery, m.look)
	return m
}

// Update records all members as gossip reports them, live and dead. This node itself may
// be among them. Links decide which of them count, see roll.
func (m *Membership) Update(members []peer.Member) {
	m.hear(members)
	m.review()
}

func (m *Membership) hear(members []peer.Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.roll.hear(m.self.Name, members)
}

// review decides again which members count, and publishes a view if that changed.
func (m *Membership) review() {
	open, again := m.judge()
	if again {
		m.config.Scheduler.After(reviewEvery, m.reviewAgain)
	}
	if open && m.config.Changed != nil {
		m.config.Changed()
	}
}

// judge is the part of review under the lock, which is released even after a panic. open
// is false if the membership is closed; again means that another review must follow.
func (m *Membership) judge() (open, again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false, false
	}
	now := m.config.Scheduler.Now()
	sighted, before := len(m.roll.sighted), m.roll.live
	gone := m.roll.judge(m.config.Core, m.self, now)
	m.departed = append(m.departed, gone...)
	if m.expeller = m.whoExpels(); m.expeller != "" {
		m.roll.shutOut()
	}
	same := slices.EqualFunc(m.roll.live, before, func(a, b peer.Member) bool {
		return a.Name == b.Name && a.Instance == b.Instance && a.State == b.State
	})
	if !same || len(m.roll.sighted) != sighted {
		m.changed = now
	}
	if !same || len(gone) > 0 {
		m.renewViewLocked()
	}
	again = m.roll.contested && !m.reviewing
	m.reviewing = m.reviewing || again
	return true, again
}

// reviewAgain is the review that is scheduled while gossip and links disagree.
func (m *Membership) reviewAgain() {
	m.mu.Lock()
	m.reviewing = false
	m.mu.Unlock()
	m.review()
}

// renewView schedules a view of what is known now for the core.
func (m *Membership) renewView() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renewViewLocked()
}

// renewViewLocked schedules the building of a view. If one is being built, another follows
// it, so that of several changes only the last is built. m.mu is held.
func (m *Membership) renewViewLocked() {
	switch {
	case m.closed:
	case m.building:
		m.again = true
	default:
		m.building = true
		m.config.Scheduler.After(0, m.build)
	}
}

// build builds views and gives them to the core, until nothing has changed meanwhile.
func (m *Membership) build() {
	ended := false
	defer func() {
		if !ended {
			m.mu.Lock()
			m.building = false
			m.mu.Unlock()
		}
	}()
	for {
		m.mu.Lock()
		if m.closed {
			m.mu.Unlock()
			ended = true
			return
		}
		m.again = false
		members := append(slices.Clone(m.roll.live), m.self)
		gone := slices.Clone(m.departed)
		names, r := view.RingNames(members), m.ring
		fresh := r == nil || !slices.Equal(names, m.names)
		m.mu.Unlock()

		var err error
		if fresh {
			r, err = m.config.Ring(names)
		}
		if err == nil {
			known, recent := m.config.Core.Registry().Set(members, gone, m.config.Scheduler.Now())
			m.config.Core.SetView(view.New(m.config.Self.Instance, members, r, known, recent))
			if len(gone) > 0 {
				m.config.Core.Departed(gone)
			}
		} else if m.config.RingFailed != nil {
			m.config.RingFailed(fmt.Errorf("the ring of %d members cannot be built, and the old one stays in force: %w",
				len(names), err))
		}

		m.mu.Lock()
		if err == nil {
			m.names, m.ring, m.departed = names, r, m.departed[len(gone):]
		}
		again := m.again
		m.building = again
		m.mu.Unlock()
		if m.config.Changed != nil {
			m.config.Changed() // the core knows now which members are dead
		}
		if !again {
			ended = true
			return
		}
	}
}

// look checks whether it is time for the next state, or for a new count of members.
func (m *Membership) look() {
	l, open := m.lookNow()
	if !open {
		return
	}
	next := lookEvery
	defer func() { m.config.Scheduler.After(next, m.look) }()
	m.config.report(l.problem)
	if l.joined {
		m.publish()
	}
	switch {
	case l.joined:
	case l.ready:
		next = recountEvery
		m.recount()
	default:
		m.settle(l.now)
		m.recount()
	}
}

type looked struct {
	now     limiter.Tick
	joined  bool // just now
	ready   bool
	problem *Problem
}

// lookNow checks once whether it is time for the next state. open is false once the
// membership is closed or the node leaves.
func (m *Membership) lookNow() (l looked, open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.self.State == peer.Leaving {
		return l, false
	}
	l.now = m.config.Scheduler.Now()
	l.joined = m.self.State == peer.Joining && m.joined(l.now)
	switch {
	case l.joined && m.roll.cutOff(m.config.Core, peer.Active):
		l.joined, l.problem = false, m.problem(0)
	case m.self.State == peer.Joining && l.now-m.began >= informedWithin && m.awaited() > 0:
		l.problem = m.problem(0)
	}
	if l.joined {
		m.self.State, m.began = peer.Active, l.now
		m.renewViewLocked()
	}
	l.ready = m.settled
	return l, true
}

// joined reports whether a joining node should become active. m.mu is held.
func (m *Membership) joined(now limiter.Tick) bool {
	since, still := now-m.began, now-m.changed
	if m.awaited() > 0 {
		return false
	}
	if len(m.roll.live)+len(m.roll.sighted) == 0 {
		if m.config.mute() != nil {
			return since >= muteWithin
		}
		return since >= unansweredAfter || since >= aloneAfter && m.config.Seeds() <= 1
	}
	return still >= informedWithin || since >= joinedWithin ||
		still >= stillFor && len(m.roll.sighted) == 0 && !m.roll.heirless(m.config.Core, now) && m.inForce() &&
			m.config.Core.Informed()
}

// mute returns what Mute does; nil if there is none.
func (c *Config) mute() error {
	if c.Mute == nil {
		return nil
	}
	return c.Mute()
}

// inForce reports whether the core has the view of what is known. m.mu is held.
func (m *Membership) inForce() bool { return !m.building }

// recount publishes a view with new counts if time has changed them. Before, members that
// start and that gossip does not report are asked over their links.
func (m *Membership) recount() {
	now := m.config.Scheduler.Now()
	if len(m.config.Core.Registry().Awaited(now)) > 0 || m.expelledSince() {
		m.review()
	}
	known, recent := m.config.Core.Registry().Count(now)
	v := m.config.Core.View()
	if n := len(v.Members); max(known, n) != v.Known || max(recent, n) != v.Recent {
		m.renewView()
	}
}

// publish sends this node's present state to the others.
func (m *Membership) publish() {
	m.publishing.Lock()
	defer m.publishing.Unlock()
	m.config.Publish(m.Self())
}

// Self returns this node as it describes itself to the others.
func (m *Membership) Self() peer.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self
}

// State returns the node's state.
func (m *Membership) State() peer.State { return m.Self().State }

// SetRules publishes the hash of the rules in force here.
func (m *Membership) SetRules(hash uint64) {
	m.mu.Lock()
	same := m.self.RulesHash == hash
	m.self.RulesHash = hash
	m.mu.Unlock()
	if !same {
		m.publish()
	}
}

// Forget stops counting a dead member. It reports whether there was a dead member of
// that name.
func (m *Membership) Forget(name string) bool {
	ok := m.config.Core.Forget(name)
	if ok {
		m.renewView()
	}
	return ok
}

// Close ends the membership: the core gets no more views.
func (m *Membership) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}
