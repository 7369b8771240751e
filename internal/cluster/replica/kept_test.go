package replica

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// An owner whose claim this member did not grant may be a false one. A copy of an earlier epoch stays until that owner
// was in view for keepFor, whatever it says: that it has an heir, has merged what was pushed, or wants no copy.
func TestACopyIsKeptFromAnOwnerWhoseClaimWasNotGranted(t *testing.T) {
	later := peer.Epoch{Counter: 5, Instance: third}
	for name, v := range map[string]vote{
		"it granted none":                  {},
		"it granted one of a lower number": grantedTo(peer.Epoch{Counter: 4, Instance: third}),
		"it granted another one's":         grantedTo(peer.Epoch{Counter: 5, Instance: other}),
	} {
		_, p, tn := closedOwner(t)
		e := p.epoch
		p.vote = v
		p.Step(tn, third, Message{Announce: &peer.Announce{Partition: p.id, Epoch: later, Heir: other}})
		p.Step(tn, third, Message{Ack: &peer.Ack{Partition: p.id, Status: peer.Merged, Epoch: e, Owner: later}})
		p.Step(tn, third, Message{Revoke: &peer.Revoke{Partition: p.id, Epoch: later, Appointment: 1, Drop: true}})
		at := func(in limiter.Tick, want peer.Role, when string) {
			t.Helper()
			tn.Now += in
			for range 3 { // a doubt may end in between
				p.Tick(tn)
			}
			if p.role != want {
				t.Errorf("%s, %s: role %d, want %d", name, when, p.role, want)
			}
		}
		at(keepFor-1, peer.Copy, "just before")
		without := *tn
		without.View = view.New(self, members(self, other), seats{0, 1}, 3, 3)
		p.Tick(&without)
		at(1, peer.Copy, "it was out of view")
		tn.Now += keepFor
		without.Now = tn.Now
		p.Tick(&without)
		at(keepFor-1, peer.Copy, "it is back in view")
		at(1, peer.Nothing, "it was in view for long")
	}
}

// No false owner that sends no counters has a former owner drop its copy at once.
func TestAttacksOnAKeptCopy(t *testing.T) {
	liar := third
	claim := func(n uint64) Message {
		return Message{Claim: &peer.Claim{Kind: peer.Renew, Round: 1, Counter: n, For: liar}}
	}
	for name, attack := range map[string]func(p *Replica, tn *Step){
		"it claims first": func(p *Replica, tn *Step) {
			e := p.epoch
			l := peer.Epoch{Counter: e.Counter + 1, Instance: liar}
			p.Step(tn, liar, claim(l.Counter))
			p.Step(tn, liar, Message{Announce: &peer.Announce{Partition: p.id, Epoch: l, Heir: other}})
			p.Step(tn, liar, Message{Ack: &peer.Ack{Partition: p.id, Status: peer.Merged, Epoch: e, Owner: l}})
		},
		"it announces, claims, announces": func(p *Replica, tn *Step) {
			e := p.epoch
			l := peer.Epoch{Counter: e.Counter + 1, Instance: liar}
			p.Step(tn, liar, Message{Announce: &peer.Announce{Partition: p.id, Epoch: l, Heir: other}})
			p.Step(tn, liar, Message{Ack: &peer.Ack{Partition: p.id, Status: peer.Merged, Epoch: e, Owner: l}})
			l.Counter++
			p.Step(tn, liar, claim(l.Counter))
			p.Step(tn, liar, Message{Announce: &peer.Announce{Partition: p.id, Epoch: l, Heir: other}})
		},
		"an empty delta": func(p *Replica, tn *Step) {
			e := p.epoch
			l := peer.Epoch{Counter: e.Counter + 1, Instance: liar}
			p.Step(tn, liar, Message{Announce: &peer.Announce{Partition: p.id, Epoch: l, Heir: other}})
			p.Step(tn, liar, Message{Ack: &peer.Ack{Partition: p.id, Status: peer.Merged, Epoch: e, Owner: l}})
			p.Step(tn, liar, Message{Batch: &peer.Batch{Partition: p.id, Kind: peer.Delta, Epoch: l, BaseEpoch: e}})
			p.Step(tn, liar, Message{Revoke: &peer.Revoke{Partition: p.id, Epoch: l, Drop: true}})
		},
	} {
		_, p, tn := closedOwner(t)
		attack(p, tn)
		if p.role != peer.Copy {
			t.Errorf("%s: role %d, want a copy", name, p.role)
		}
	}
}

