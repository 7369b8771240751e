package replica

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// vacancy is what a view owner knows of a closed partition without owner: the last owner
// is dead, and a copy is left.
type vacancy struct {
	known   int           // members that count
	role    peer.Role     // of this node
	answers []peer.Answer // of the second member, and the third where it is in view
	owner   peer.Instance // the last known
	back    bool          // the third member is in view
	deadFor limiter.Tick  // how long the third member has been out of the view
	gone    bool          // the last owner has left or was forgotten: it does not count
	told    int           // members of which one tells, and which do not count
}

func (x *vacancy) due(t *testing.T) bool {
	t.Helper()
	l := newLab()
	l.told = x.told
	p := New(l.node(self), table.Partitions+7)
	present := []peer.Instance{self, other}
	if x.back {
		present = append(present, third)
	} else {
		l.left[third] = l.now
	}
	if x.gone {
		l.forgotten = append(l.forgotten, x.owner)
	}
	l.now += x.deadFor // nothing else is going on
	tr := l.turn(view.New(self, members(present...), seats{0, 1}, x.known, x.known))
	p.owner, p.role = peer.Epoch{Counter: 1, Instance: x.owner}, x.role
	r := &claimRound{kind: peer.Ask, whom: []peer.Instance{other, third}, answers: make([]answer, 2)}
	for i, a := range x.answers {
		r.answers[i] = answer{a, true}
	}
	return p.lastResortDueClosed(tr, r)
}

// A closed partition continues from a copy if every member that counts has answered, or
// all but the last owner, which is silent, and none of them is fresh.
func TestTheLastResortOfClosed(t *testing.T) {
	copied, nothing := peer.Answer{Role: peer.Copy}, peer.Answer{Role: peer.Nothing}
	fresh, freshCopy := peer.Answer{Fresh: true}, peer.Answer{Role: peer.Copy, Fresh: true}
	for name, one := range map[string]struct {
		vacancy
		want bool
	}{
		"all but the last owner, which is silent": {vacancy{known: 3, answers: []peer.Answer{copied}, owner: third,
			deadFor: GoneAfter}, true},
		"the copy is its own": {vacancy{known: 3, role: peer.Copy, answers: []peer.Answer{nothing},
			owner: third, deadFor: GoneAfter}, true},
		"another one is missing too": {vacancy{known: 4, answers: []peer.Answer{copied}, owner: third,
			deadFor: GoneAfter}, false},
		"the last owner is gone, another one is missing": {vacancy{known: 3, answers: []peer.Answer{copied}, owner: third,
			deadFor: GoneAfter, gone: true}, false},
		"the last owner is gone, all others answered": {vacancy{known: 2, answers: []peer.Answer{copied}, owner: third,
			deadFor: GoneAfter, gone: true}, true},
		"no copy is left": {vacancy{known: 3, answers: []peer.Answer{nothing}, owner: third,
			deadFor: GoneAfter}, false},
		"who has the copy is fresh": {vacancy{known: 3, role: peer.Copy, answers: []peer.Answer{fresh},
			owner: third, deadFor: GoneAfter}, false},
		"no owner is known": {vacancy{known: 3, answers: []peer.Answer{copied},
			deadFor: GoneAfter}, false},
		"the owner is not silent for long": {vacancy{known: 3, answers: []peer.Answer{copied}, owner: third,
			deadFor: GoneAfter - 1}, false},
		"the owner is in view, and one is missing": {vacancy{known: 4, answers: []peer.Answer{copied, nothing},
			owner: third, back: true}, false},
		"all have answered": {vacancy{known: 3, answers: []peer.Answer{copied, nothing},
			owner: third, back: true}, true},
		"all have answered, and nobody has a copy": {vacancy{known: 3, answers: []peer.Answer{fresh, nothing},
			owner: third, back: true}, true},
		"all have answered, one tells of another": {vacancy{known: 3, answers: []peer.Answer{copied, nothing},
			owner: third, back: true, told: 1}, false},
		"all have answered, one of them, which has nothing, tells of another": {vacancy{known: 3,
			answers: []peer.Answer{fresh, nothing}, owner: third, back: true, told: 1}, false},
		"all but the owner have answered, one tells of another": {vacancy{known: 3, answers: []peer.Answer{copied},
			owner: third, deadFor: GoneAfter, told: 1}, false},
		"all have answered, a fresh one has a copy": {vacancy{known: 3, answers: []peer.Answer{freshCopy, nothing},
			owner: third, back: true}, false},
	} {
		if got := one.due(t); got != one.want {
			t.Errorf("%s: last resort %t, want %t", name, got, one.want)
		}
	}
}

