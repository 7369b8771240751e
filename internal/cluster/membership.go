package cluster

import (
	"fmt"
	"slices"
	"sync"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// The times of membership.
const (
	stillFor        = 300 * limiter.Millisecond // the view stands still so long before a node becomes active
	informedWithin  = 3 * limiter.Second        // or so long, where the others do not tell what they hold
	aloneAfter      = 3 * limiter.Second        // so long nobody else's address is found: this node is the first
	unansweredAfter = 10 * limiter.Second       // so long nobody answers: it goes on without
	joinedWithin    = 30 * limiter.Second       // a view that never stands still is waited for no longer
	settledWithin   = 10 * limiter.Second       // an active node that is not settled is ready all the same
	leaveWithin     = 10 * limiter.Second       // what is not handed over then counts as lost in a crash
	lookEvery       = 50 * limiter.Millisecond  // while joining or settling
	vacatedEvery    = 10 * limiter.Millisecond  // while leaving
	recountEvery    = 2 * limiter.Second        // the dead count for a while only
	reviewEvery     = 100 * limiter.Millisecond // while gossip and links disagree
)

var (
	// ErrJoining is wrapped by what [Membership.Ready] returns before the node is
	// active.
	ErrJoining = limiter.ErrJoining
	// ErrSettling is wrapped while an active node does not hold yet what it should.
	ErrSettling = limiter.ErrSettling
	// ErrLeaving is returned by [Membership.Ready] and [Membership.Leave] when the
	// node leaves, or has left.
	ErrLeaving = limiter.ErrLeaving
)

// MembershipConfig says what a [Membership] works with. All fields are required
// but those that say so.
type MembershipConfig struct {
	// Core gets the views. Self is the node as the core was told of it.
	Core *Core
	Self peer.Member
	// Scheduler is the core's.
	Scheduler Scheduler
	// Ring returns the ring of some names, sorted. It is called where nothing
	// waits for it, from one goroutine at a time, and may take long.
	Ring func(names []string) (Ring, error)
	// Tell tells the others what this node says of itself. It must not wait for
	// them. Its calls do not overlap.
	Tell func(self peer.Member)
	// Seeds returns to how many addresses those to join by resolve, this node's own
	// included. It is asked while the node is joining, and nil for a node that
	// joins nobody, which is active at once.
	Seeds func() int
	// Worry, unless nil, is told what keeps the node from holding what it should,
	// once for each stage that it is kept from. It is called by the scheduler, or
	// whoever calls [Membership.Ready], and must not wait.
	Worry func(w Worry)
	// Complain is told of a ring that cannot be built; the old view stays in force.
	Complain func(err error)
	// Changed, unless nil, is called by the scheduler when [Membership.Listed] may have
	// changed without an Update.
	Changed func()
}

// Membership turns what gossip tells into the views of a core, and takes a node
// through its states: joining, active, leaving. It waits for nothing and has no
// clock: the scheduler calls it. Its methods may be called by many goroutines.
type Membership struct {
	config  MembershipConfig
	telling sync.Mutex // held around Tell; taken before mu

	mu       sync.Mutex
	self     peer.Member
	roll     roll
	others   []peer.Member // that count as live, by name
	departed []peer.Known  // left or forgotten, and the core does not know yet
	began    limiter.Tick  // of this state
	changed  limiter.Tick  // when the live ones changed last
	settled  bool          // once; a ready node stays so until it leaves
	told     *Worry        // the last that Worry was told; nil if there was none
	empty    bool          // it leaves and was never active, so that it holds nothing
	leaveBy  limiter.Tick
	left     func(whole bool)
	closed   bool

	building, again bool
	reviewing       bool     // a review is due
	names           []string // of ring
	ring            Ring
}

// NewMembership returns the membership of a node that knows of nobody else yet,
// and gives the core its first view soon.
func NewMembership(c MembershipConfig) *Membership {
	now := c.Scheduler.Now()
	m := &Membership{config: c, self: c.Self, began: now, changed: now}
	m.self.State = peer.Active
	if c.Seeds != nil {
		m.self.State = peer.Joining
	}
	m.publish()
	c.Core.OnWord(m.review)
	c.Scheduler.After(lookEvery, m.look)
	return m
}

// Update takes in all members as gossip has them: those that are live, and the dead.
// This node itself may be in it. What of it counts is up to links, see roll.
func (m *Membership) Update(members []peer.Member) {
	m.hear(members)
	m.review()
}

func (m *Membership) hear(members []peer.Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.roll.hear(m.self.Name, members)
}

// review judges anew who counts, and has a view built if that changed.
func (m *Membership) review() {
	open, again := m.judge()
	if again {
		m.config.Scheduler.After(reviewEvery, m.reviewAgain)
	}
	if open && m.config.Changed != nil {
		m.config.Changed()
	}
}

// judge is the part of review that is done under the lock, which a panic releases. It
// reports whether the membership is open, and whether another review is to follow.
func (m *Membership) judge() (open, again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false, false
	}
	now := m.config.Scheduler.Now()
	before := len(m.roll.sighted)
	next, gone := m.roll.judge(m.config.Core, m.others)
	m.departed = append(m.departed, gone...)
	same := slices.EqualFunc(next, m.others, func(a, b peer.Member) bool {
		return a.Name == b.Name && a.Instance == b.Instance && a.State == b.State
	})
	m.others = next
	if !same || len(m.roll.sighted) != before {
		m.changed = now
	}
	if !same || len(gone) > 0 {
		m.publishLocked()
	}
	again = m.roll.contested && !m.reviewing
	m.reviewing = m.reviewing || again
	return true, again
}

