package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/weirlimit/weir/internal/cluster/members"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/ring"
)

// A node's membership is the real one. What is played is gossip: what reaches whom, how
// soon, and when a silence counts as a death.

// rumour is what gossip at a node says of a name.
type rumour struct {
	peer.Member              // its state is Dead after a silence
	contact     limiter.Tick // when it could last be reached
	patient     limiter.Tick // a longer silence is a death
}

// join starts a node's membership and its gossip. The first node of a cluster joins
// nobody.
func (n *Node) join(first bool, seeds int) {
	w := n.w
	c := members.Config{
		Core: n.core, Self: n.published, Scheduler: n,
		Ring:    w.ring,
		Publish: func(self peer.Member) { n.published = self },
		RingFailed: func(err error) {
			w.fail(fmt.Errorf("%s has no ring: %w", n.name, err))
		},
		Changed: n.connect,
	}
	if !first {
		c.Seeds = func() int { return seeds }
	}
	n.members = members.New(c)
	w.after(w.between(0, 100*ms), n.gossip)
}

// rings has the ring of each set of names, which all worlds share: a ring never changes, and it takes longer to
// make than all else that a view needs.
var rings sync.Map

// ring returns the ring of some names, which is always the same one.
func (w *World) ring(names []string) (view.Ring, error) {
	id := strings.Join(names, " ")
	if r, ok := rings.Load(id); ok {
		return r.(*ring.Ring), nil
	}
	r, err := ring.New(names)
	if err == nil {
		rings.Store(id, r)
	}
	return r, err
}

// connect has the node connect to all members that it lists.
func (n *Node) connect() {
	if n.members == nil {
		return
	}
	for _, o := range n.members.Listed() {
		if to := n.w.node(o.Instance); to != nil {
			n.w.dial(n, to)
		}
	}
}

// lists reports whether a node connects to another.
func (n *Node) lists(m *Node) bool {
	return slices.ContainsFunc(n.members.Listed(), func(o peer.Member) bool { return o.Instance == m.inst })
}

// sees reports whether another node is in the view of a node.
func (n *Node) sees(m *Node) bool { return n.core.View().Has(m.inst) }

// linked reports whether packets get from one node to another and back.
func (w *World) linked(a, b *Node) bool {
	return !w.cut[pair{a.inst, b.inst}] && !w.cut[pair{b.inst, a.inst}]
}

// reaches reports whether gossip gets from n to m, directly or by another.
func (n *Node) reaches(m *Node) bool {
	direct := func(a, b *Node) bool { return b.alive && !b.paused && n.w.linked(a, b) }
	if direct(n, m) {
		return true
	}
	for _, k := range n.w.live() {
		if k != n && k != m && direct(n, k) && direct(k, m) {
			return true
		}
	}
	return false
}

// gossip updates a node's list of members at intervals.
func (n *Node) gossip() {
	if !n.alive || n.leftAt != 0 {
		return
	}
	n.w.after(n.w.between(80*ms, 120*ms), n.gossip)
	if n.paused {
		return
	}
	news := false
	for _, m := range n.w.nodes {
		if m.name != n.name && n.look(m) {
			news = true
		}
	}
	if news {
		n.updateMembers()
	}
}

// updateMembers tells the membership what gossip knows.
func (n *Node) updateMembers() {
	n.w.fence.touch(n)
	all := []peer.Member{n.published}
	for _, r := range n.rumours {
		all = append(all, r.Member)
	}
	slices.SortFunc(all, func(a, b peer.Member) int { return strings.Compare(a.Name, b.Name) })
	n.members.Update(all)
}

// look updates what gossip at n knows of m, and reports whether it has changed.
func (n *Node) look(m *Node) (news bool) {
	w, have := n.w, n.rumours[m.name]
	same := have != nil && have.Instance == m.inst
	switch {
	case n.hears(m):
		if same {
			delete(n.rumours, m.name)
		}
		return same
	case m.alive && m.leftAt == 0 && n.reaches(m) && !w.suspects[pair{n.inst, m.inst}]:
		if same {
			have.contact, have.patient = w.now, w.between(1000*ms, 2400*ms)
		}
		return n.meets(m, have)
	case same && have.State != peer.Dead && w.now-have.contact > have.patient:
		w.logf("gossip of %s loses %s", n.name, m.name)
		have.State = peer.Dead
		return true
	}
	return false
}

// strangers reports whether gossip at a node has not told it of another one yet.
func (w *World) strangers() bool {
	live := w.live()
	return slices.ContainsFunc(live, func(n *Node) bool { return len(n.rumours) < len(live)-1 })
}

// meetAll lets time pass until all nodes have heard of each other, and a span after that, if they have not. Each time
// gossip tells of a new name by chance, so in one of a hundred thousand runs the last node of nine needs more than 3 s.
func (w *World) meetAll(span limiter.Tick) error {
	if !w.strangers() {
		return nil
	}
	for end := w.now + span; w.strangers() && w.now < end; {
		if err := w.run(100*ms, w.invariants); err != nil {
			return err
		}
	}
	return w.run(span, w.invariants)
}

// stranger reports whether gossip has told a node of no other one that stays, and none of those of it. Such a node
// cannot know who takes its counters.
func (w *World) stranger(n *Node) bool {
	return !slices.ContainsFunc(w.live(), func(m *Node) bool {
		return m != n && m.members.State() != peer.Leaving && (knows(n, m) || knows(m, n))
	})
}

// knows reports whether gossip at n has named this instance of m.
func knows(n, m *Node) bool {
	r := n.rumours[m.name]
	return r != nil && r.Instance == m.inst
}

// meets has n hear what m publishes, sooner or later. have is what it has heard of the
// name.
func (n *Node) meets(m *Node, have *rumour) (news bool) {
	w, chance := n.w, 60
	switch {
	case have == nil:
		chance = 30
	case have.Instance != m.inst:
		if other := w.node(have.Instance); other != nil && other.alive && other.leftAt == 0 {
			return false // the name is taken
		}
	case have.State == m.published.State:
		return false
	}
	if !w.chance(chance) {
		return false
	}
	n.rumours[m.name] = &rumour{m.published, w.now, w.between(1000*ms, 2400*ms)}
	return true
}

// hears reports whether n has heard that m left: from m itself within a second, or from
// a node that has heard.
func (n *Node) hears(m *Node) bool {
	w := n.w
	if m.countsOn {
		return false
	}
	if m.leftAt == 0 || w.heard[pair{n.inst, m.inst}] {
		return m.leftAt != 0
	}
	hears := w.now-m.leftAt < limiter.Second && w.linked(n, m)
	for _, k := range w.live() {
		hears = hears || k != n && !k.paused && w.heard[pair{k.inst, m.inst}] && w.linked(n, k)
	}
	if hears {
		w.heard[pair{n.inst, m.inst}] = true
	}
	return hears
}
