package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
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

// crossingClaim: the heir has granted a handoff to itself, and claims the partition before it arrives.
func crossingClaim(s *story) {
	s.ask("a", 5, false)
	s.pass(15 * ms)
	s.say("the ring names b as owner, and b loses sight of a as soon as it has granted the handoff")
	s.ring = []string{"b", "a", "c"}
	s.all("abc")
	s.pass(1 * ms)
	s.of("b").sees("bc")
	n := s.ask("a", 6, false)
	s.isAnswered(n, false)
	s.pass(5 * ms)
	s.isAnswered(n, true)
	s.say("b makes c its heir, which has granted b's claim and so needs a later epoch")
	s.pass(30 * ms)
	s.ends("b", "c", 11)
}

// TestAReceiverGivesItsOwnClaimUp: an heir that has granted a later counter to nobody but itself takes a
// handover. That claim never succeeds. An heir refuses if it has granted a later one to another member, also if a
// claim of its own came after that, and if others may have recorded its own.
func TestAReceiverGivesItsOwnClaimUp(t *testing.T) {
	e := peer.Epoch{Counter: 4, Instance: third}
	for name, test := range map[string]struct {
		before func(l *lab, p *Replica, tn *Step)
		takes  bool
	}{
		"no claim":                       {func(*lab, *Replica, *Step) {}, true},
		"its own claim, not granted yet": {func(_ *lab, p *Replica, tn *Step) { p.takeOver(tn) }, true},
		"its own claim, repeated": {func(l *lab, p *Replica, tn *Step) {
			p.takeOver(tn)
			p.onAnswer(tn, other, peer.Answer{Round: p.claiming.round.id, Grant: 6, Top: 6, Owner: e})
			l.now = p.claiming.round.retryAt
			tn.Now = l.now
			p.Tick(tn)
			if p.claiming.round == nil || p.claiming.round.counter < 7 || p.claiming.round.retryAt != 0 {
				t.Fatalf("premise: the claim is repeated: %s", p.Describe(tn))
			}
		}, true},
		"its own claim, which the owner ended": {func(_ *lab, p *Replica, tn *Step) {
			p.takeOver(tn)
			p.onAnswer(tn, third, peer.Answer{Round: p.claiming.round.id, Role: peer.Owned, Epoch: e, Owner: e})
			if p.claiming.round != nil {
				t.Fatal("premise: the owner lives, and the claim is over")
			}
		}, true},
		"its own claim, whose epoch is being recorded": {func(l *lab, p *Replica, tn *Step) {
			p.takeOver(tn)
			p.onAnswer(tn, other, peer.Answer{Round: p.claiming.round.id, Granted: true, Owner: e})
			l.now += claimWithin
			tn.Now = l.now
			p.Tick(tn)
			if p.claiming.round == nil || !p.claiming.round.granted {
				t.Fatalf("premise: the claim is granted: %s", p.Describe(tn))
			}
		}, false},
		"another's claim": {func(_ *lab, p *Replica, tn *Step) {
			p.onClaim(tn, third, peer.Claim{Partition: p.id, Kind: peer.Reopen, Round: 1, Counter: 6, For: third})
		}, false},
		"another's claim, then its own": {func(_ *lab, p *Replica, tn *Step) {
			p.onClaim(tn, third, peer.Claim{Partition: p.id, Kind: peer.Reopen, Round: 1, Counter: 6, For: third})
			p.takeOver(tn)
			if p.grantTo != self {
				t.Fatal("premise: it claims above that")
			}
		}, false},
	} {
		l := newLab()
		p := New(l.node(self), table.Partitions+7)
		tn := l.turn(view.New(self, members(self, other), seats{0, 1}, 3, 3)) // the giver is out of view
		p.Begin(tn, Fixture{Role: peer.Heir, Epoch: e, Owner: e, Heir: self})
		p.onClaim(tn, third, peer.Claim{Partition: p.id, Kind: peer.Transfer, Round: 1, Counter: 5, For: self})
		test.before(l, p, tn)
		top := p.top
		next := peer.Epoch{Counter: 5, Instance: self}
		p.Step(tn, third, Message{Batch: &peer.Batch{Partition: p.id, Kind: peer.Handover, Epoch: e, BaseEpoch: e,
			Appointment: 1, Next: next}})
		if took := p.role == peer.Owned && p.epoch == next; took != test.takes {
			t.Errorf("%s: the handover is taken: %t", name, took)
			continue
		}
		if test.takes && (p.grant != 5 || p.grantTo != third || p.top != top ||
			p.claiming.round != nil && p.claiming.round.kind == peer.Takeover) {
			t.Errorf("%s: afterwards it has granted %d to %v, knows the counter %d and claims %+v", name, p.grant, p.grantTo,
				p.top, p.claiming.round)
		}
	}
}

