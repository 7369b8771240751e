package replica

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
)

// twoClaims: owner and heir claim the partition at the same moment, for the same member to
// own it, and cannot hear each other.
func twoClaims(s *story) {
	s.ask("a", 5, false)
	s.pass(15 * ms)
	s.say("the ring names b as owner; a is cut off from b and c at once, and a client asks b")
	s.ring = []string{"b", "a", "c"}
	s.all("abc")
	s.cut()
	s.ask("a", 4, false)
	s.ask("b", 2, false)
	s.pass(130 * ms)
	s.say("a is connected again")
	s.mend()
	s.pass(30 * ms)
	if left := s.of("b").remaining(); left > 91 {
		s.t.Errorf("the new owner has %d left, want 91 at most: a admitted 9", left)
	}
	s.ends("b", "", 11)
}

// transferring is a closed partition that this node owns and begins to hand over to other.
func transferring(t *testing.T) (*Replica, *Turn) {
	t.Helper()
	l, p, tn := closedOwner(t)
	tn.View = view.New(self, members(self, other, third), seats{1, 0}, 3, 3)
	p.ViewChanged(tn)
	if p.round == nil || p.round.kind != peer.Transfer {
		t.Fatal("no transfer is claimed")
	}
	l.now += claimWithin
	tn.Now = l.now
	return p, tn
}

// A handover needs the receiver's own grant. A majority is not enough.
func TestATransferNeedsItsReceiver(t *testing.T) {
	p, tn := transferring(t)
	r := p.round
	p.onAnswer(tn, third, peer.Answer{Round: r.id, Granted: true, Owner: p.owner})
	if p.Tick(tn); p.role != peer.Owned {
		t.Fatalf("without the receiver's grant the role is %d", p.role)
	}
	p.onAnswer(tn, other, peer.Answer{Round: r.id, Granted: true, Owner: p.owner, Role: peer.Heir})
	if p.role != peer.Sealed {
		t.Errorf("the receiver has granted it, and the role is %d", p.role)
	}
}

// A transfer that waits for the receiver ends when the owner wants no handover any more.
func TestATransferEnds(t *testing.T) {
	for name, change := range map[string]func(*Replica, *Turn){
		"the receiver left the view": func(_ *Replica, tn *Turn) {
			tn.View = view.New(self, members(self, third), seats{1, 0}, 3, 3)
		},
		"the ring names another": func(_ *Replica, tn *Turn) {
			tn.View = view.New(self, members(self, other, third), seats{0, 1}, 3, 3)
		},
		"the owner does without that heir": func(p *Replica, _ *Turn) { p.own.renew = true },
		"another is heir":                  func(p *Replica, _ *Turn) { p.own.heir.to = third },
	} {
		p, tn := transferring(t)
		r := p.round
		if p.Tick(tn); p.round != r {
			t.Fatal("the transfer ends by itself")
		}
		change(p, tn)
		if p.Tick(tn); p.round == r {
			t.Errorf("%s: the transfer goes on", name)
		}
	}
}

// An owner that stays has an heir that leaves drop its copy if nobody can take its place. If both leave it does
// not: the copy may be the last one, and a member that starts gets it.
func TestTheLastTwoThatLeaveKeepBothCopies(t *testing.T) {
	for name, test := range map[string]struct {
		owner, third peer.State
		drops        bool
	}{
		"the owner stays":                     {peer.Active, peer.Leaving, true},
		"the owner leaves":                    {peer.Leaving, peer.Leaving, false},
		"the owner leaves and a member joins": {peer.Leaving, peer.Joining, false},
	} {
		_, p, tn := closedOwner(t)
		all := members(self, other, third)
		all[0].State, all[1].State, all[2].State, tn.State = test.owner, peer.Leaving, test.third, test.owner
		tn.View = view.New(self, all, seats{0, -1}, 3, 3)
		p.ViewChanged(tn)
		drops := slices.ContainsFunc(tn.List, func(e Effect) bool { return e.Kind == SendRevoke && e.To == other && e.Revoke.Drop })
		if drops != test.drops {
			t.Errorf("%s: its heir is to drop its copy: %t", name, drops)
		}
		if !p.Vacated(tn.View) && test.owner == peer.Leaving && test.third == peer.Leaving {
			t.Errorf("%s: it may not go", name)
		}
	}
}
