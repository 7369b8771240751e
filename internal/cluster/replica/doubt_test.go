package replica

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
)

// An owner that stopped deciding for another one, which then denies that it ever owned,
// asks its heir to take over: the heir sees its owner in the view, and waits for it.
func TestTheHeirOfAnOwnerThatStoppedInVain(t *testing.T) {
	l, p, tn := closedOwner(t)
	alleged, mine := peer.Epoch{Counter: 6, Instance: third}, p.epoch
	p.onAnnounce(tn, third, peer.Announce{Partition: p.id, Epoch: alleged})
	if p.role != peer.Copy {
		t.Fatalf("it has the role %d", p.role)
	}
	l.now += doubtSlowest
	tn.Now = l.now
	p.Doubt(tn)
	tn.Reset()
	p.onAnswer(tn, third, peer.Answer{Partition: p.id, Round: p.claiming.round.id, Owner: mine, Heir: other})
	for range 3 {
		l.now += TickEvery
		tn.Now = l.now
		p.Tick(tn)
	}
	asked := 0
	for i := range tn.List {
		if e := &tn.List[i]; e.Kind == SendClaim && e.To == other && e.Claim.Kind == peer.Takeover && e.Claim.Counter == 0 &&
			e.Claim.For == other {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("its heir was asked to take over %d times, want 1", asked)
	}
}