// A last resort is abandoned if a member that answers the claim holds a later state, even
// if it grants the claim: that member may have been out of reach when all were asked.
func TestALastResortBehindAnotherCopy(t *testing.T) {
	epoch := func(n uint64) peer.Epoch { return peer.Epoch{Counter: n, Instance: third} }
	for name, one := range map[string]struct {
		role, answers peer.Role
		epoch         peer.Epoch
		seq           uint64
		want          bool // the claim succeeds
	}{
		"the same state":         {peer.Copy, peer.Copy, epoch(4), 3, true},
		"an earlier state":       {peer.Copy, peer.Copy, epoch(3), 9, true},
		"a later sequence":       {peer.Copy, peer.Copy, epoch(4), 4, false},
		"a later epoch":          {peer.Copy, peer.Heir, epoch(5), 1, false},
		"nothing":                {peer.Copy, peer.Nothing, peer.Epoch{}, 0, true},
		"any copy is later":      {peer.Nothing, peer.Copy, epoch(1), 0, false},
		"nothing, and empty too": {peer.Nothing, peer.Nothing, peer.Epoch{}, 0, true},
	} {
		l := newLab()
		p := New(l.node(other), table.Partitions+7)
		tn := l.turn(view.New(other, members(self, other), seats{1, 0}, 2, 2))
		p.Begin(tn, Fixture{Role: one.role, Epoch: epoch(4), Owner: epoch(4)})
		p.seq = 3
		p.startRound(tn, peer.LastResort, other, p.owner)
		l.now += claimWithin
		tn.Now = l.now
		a := peer.Answer{Round: p.claiming.round.id, Granted: true, Role: one.answers, Epoch: one.epoch, Seq: one.seq}
		p.onAnswer(tn, self, a)
		if r := p.claiming.round; r != nil && r.granted {
			a.Owner = r.epoch(p)
			p.onAnswer(tn, self, a)
		}
		if got := p.role == peer.Owned; got != one.want {
			t.Errorf("%s: the claim succeeds: %t, want %t", name, got, one.want)
		}
	}
}

// A last resort in place of an owner that is out of the view needs the grant of all others: one
// that was asked what it holds may since be on the owner's side of a split, and its heir.
func TestALastResortIsGrantedByAll(t *testing.T) {
	begins := func(owner peer.Instance) (*Replica, *Step) {
		l := newLab()
		l.left[owner] = l.now
		p := New(l.node(self), table.Partitions+7)
		tn := l.turn(view.New(self, members(self, other, third, fourth), seats{0, 1}, 5, 5))
		e := peer.Epoch{Counter: 4, Instance: owner}
		p.Begin(tn, Fixture{Role: peer.Copy, Epoch: e, Owner: e})
		p.startRound(tn, peer.LastResort, self, p.owner)
		l.now += claimWithin
		tn.Now = l.now
		return p, tn
	}
	const fifth peer.Instance = 0xe
	granted := func(p *Replica, tn *Step, role peer.Role, from ...peer.Instance) bool {
		for _, i := range from {
			if p.claiming.round == nil {
				return false
			}
			p.onAnswer(tn, i, peer.Answer{Round: p.claiming.round.id, Granted: true, Role: role, Epoch: p.epoch, Seq: p.seq,
				Owner: p.owner})
		}
		return p.claiming.round != nil && p.claiming.round.granted
	}
	p, tn := begins(fifth)
	if granted(p, tn, peer.Copy, other, third) {
		t.Error("three of five are enough, of which one may be the owner's heir")
	}
	if !granted(p, tn, peer.Copy, fourth) {
		t.Error("all but the owner have granted it, and it does not go on")
	}
	p, tn = begins(fifth)
	if granted(p, tn, peer.Heir, other, third, fourth) || p.claiming.round != nil {
		t.Error("it goes on, and a member that granted it is the owner's heir")
	}
	p, tn = begins(self)
	if !granted(p, tn, peer.Heir, other, third) {
		t.Error("this node was the last owner, and a majority is not enough")
	}
}