// reviewAgain judges anew while gossip and links disagree.
func (m *Membership) reviewAgain() {
	m.mu.Lock()
	m.reviewing = false
	m.mu.Unlock()
	m.review()
}

// publish has the core get a view of what is known now.
func (m *Membership) publish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.publishLocked()
}

// publishLocked starts the building of a view, unless one is under way, which
// is then followed by another: of views that come together only the last is
// built.
func (m *Membership) publishLocked() {
	switch {
	case m.closed:
	case m.building:
		m.again = true
	default:
		m.building = true
		m.config.Scheduler.After(0, m.build)
	}
}

// build builds views and gives them to the core until nothing has changed
// meanwhile. After a panic the next change has one built.
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
		members := append(slices.Clone(m.others), m.self)
		gone := slices.Clone(m.departed)
		names, r := RingNames(members), m.ring
		fresh := r == nil || !slices.Equal(names, m.names)
		m.mu.Unlock()

		var err error
		if fresh {
			r, err = m.config.Ring(names)
		}
		if err == nil {
			known, recent := m.config.Core.SetMembers(members, gone)
			m.config.Core.SetView(NewView(m.config.Self.Instance, members, r, known, recent))
		} else if m.config.Complain != nil {
			m.config.Complain(fmt.Errorf("the ring of %d members cannot be built, and the old one stays in force: %w", len(names), err))
		}

		m.mu.Lock()
		if err == nil {
			m.names, m.ring, m.departed = names, r, m.departed[len(gone):]
		}
		again := m.again
		m.building = again
		m.mu.Unlock()
		if m.config.Changed != nil {
			m.config.Changed() // the core knows now who is dead
		}
		if !again {
			ended = true
			return
		}
	}
}

// look sees whether it is time for the next state, or to count anew. It is called again
// whatever becomes of it.
func (m *Membership) look() {
	l, open := m.lookNow()
	if !open {
		return
	}
	next := lookEvery
	defer func() { m.config.Scheduler.After(next, m.look) }()
	m.say(l.worry)
	if l.joined {
		m.tell()
	}
	switch {
	case l.joined:
	case l.ready:
		next = recountEvery
		m.recount()
	default:
		m.settle(l.now)
		if l.long {
			m.recount()
		}
	}
}

