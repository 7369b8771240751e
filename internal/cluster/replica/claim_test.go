package replica

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter/table"
)

// claims begins a takeover of a closed partition of three members: this node is the heir,
// the third member the owner. The second member has granted the claim, and the time for the
// owner's answer is over.
func claims(t *testing.T) (*Replica, *Step, peer.Epoch) {
	t.Helper()
	l := newLab()
	p := New(l.node(self), table.Partitions+7)
	tn := l.turn(view.New(self, members(self, other, third), seats{2, 0}, 3, 3))
	before := peer.Epoch{Counter: 4, Instance: third}
	p.Begin(tn, Fixture{Role: peer.Heir, Epoch: before, Owner: before, Heir: self})
	p.takeOver(tn)
	l.now += claimWithin
	tn.Now = l.now
	tn.Reset()
	p.onAnswer(tn, other, peer.Answer{Round: p.claiming.round.id, Granted: true, Owner: before})
	if p.claiming.round == nil || !p.claiming.round.granted || p.role != peer.Heir {
		t.Fatalf("the takeover was granted; the role is %d", p.role)
	}
	return p, tn, p.claiming.round.epoch(p)
}

// What a majority has granted is decided when a majority has recorded the new epoch.
func TestAnEpochIsRecordedByAMajority(t *testing.T) {
	p, tn, e := claims(t)
	announced := false
	for i := range tn.List {
		x := &tn.List[i]
		announced = announced || x.Kind == SendAnnounce && x.To == other && x.Announce.Epoch == e
	}
	if !announced {
		t.Error("the epoch is not announced to the member that granted it")
	}
	p.onAnswer(tn, other, peer.Answer{Round: p.claiming.round.id, Granted: true, Owner: e})
	if p.role != peer.Owned || p.epoch != e {
		t.Errorf("recorded, the role is %d under %v", p.role, p.epoch)
	}
}

// A member that has granted a later claim since does not record the epoch.
func TestAGrantMayBeOverruledBeforeItIsRecorded(t *testing.T) {
	p, tn, e := claims(t)
	p.onAnswer(tn, other, peer.Answer{Round: p.claiming.round.id, Owner: p.owner, Grant: e.Counter + 1,
		Top: e.Counter + 1})
	if p.role != peer.Heir || p.claiming.round == nil || p.claiming.round.retryAt == 0 {
		t.Errorf("the role is %d, and the claim is not repeated", p.role)
	}
}

// The owner's answer comes too late when others are asked to record the new epoch: to
// abandon the claim would leave them with an owner that does not exist.
func TestAGrantedTakeoverGoesOn(t *testing.T) {
	p, tn, e := claims(t)
	p.onAnswer(tn, third, peer.Answer{Round: p.claiming.round.id, Role: peer.Owned, Epoch: p.epoch, Owner: p.owner})
	if p.claiming.round == nil {
		t.Fatal("the claim is abandoned")
	}
	// Who doubts the new owner meanwhile is told that it is there.
	tn.Reset()
	p.onClaim(tn, other, peer.Claim{Kind: peer.Ask, Round: 9})
	if got := tn.List[0].Answer.Owner; got != e {
		t.Errorf("it names the owner %v, want %v", got, e)
	}
	p.onAnswer(tn, other, peer.Answer{Round: p.claiming.round.id, Granted: true, Owner: e})
	if p.role != peer.Owned {
		t.Errorf("the role is %d", p.role)
	}
}

// An heir whose owner is out of the view and answers claims again later: the owner may stop
// without another change of the view.
func TestAnHeirClaimsAgain(t *testing.T) {
	l := newLab()
	p := New(l.node(self), table.Partitions+7)
	tn := l.turn(view.New(self, members(self, other), seats{0, 1}, 3, 3))
	before := peer.Epoch{Counter: 4, Instance: third}
	p.Begin(tn, Fixture{Role: peer.Heir, Epoch: before, Owner: before, Heir: self})
	p.ViewChanged(tn)
	p.Step(tn, third, Message{Answer: &peer.Answer{Round: p.claiming.round.id, Role: peer.Owned, Epoch: before,
		Owner: before}})
	if p.claiming.round != nil {
		t.Fatal("the owner is alive, and the heir still claims")
	}
	for end := l.now + resendAfter; l.now < end; l.now += TickEvery {
		if tn.Now = l.now; p.Tick(tn) == Never {
			t.Fatalf("%v before the next claim no tick is wanted any more", (end - l.now).Duration())
		}
		if p.claiming.round != nil {
			t.Fatalf("it claims %v early", (end - l.now).Duration())
		}
	}
	tn.Now = l.now
	p.Tick(tn)
	if p.claiming.round == nil {
		t.Fatal("it does not claim again")
	}
	p.Step(tn, third, Message{Answer: &peer.Answer{Round: p.claiming.round.id, Role: peer.Owned, Epoch: before,
		Owner: before}})
	tn.View = view.New(self, members(self, other, third), seats{2, 0}, 3, 3)
	p.ViewChanged(tn)
	if p.Tick(tn) != Never {
		t.Error("the owner is in the view, and a tick is wanted")
	}
}

// A member that learns of a later owner ends its claim, whoever said so.
func TestALaterOwnerEndsAClaimAtOnce(t *testing.T) {
	for kind, role := range map[peer.ClaimKind]peer.Role{peer.Takeover: peer.Heir, peer.LastResort: peer.Copy} {
		l := newLab()
		p := New(l.node(self), 7)
		tn := l.turn(view.New(self, members(self, other, third), seats{2, 1}, 3, 3))
		before := peer.Epoch{Counter: 4, Instance: third}
		p.Begin(tn, Fixture{Role: role, Epoch: before, Owner: before, Heir: self})
		p.startRound(tn, kind, self, before)
		p.Step(tn, other, Message{Announce: &peer.Announce{Partition: p.id, Epoch: peer.Epoch{Counter: 9, Instance: other}}})
		l.now += claimWithin
		tn.Now = l.now
		p.Tick(tn)
		if p.role == peer.Owned {
			t.Errorf("kind %d: it decides under %v, and knows of the owner %v", kind, p.epoch, p.owner)
		}
	}
}