// A node that stood still for 10 s has not seen the owner for 10 s.
func TestAKeptCopyOutlastsAPause(t *testing.T) {
	_, p, tn := closedOwner(t)
	e := p.epoch
	l := peer.Epoch{Counter: e.Counter + 1, Instance: third}
	p.Step(tn, third, Message{Announce: &peer.Announce{Partition: p.id, Epoch: l, Heir: other}})
	p.Step(tn, third, Message{Ack: &peer.Ack{Partition: p.id, Status: peer.Merged, Epoch: e, Owner: l}})
	tn.Now += keepFor
	p.Late(tn)
	p.Tick(tn)
	if p.role != peer.Copy {
		t.Errorf("role %d, want a copy", p.role)
	}
}

// A disproved owner's time does not count for the earlier owner that is believed then. If that one has an heir, the
// copy is kept for it for as long, and no longer.
func TestAKeptCopyOutlastsADisprovedOwner(t *testing.T) {
	for _, heir := range []peer.Instance{0, fourth} {
		p, tn := begins(peer.Copy)
		mid := peer.Epoch{Counter: 50, Instance: third}
		p.Step(tn, third, Message{Announce: &peer.Announce{Partition: p.id, Epoch: mid}}) // has no heir yet
		later := peer.Epoch{Counter: 51, Instance: other}
		p.Step(tn, fourth, Message{Announce: &peer.Announce{Partition: p.id, Epoch: later, Heir: third}})
		tn.Now += keepFor / 2
		p.Doubt(tn)
		p.Step(tn, other, Message{Answer: &peer.Answer{Partition: p.id, Round: p.claiming.rounds, Owner: mid, Heir: heir}})
		tn.Now += keepFor - 1
		p.Tick(tn)
		if p.role != peer.Copy {
			t.Errorf("role %d, want a copy: the owner %v has the heir %v", p.role, p.owner, p.heir)
		}
		tn.Now++
		p.Tick(tn)
		if kept := p.role == peer.Copy; kept != (heir == 0) {
			t.Errorf("role %d: the owner %v has the heir %v", p.role, p.owner, p.heir)
		}
	}
}

// An owner was paused, and keeps its copy for 10 s. It leaves within that time, and so does the heir of the present
// owner, which has that one drop its copy. The owner asks whether any copy is left before it answers alone, and the one
// that leaves keeps none: or, once the owner is cut off, two would decide.
func TestASoleCopyIsTheOnlyOne(t *testing.T) {
	leaving := func(of ...peer.Instance) []peer.Member {
		all := members(of...)
		for i := range all {
			if all[i].Instance != third {
				all[i].State = peer.Leaving
			}
		}
		return all
	}
	l, p, tn := closedOwner(t)
	before, e := p.epoch, peer.Epoch{Counter: 5, Instance: third}
	p.Step(tn, third, Message{Announce: &peer.Announce{Partition: p.id, Epoch: e, Heir: other}})
	p.Step(tn, third, Message{Ack: &peer.Ack{Partition: p.id, Status: peer.Merged, Epoch: before, Owner: e}})

	owner := New(l.node(third), p.id)
	o := l.turn(view.New(third, leaving(self, other, third), seats{0, 0}, 3, 3))
	owner.Begin(o, Fixture{Role: peer.Owned, Epoch: e, Owner: e, Heir: other})
	owner.ViewChanged(o)
	owner.Step(o, other, Message{Ack: &peer.Ack{Partition: p.id, Status: peer.Revoked, Epoch: e, Appointment: 1,
		Owner: e}})
	alone := owner.own.isolated(o)

	tn.State = peer.Leaving
	p.Tick(tn) // it leaves before others hear of it
	l.left[third] = l.now
	tn.Now += GoneAfter + limiter.Second
	tn.View = view.New(self, leaving(self, other), seats{0, 1}, 3, 3)
	p.ViewChanged(tn)
	for range 30 {
		if r := p.claiming.round; r != nil {
			a := peer.Answer{Partition: p.id, Round: r.id, Owner: e}
			if r.kind != peer.Ask {
				a.Granted, a.Owner = true, peer.Epoch{Counter: r.counter, Instance: self}
				if !r.granted {
					a.Owner = e
				}
			}
			p.Step(tn, other, Message{Answer: &a})
		}
		tn.Now += 50 * limiter.Millisecond
		p.Tick(tn)
	}
	if alone {
		t.Errorf("third answers alone before it has asked the others for copies")
	}
	if p.role == peer.Owned {
		t.Errorf("self decides under %v with a copy that it kept, beside third under %v", p.epoch, owner.epoch)
	}
}