// An owner or heir that this node never saw also gets a second to answer, from the first
// question on. One that has answered needs none.
func TestWhoIsGone(t *testing.T) {
	const never peer.Instance = 0xd
	l := newLab()
	p := New(l.node(self), 7)
	v := view.New(self, members(self, other, third), seats{0, 1}, 3, 3)
	r := &claimRound{kind: peer.Ask, whom: []peer.Instance{never}, answers: make([]answer, 1)}
	gone := func() bool {
		return p.gone(l.turn(v), r, 0, never)
	}
	if gone() {
		t.Error("it is given up when it is asked first")
	}
	l.now += GoneAfter - TickEvery
	if gone() {
		t.Error("it is given up before a second of silence")
	}
	l.now += TickEvery
	if !gone() {
		t.Error("it is waited for after a second of silence")
	}
	p.seeking.lost[0] = lostOwner{}
	r.answers[0].has = true
	if !gone() {
		t.Error("one that has answered, and holds nothing, is waited for")
	}
}

// Of members that leave together, none starts a partition that it does not hold, or goes on from an old copy: who left
// before may have a later state on its disk, which an epoch above it would outrank. As long as a member stays, or none
// leaves, the last resort is for that one. A claim that is under way ends.
func TestWhoLeavesLastStartsNothing(t *testing.T) {
	e := peer.Epoch{Counter: 4, Instance: third}
	for name, one := range map[string]struct {
		role            peer.Role
		leaves, claimed bool // claimed: before it leaves
		want            bool
	}{
		"nothing, and it stays":       {peer.Nothing, false, false, true},
		"a copy, and it stays":        {peer.Copy, false, false, true},
		"nothing, and it leaves":      {peer.Nothing, true, false, false},
		"a copy, and it leaves":       {peer.Copy, true, false, false},
		"nothing, and it has claimed": {peer.Nothing, true, true, false},
		"a copy, and it has claimed":  {peer.Copy, true, true, false},
	} {
		l := newLab()
		p := New(l.node(self), 7)
		tn := l.turn(view.New(self, members(self, other), seats{0, 1}, 2, 2))
		p.Begin(tn, Fixture{Role: one.role, Epoch: e, Owner: e})
		if l.left[third] = l.now; one.claimed {
			p.startRound(tn, peer.LastResort, self, e)
		}
		if one.leaves {
			all := members(self, other)
			all[0].State, all[1].State, tn.State = peer.Leaving, peer.Leaving, peer.Leaving
			tn.View = view.New(self, all, seats{0, 1}, 2, 2)
		}
		p.ViewChanged(tn)
		for range 60 {
			if r := p.claiming.round; r != nil {
				a := peer.Answer{Partition: p.id, Round: r.id, Owner: e, Granted: r.kind != peer.Ask}
				p.Step(tn, other, Message{Answer: &a})
			}
			tn.Now += 50 * limiter.Millisecond
			p.Tick(tn)
		}
		if got := p.role == peer.Owned; got != one.want {
			t.Errorf("%s: it decides: %t, want %t", name, got, one.want)
		}
	}
}
