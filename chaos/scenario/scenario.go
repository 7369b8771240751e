//go:build linux

// Package scenario is the faults that real processes are put to, and how one is
// tried: clients ask all the while, something is broken, it is mended, and the
// history is judged.
package scenario

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/load"
	"github.com/weirlimit/weir/chaos/netlab"
)

// Scenario is a kind of fault.
type Scenario struct {
	Name, About string
	// Needs is what the ground must have.
	Needs fleet.Need
	// Clock is how far the nodes' clocks are off.
	Clock []time.Duration
	// Args are more arguments of the nodes.
	Args []string
	// Size is how many nodes run; 0: three.
	Size int
	// make draws a fault.
	make func(s *stage) fault
}

// fault is something to break, and how to mend it.
type fault struct {
	what   string
	allows history.Allows
	nodes  []int // that are touched
	hold   time.Duration
	pause  time.Duration                   // between the checks of one client; 0: a short one
	hot    bool                            // clients use up keys faster than a copy can be told
	cold   bool                            // there are keys that are left alone while it lasts
	shaky  bool                            // nodes fall silent again and again while it lasts
	holds  history.Holds                   // when what nodes tell each other may be held up
	takes  int                             // takeovers of one key that it may cause; 0: takeoversEach
	gone   int                             // how many nodes may have left in good order at a time
	first  func(ctx context.Context) error // before clients ask; nil: nothing
	away   *fleet.Node                     // which first leaves out of reach
	breaks func(ctx context.Context) error
	// shown returns why it cannot be seen to have happened, before it is mended; nil:
	// what nodes that are down answer, and what links did, tells.
	shown func(ctx context.Context) error
	wants []string // sources of answers that must be seen
	mends func(ctx context.Context) error
	again []int // nodes that are to answer in a later run
	joins []int // nodes that are to join, and to decide
}

// stage is what a fault is drawn for.
type stage struct {
	*fleet.Fleet
	rng  *rand.Rand
	size int // nodes that run; one more place is free
	// spared is the node whose process a mix does not end, -1 for none.
	spared int
	rules  []history.Rule
	clock  []time.Duration // how far the nodes' clocks are to be off
	now    func() history.Micros
	load   *load.Load // clients who ask while it is broken
	cold   *load.Cold // nil unless the fault has such keys

	mu      sync.Mutex
	parts   []history.Fault // of a mix, as they happened
	watches []*watch        // of links that are to be healed
	severed bool            // something was kept from arriving
	broken  []error         // promises that the scenario itself has seen broken
}

// The bounds of the promises, in multiples of what a key admits.
func exactly() history.Allows { return history.Allows{Closed: 1, Local: 1, Open: 1, Exact: true} }
func crash() history.Allows   { return history.Allows{Closed: 1, Local: 1, Open: 1} }
func split() history.Allows   { return history.Allows{Closed: 1, Local: 2, Open: 2} }
func loss() history.Allows    { return history.Allows{Closed: 2, Local: 2, Open: 2, Losses: 1} }

// found is a crash, or a broken link, that is found out soon.
func found() history.Allows {
	return history.Allows{Closed: 1, Local: 1, Open: 1, ByPolicy: 16, Within: within}
}

// paused is a crash whose clients wait for as long as it lasts.
func paused() history.Allows { return history.Allows{Closed: 1, Local: 1, Open: 1, Within: within} }

// within is how long nodes that a crash, a pause or a broken link does not touch may still
// fail to answer. An heir is asked after 80 ms and claims within 100 ms; who is neither
// owner nor heir is in the ring for 2.4 s at worst, until gossip knows, and then each
// view owner asks and claims once more. The last check ends at its deadline of 300 ms.
const within = history.Micros(3 * time.Second / time.Microsecond)

// convergedWithin is how long after all was mended the nodes may need to settle. Gossip
// takes a silent node for dead within 2.4 s and tries it again, and a node that starts
// joins a view once it has stood still, in 3 s; what is owned then is handed over. The
// slowest trial on a machine with time to spare took 8 s.
const convergedWithin = history.Micros(15 * time.Second / time.Microsecond)

// How many takeovers of one key something that breaks may cause. Where a process ends or
// stops, or a node is cut off, its heir takes over, once; whoever comes back is handed the key
// in good order, and who was an owner is overtaken, and pushes what it has. These say one.
// Of other faults some member may notice the beginning and another one the end. Where nodes
// fall silent again and again, each takeover needs 80 ms of silence, a claim of up to
// 100 ms and a new heir with a whole copy.
const (
	takeoversEach      = 2
	takeoversPerSecond = 4
)

// takeovers is how many takeovers of one key a fault that lasted so long may cause.
func (f *fault) takeovers(lasted history.Micros) int {
	n := f.takes
	if n == 0 {
		n = takeoversEach
	}
	if f.shaky {
		n += int(takeoversPerSecond * lasted.Duration().Seconds())
	}
	return n
}

// between draws a duration.
func (s *stage) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rng.Int64N(int64(most-least)+1))
}

// any draws a node that runs.
func (s *stage) any() *fleet.Node { return s.Nodes()[s.rng.IntN(s.size)] }

// but is the nodes that run, without one.
func (s *stage) but(n *fleet.Node) []*fleet.Node {
	return slices.DeleteFunc(slices.Clone(s.Nodes()[:s.size]), func(o *fleet.Node) bool { return o == n })
}

// two draws two nodes.
func (s *stage) two() (a, b int) {
	p := s.rng.Perm(s.size)
	return p[0], p[1]
}

// eachLink calls f for both directions of every link between nodes that run.
func (s *stage) eachLink(f func(from, to int)) {
	for i := range s.size {
		for j := range s.size {
			if i != j {
				f(i, j)
			}
		}
	}
}

// set breaks links, as f says of each direction, and watches what they do.
func (s *stage) set(ctx context.Context, each bool, f func(from, to int) (netlab.Link, bool)) (*watch, error) {
	var err error
	cut := false
	set := make(map[[2]int]netlab.Link)
	s.eachLink(func(from, to int) {
		if l, ok := f(from, to); ok {
			set[[2]int{from, to}] = l
			cut = cut || l.Cut || l.Loss > 0 || len(l.Blocked) > 0
			err = errors.Join(err, s.Set(ctx, from, to, l))
		}
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.severed = s.severed || cut
	s.mu.Unlock()
	return s.watch(ctx, set, each)
}

// breakLinks is set until the links are healed.
func (s *stage) breakLinks(ctx context.Context, each bool, f func(from, to int) (netlab.Link, bool)) error {
	w, err := s.set(ctx, each, f)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = append(s.watches, w)
	return nil
}

// All returns every scenario, in the order in which they are run.
func All() []Scenario {
	var out []Scenario
	out = append(out, processes()...)
	out = append(out, networks()...)
	out = append(out, sequences()...)
	out = append(out, owners()...)
	out = append(out, disks()...)
	out = append(out, others()...)
	return out
}

// nothing mends what mends itself.
func nothing(context.Context) error { return nil }