// transferring is a closed partition that this node owns and begins to hand over to other.
func transferring(t *testing.T) (*Replica, *Step) {
	t.Helper()
	l, p, tn := closedOwner(t)
	tn.View = view.New(self, members(self, other, third), seats{1, 0}, 3, 3)
	p.ViewChanged(tn)
	if p.claiming.round == nil || p.claiming.round.kind != peer.Transfer {
		t.Fatal("no transfer is claimed")
	}
	l.now += claimWithin
	tn.Now = l.now
	return p, tn
}

// A handover needs the receiver's own grant. A majority is not enough.
func TestATransferNeedsItsReceiver(t *testing.T) {
	p, tn := transferring(t)
	r := p.claiming.round
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
	for name, change := range map[string]func(*Replica, *Step){
		"the receiver left the view": func(_ *Replica, tn *Step) {
			tn.View = view.New(self, members(self, third), seats{1, 0}, 3, 3)
		},
		"the ring names another": func(_ *Replica, tn *Step) {
			tn.View = view.New(self, members(self, other, third), seats{0, 1}, 3, 3)
		},
		"the owner does without that heir": func(p *Replica, _ *Step) { p.own.renew = true },
		"another is heir":                  func(p *Replica, _ *Step) { p.own.heir.to = third },
	} {
		p, tn := transferring(t)
		r := p.claiming.round
		if p.Tick(tn); p.claiming.round != r {
			t.Fatal("the transfer ends by itself")
		}
		change(p, tn)
		if p.Tick(tn); p.claiming.round == r {
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
		drops := slices.ContainsFunc(tn.List, func(e Effect) bool {
			return e.Kind == SendRevoke && e.To == other && e.Revoke.Drop
		})
		if drops != test.drops {
			t.Errorf("%s: its heir is to drop its copy: %t", name, drops)
		}
		if !p.Drained(tn.View) && test.owner == peer.Leaving && test.third == peer.Leaving {
			t.Errorf("%s: it may not go", name)
		}
	}
}

// TestAGiverThatSeemsToJoinIsHeir: a receiver has nobody to make heir but the giver, and its gossip still
// tells that the giver is joining. After a renewal the giver is appointed again: it has a copy, so a closed
// partition without an heir would withhold all replies until gossip tells.
func TestAGiverThatSeemsToJoinIsHeir(t *testing.T) {
	for name, test := range map[string]struct {
		giver peer.Instance
		state peer.State
		third bool // another member is active
		want  peer.Instance
	}{
		"the giver seems to join":        {other, peer.Joining, false, other},
		"another member joins":           {0, peer.Joining, false, 0},
		"the giver leaves":               {other, peer.Leaving, false, 0},
		"another member could be heir":   {other, peer.Joining, true, third},
		"the giver is known as active":   {other, peer.Active, false, other},
		"the giver is out of the view":   {fourth, peer.Joining, false, 0},
		"gossip knows the giver, others": {other, peer.Active, true, other},
	} {
		l := newLab()
		p := New(l.node(self), table.Partitions+7)
		all, ring := members(self, other), seats{0, -1}
		switch {
		case test.third:
			all, ring = members(self, other, third), seats{0, 1} // of those that are active
		case test.state == peer.Active:
			ring = seats{0, 1}
		}
		all[1].State = test.state
		tn := l.turn(view.New(self, all, ring, len(all), len(all)))
		e := peer.Epoch{Counter: 4, Instance: self}
		p.Begin(tn, Fixture{Role: peer.Owned, Epoch: e, Owner: e, Heir: other})
		p.own.from.giver, p.own.renew = test.giver, true
		p.manage(tn)
		for range 2 { // it grants the claim, and records it
			if p.claiming.round == nil {
				t.Fatalf("%s: premise: the owner renews", name)
			}
			a := peer.Answer{Round: p.claiming.round.id, Granted: true, Role: peer.Heir, Epoch: e, Owner: e}
			if p.claiming.round.granted {
				a.Owner = p.claiming.round.epoch(p)
			}
			for _, m := range all[1:] {
				if p.claiming.round != nil {
					p.onAnswer(tn, m.Instance, a)
				}
			}
		}
		if p.epoch.Counter != 5 || p.own.heir != nil {
			t.Fatalf("%s: premise: it has renewed: %s", name, p.Describe(tn))
		}
		got := peer.Instance(0)
		if p.own.next != nil {
			got = p.own.next.to
		}
		if got != test.want {
			t.Errorf("%s: it prepares %v, want %v", name, got, test.want)
		}
	}
}

// An owner without an heir has members that leave drop their copies, so that it can answer without them. If it
// leaves, too, and no member joins, it does not: the copy may be the last one.
func TestAnOwnerThatLeavesAsksNobodyToDropItsCopy(t *testing.T) {
	for name, test := range map[string]struct {
		owner, third peer.State
		drops        bool
	}{
		"the owner stays":                     {peer.Active, peer.Leaving, true},
		"the owner leaves":                    {peer.Leaving, peer.Leaving, false},
		"the owner leaves and a member joins": {peer.Leaving, peer.Joining, true},
	} {
		_, p, tn := closedOwner(t)
		p.own.heir = nil
		all := members(self, other, third)
		all[0].State, all[1].State, all[2].State, tn.State = test.owner, peer.Leaving, test.third, test.owner
		tn.View = view.New(self, all, seats{0, -1}, 3, 3)
		p.ViewChanged(tn)
		if p.claiming.round == nil || p.claiming.round.kind != peer.Ask {
			t.Fatalf("%s: premise: it asks who has a copy: %s", name, p.Describe(tn))
		}
		id := p.claiming.round.id
		p.onAnswer(tn, other, peer.Answer{Round: id, Role: peer.Copy, Epoch: p.epoch, Owner: p.epoch})
		p.onAnswer(tn, third, peer.Answer{Round: id, Owner: p.epoch})
		drops := slices.ContainsFunc(sent(tn, SendRevoke), func(e Effect) bool { return e.To == other && e.Revoke.Drop })
		if drops != test.drops {
			t.Errorf("%s: the copy is to be dropped: %t", name, drops)
		}
		if p.own.soleCopy {
			t.Errorf("%s: it takes its copy for the only one", name)
		}
	}
}

// TestIDsOfAPushGoFirst: the receiver settles what was settled here before it merges the counters, which have that.
func TestIDsOfAPushGoFirst(t *testing.T) {
	l, p, tn := closedOwner(t)
	known := make(map[uint64]bool)
	for i := range uint64(1000) {
		k := strictKey(t, p.id)
		k.Hash.Hi, k.Cost = i<<40, 1
		c := &arith.Charge{ID: &arith.Idempotency{ID: i + 1, Life: time.Minute}}
		c.Add(k)
		if err := l.table.Decide(tn.At, c, new(limiter.Decision)); err != nil {
			t.Fatal(err)
		}
		known[table.IDOf(&k, i+1).Hi] = true
	}
	tn.Reset()
	p.learn(tn, peer.Epoch{Counter: 9, Instance: other}, 0)
	var keys []uint64
	for _, e := range sent(tn, SendBatch) {
		keys = append(keys, e.Keys...)
	}
	if len(keys) != 2000 || len(known) != 1000 {
		t.Fatalf("%d counters and ids of 2000 are pushed", len(keys))
	}
	for i, hi := range keys {
		if known[hi] != (i < 1000) {
			t.Fatalf("number %d that is pushed: an id is %t", i, known[hi])
		}
	}
}
