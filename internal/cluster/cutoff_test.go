package cluster

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// remote is a node without its other members.
type remote struct {
	policy limiter.Unreachable
	owns   bool         // the key's partition
	known  int          // members that count
	alone  limiter.Tick // how long no other member was in the view
	up     bool         // one of the others still has a link
	back   bool         // another member is in the view again
	peek   bool
}

// ask checks a key twice and returns the sources of the answers that came at once.
func (x *remote) ask(t *testing.T) (at []limiter.Source, counters int) {
	t.Helper()
	c, p, h, charge := single(t, x.policy)
	if x.owns {
		own(c, p)
	}
	c.Down(other)
	c.Down(third)
	c.SetView(view.New(self, []peer.Member{{Name: "a", Instance: self, State: peer.Active}}, h, x.known, x.known))
	h.pass(x.alone)
	if x.up {
		c.Up(other)
	}
	if x.back {
		c.SetView(view.New(self, []peer.Member{
			{Name: "a", Instance: self, State: peer.Active}, {Name: "b", Instance: other, State: peer.Active},
		}, h, x.known, x.known))
	}
	if !x.owns {
		p.to.Store(uint64(third)) // whatever came of it meanwhile
	}
	if x.peek {
		c.Begin(charge.Clone(), new(limiter.Decision), 0, func() {})
	}
	for range 2 {
		d, q := new(limiter.Decision), charge.Clone()
		q.Peek = x.peek
		c.Begin(q, d, 0, func() { at = append(at, d.Source) })
	}
	return at, c.table.Count(int(p.id))
}

// A node that is cut off does not wait, under closed, for what another member must
// confirm. Of what it owns it still answers D units.
func TestNothingIsWaitedForInVain(t *testing.T) {
	const shut, closed, owner = limiter.UnreachableClosed, limiter.SourceFallbackClosed, limiter.SourceOwner
	for name, one := range map[string]struct {
		remote
		want []limiter.Source
	}{
		"another's key": {remote{policy: shut, known: 3, alone: replica.GoneAfter},
			[]limiter.Source{closed, closed}},
		"its own": {remote{policy: shut, known: 3, alone: replica.GoneAfter, owns: true},
			[]limiter.Source{owner, closed}},
		"its own, of two members": {remote{policy: shut, known: 2, alone: replica.GoneAfter, owns: true},
			[]limiter.Source{owner, closed}},
		"questions about its own": {remote{policy: shut, known: 3, alone: replica.GoneAfter, owns: true, peek: true},
			[]limiter.Source{owner, owner}},
		"less than a second": {remote{policy: shut, known: 3, alone: replica.GoneAfter - replica.TickEvery}, nil},
		"its own, less than a second": {remote{policy: shut, known: 3, alone: replica.GoneAfter - replica.TickEvery,
			owns: true}, []limiter.Source{owner}},
		"a connection is left": {remote{policy: shut, known: 3, alone: replica.GoneAfter, up: true}, nil},
		"its own, a connection is left": {remote{policy: shut, known: 3, alone: replica.GoneAfter, owns: true, up: true},
			[]limiter.Source{owner}},
		"another is in view again": {remote{policy: shut, known: 5, alone: replica.GoneAfter, back: true}, nil},
		"the others left": {remote{policy: shut, known: 1, alone: replica.GoneAfter},
			[]limiter.Source{owner, owner}},
		"another policy": {remote{policy: limiter.UnreachableLocal, known: 3, alone: replica.GoneAfter}, nil},
	} {
		at, counters := one.ask(t)
		if len(at) != len(one.want) || len(at) > 0 && at[0] != one.want[0] || len(at) > 1 && at[1] != one.want[1] {
			t.Errorf("%s: answered at once by %v, want %v", name, at, one.want)
		}
		if charged := len(at) > 0 && at[0] == owner; charged != (counters == 1) {
			t.Errorf("%s: %d counters", name, counters)
		}
	}
}