// looked is what a look found.
type looked struct {
	now    limiter.Tick
	joined bool // just now
	ready  bool
	long   bool // since it became active: it may be cut off, and the dead age all the same
	worry  *Worry
}

// lookNow looks; open tells whether there is still something to look at.
func (m *Membership) lookNow() (l looked, open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.self.State == peer.Leaving {
		return l, false
	}
	l.now = m.config.Scheduler.Now()
	l.joined = m.self.State == peer.Joining && m.joined(l.now)
	if l.joined && m.cutOff(peer.Active) {
		l.joined, l.worry = false, m.worry(0)
	}
	if l.joined {
		m.self.State, m.began = peer.Active, l.now
		m.publishLocked()
	}
	l.ready, l.long = m.settled, l.now-m.began >= settledWithin
	return l, true
}

// joined tells whether a joining node should become active. m.mu is held.
func (m *Membership) joined(now limiter.Tick) bool {
	since, still := now-m.began, now-m.changed
	if len(m.others)+len(m.roll.sighted) == 0 {
		return since >= unansweredAfter || since >= aloneAfter && m.config.Seeds() <= 1
	}
	return still >= informedWithin || since >= joinedWithin ||
		still >= stillFor && len(m.roll.sighted) == 0 && m.inForce() && m.config.Core.Informed()
}

// inForce tells whether the core has the view of what is known. m.mu is held.
func (m *Membership) inForce() bool { return !m.building }

// recount has a view with other counts built, if they changed with time.
func (m *Membership) recount() {
	known, recent := m.config.Core.Recount()
	v := m.config.Core.View()
	if n := len(v.Members); max(known, n) != v.Known || max(recent, n) != v.Recent {
		m.publish()
	}
}

// tell tells the others what this node is now.
func (m *Membership) tell() {
	m.telling.Lock()
	defer m.telling.Unlock()
	m.config.Tell(m.Self())
}

// Self returns what this node says of itself.
func (m *Membership) Self() peer.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self
}

// State returns the node's state.
func (m *Membership) State() peer.State { return m.Self().State }

// SetRules tells the others which rules are in force here, by their hash.
func (m *Membership) SetRules(hash uint64) {
	m.mu.Lock()
	same := m.self.RulesHash == hash
	m.self.RulesHash = hash
	m.mu.Unlock()
	if !same {
		m.tell()
	}
}

// Forget has a dead member count no more. It reports whether one of that name
// did.
func (m *Membership) Forget(name string) bool {
	ok := m.config.Core.Forget(name)
	if ok {
		m.publish()
	}
	return ok
}

// Leave has the node hand over what it owns, and calls left once: with true when
// nothing depends on it any more, with false after ten seconds. Until [Membership.Close]
// it still answers. A second call returns [ErrLeaving].
func (m *Membership) Leave(left func(whole bool)) error {
	m.mu.Lock()
	if m.closed || m.self.State == peer.Leaving {
		m.mu.Unlock()
		return ErrLeaving
	}
	now := m.config.Scheduler.Now()
	m.empty = m.self.State == peer.Joining
	m.self.State, m.began, m.leaveBy, m.left = peer.Leaving, now, now+leaveWithin, left
	m.publishLocked()
	m.mu.Unlock()
	m.tell()
	m.config.Scheduler.After(2*vacatedEvery, m.vacate)
	return nil
}

// vacate waits until the node may go.
func (m *Membership) vacate() {
	m.mu.Lock()
	closed, built, by, empty := m.closed, m.inForce(), m.leaveBy, m.empty
	m.mu.Unlock()
	whole := built && (empty || m.config.Core.Vacated())
	now := m.config.Scheduler.Now()
	switch {
	case closed || whole || now >= by:
		m.left(whole)
	default:
		m.config.Scheduler.After(vacatedEvery, m.vacate)
	}
}

// Close ends it: the core gets no more views.
func (m *Membership) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}
