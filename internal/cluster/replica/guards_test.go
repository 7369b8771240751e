package replica

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Each test here tries what a step does when everything is as it must be, and then with each of its conditions not met,
// one at a time. "as it must be" is the name of the former.

// tried is a replica and the message that it is about to get.
type tried struct {
	p  *Replica
	tn *Step
	b  peer.Batch
	c  peer.Claim
}

// guards runs a step once for each of some changes, and fails unless exactly those do it that should.
func guards(t *testing.T, begin func() *tried, changes map[string]func(x *tried), does func(x *tried) bool,
	all ...string) {
	t.Helper()
	changes["as it must be"] = func(*tried) {}
	also := map[string]bool{"as it must be": true}
	for _, name := range all {
		also[name] = true
	}
	for name, change := range changes {
		x := begin()
		change(x)
		if did := does(x); did != also[name] {
			t.Errorf("%s: it does it %t, want %t", name, did, also[name])
		}
	}
}

// viewOf returns a view of three members, or of this one and some others.
func viewOf(ring seats, others ...peer.Instance) *view.View {
	if others == nil {
		others = []peer.Instance{other, third}
	}
	return view.New(self, members(append([]peer.Instance{self}, others...)...), ring, 3, 3)
}

// voteOf returns the vote of a member that granted another's claim.
func voteOf(counter uint64) vote { return vote{counter, fourth, fourth, peer.Renew} }

// grantedTo returns the vote for an epoch that a member took over.
func grantedTo(e peer.Epoch) vote { return vote{e.Counter, e.Instance, e.Instance, peer.Takeover} }

// A member becomes heir only by an appointment that it can keep.
func TestWhoAcceptsAnAppointment(t *testing.T) {
	e := ownedBy(third)
	guards(t, func() *tried {
		p, tn := begins(peer.Copy)
		p.seq = 5
		return &tried{p: p, tn: tn, b: peer.Batch{Partition: p.id, Kind: peer.Delta, Epoch: e, BaseEpoch: e, Base: 5, Seq: 5,
			Appointment: 3, Appointed: 5}}
	}, map[string]func(x *tried){
		"it is fresh":                     func(x *tried) { x.p.fresh = true },
		"it is not active":                func(x *tried) { x.tn.State = peer.Joining },
		"it has granted a later claim":    func(x *tried) { x.p.vote = voteOf(e.Counter + 1) },
		"it has granted an earlier one":   func(x *tried) { x.p.vote = voteOf(e.Counter) },
		"that appointment was revoked":    func(x *tried) { x.p.revoked, x.p.revokedN = e, 3 },
		"a later appointment was revoked": func(x *tried) { x.p.revoked, x.p.revokedN = e, 4 },
		"an earlier one was revoked":      func(x *tried) { x.p.revoked, x.p.revokedN = e, 2 },
		"one of another epoch was revoked": func(x *tried) {
			x.p.revoked, x.p.revokedN = peer.Epoch{Counter: 3, Instance: third}, 9
		},
		"it lacks changes":          func(x *tried) { x.b.Appointed = 6 },
		"it is heir by a later one": func(x *tried) { x.p.role, x.p.appointment = peer.Heir, 4 },
		"it is heir by this one, and has granted a later claim": func(x *tried) {
			x.p.role, x.p.appointment, x.p.vote = peer.Heir, 3, voteOf(9)
		},
	}, func(x *tried) bool {
		x.p.Step(x.tn, third, Message{Batch: &x.b})
		return x.p.role == peer.Heir && x.p.appointment == 3
	}, "it has granted an earlier one", "an earlier one was revoked", "one of another epoch was revoked",
		"it is heir by this one, and has granted a later claim")
}

// A member is no heir any more once the appointment that it has is revoked.
func TestWhatARevocationEnds(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Heir)
		p.appointment = 2
		return &tried{p: p, tn: tn, b: peer.Batch{Epoch: ownedBy(third), Appointment: 2}}
	}, map[string]func(x *tried){
		"it was appointed again":      func(x *tried) { x.p.appointment = 3 },
		"a later one is revoked, too": func(x *tried) { x.b.Appointment = 3 },
		"it is of an earlier epoch":   func(x *tried) { x.b.Epoch.Counter-- },
	}, func(x *tried) bool {
		x.p.Step(x.tn, third, Message{Revoke: &peer.Revoke{Partition: x.p.id, Epoch: x.b.Epoch,
			Appointment: x.b.Appointment}})
		return x.p.role != peer.Heir
	}, "a later one is revoked, too")
}

// A member drops its copy if the owner says so, unless it has what the owner lacks.
func TestWhoDropsItsCopy(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Copy)
		p.vote = grantedTo(ownedBy(third))
		return &tried{p: p, tn: tn, b: peer.Batch{First: true}}
	}, map[string]func(x *tried){
		"it is not told to":    func(x *tried) { x.b.First = false },
		"it must push":         func(x *tried) { x.p.pushing.unpushed = true },
		"it is heir by now":    func(x *tried) { x.p.role, x.p.appointment = peer.Heir, 9 },
		"its copy is a former": func(x *tried) { x.p.epoch.Counter-- },
	}, func(x *tried) bool {
		x.p.Step(x.tn, third, Message{Revoke: &peer.Revoke{Partition: x.p.id, Epoch: ownedBy(third), Appointment: 1,
			Drop: x.b.First}})
		return x.p.role == peer.Nothing
	}, "its copy is a former")
}

// A handover is taken by the member that it is for, if that promised no other.
func TestWhoTakesAHandover(t *testing.T) {
	e := ownedBy(third)
	guards(t, func() *tried {
		p, tn := begins(peer.Heir)
		p.seq, p.vote = 2, vote{5, third, self, peer.Transfer}
		return &tried{p: p, tn: tn, b: peer.Batch{Partition: p.id, Kind: peer.Handover, Epoch: e, BaseEpoch: e, Base: 2,
			Seq: 2, Next: peer.Epoch{Counter: 5, Instance: self}}}
	}, map[string]func(x *tried){
		"it is for another":                    func(x *tried) { x.b.Next.Instance = other },
		"it is fresh":                          func(x *tried) { x.p.fresh = true },
		"it has granted a later claim":         func(x *tried) { x.p.vote = voteOf(6) },
		"it knows a later owner":               func(x *tried) { x.p.owner = peer.Epoch{Counter: 6, Instance: other} },
		"it knows that owner":                  func(x *tried) { x.p.owner = x.b.Next },
		"it is none any more":                  func(x *tried) { x.p.role, x.p.appointment = peer.Copy, 0 },
		"it lacks changes":                     func(x *tried) { x.p.seq = 1 },
		"it has what came after the handover":  func(x *tried) { x.p.seq = 3 },
		"it claims the partition for a moment": func(x *tried) { x.p.takeOver(x.tn) },
	}, func(x *tried) bool {
		x.p.receive(x.tn, third, &x.b)
		return x.p.role == peer.Owned && x.p.epoch == x.b.Next
	}, "it claims the partition for a moment")
}

// A former owner keeps what it decided until the present one has merged that.
func TestWhenAPushIsMerged(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Copy)
		p.epoch = peer.Epoch{Counter: 3, Instance: self}
		p.pushing.unpushed, p.pushing.pushedTo = true, third
		return &tried{p: p, tn: tn, b: peer.Batch{Epoch: p.epoch}, c: peer.Claim{For: third}}
	}, map[string]func(x *tried){
		"another member says so":     func(x *tried) { x.c.For = other },
		"what it pushed was another": func(x *tried) { x.b.Epoch.Counter-- },
	}, func(x *tried) bool {
		x.p.Step(x.tn, x.c.For, Message{Ack: &peer.Ack{Partition: x.p.id, Status: peer.Merged, Epoch: x.b.Epoch,
			Owner: x.p.owner}})
		return !x.p.pushing.unpushed
	})
}

// A push is merged whole and in order, each sender's apart.
func TestThePartsOfAPush(t *testing.T) {
	part := func(base uint64, last bool) peer.Batch {
		return peer.Batch{Kind: peer.Push, Epoch: peer.Epoch{Counter: 3, Instance: other}, Base: base, First: base == 0,
			Last: last}
	}
	type sent struct {
		from peer.Instance
		part peer.Batch
	}
	for name, one := range map[string]struct {
		sent   []sent
		merged bool
	}{
		"whole":                    {[]sent{{other, part(0, false)}, {other, part(1, true)}}, true},
		"the first is lost":        {[]sent{{other, part(1, true)}}, false},
		"one is lost":              {[]sent{{other, part(0, false)}, {other, part(2, true)}}, false},
		"of two senders":           {[]sent{{other, part(0, false)}, {third, part(1, true)}}, false},
		"of two senders, in turns": {[]sent{{other, part(0, false)}, {third, part(0, false)}, {other, part(1, true)}}, false},
		"begun anew":               {[]sent{{other, part(0, false)}, {other, part(0, false)}, {other, part(1, true)}}, true},
	} {
		_, p, tn := closedOwner(t)
		tn.Reset()
		for i := range one.sent {
			one.sent[i].part.Partition = p.id
			p.Step(tn, one.sent[i].from, Message{Batch: &one.sent[i].part})
		}
		if merged := len(merges(tn)) > 0; merged != one.merged {
			t.Errorf("%s: merged %t, want %t", name, merged, one.merged)
		}
	}
}

// merges returns the acknowledgements that a push was merged.
func merges(tn *Step) (out []Effect) {
	for _, e := range sent(tn, SendAck) {
		if e.Ack.Status == peer.Merged {
			out = append(out, e)
		}
	}
	return out
}

// A claim is granted once, above all owners and grants, and an owner grants nothing that would overtake it.
func TestWhatIsGranted(t *testing.T) {
	claims := func(role peer.Role) func() *tried {
		return func() *tried {
			p, tn := begins(peer.Copy)
			if role >= peer.Sealed {
				_, p, tn = closedOwner(t)
				p.role = role
			}
			p.vote = voteOf(6)
			return &tried{p: p, tn: tn, c: peer.Claim{Partition: p.id, Kind: peer.Renew, Counter: 9, For: other}}
		}
	}
	granted := func(x *tried) bool {
		x.tn.Reset()
		x.p.Step(x.tn, other, Message{Claim: &x.c})
		return sent(x.tn, SendAnswer)[0].Answer.Granted
	}
	changes := func() map[string]func(x *tried) {
		return map[string]func(x *tried){
			"it is fresh":                            func(x *tried) { x.p.fresh = true },
			"it is a question":                       func(x *tried) { x.c.Counter = 0 },
			"it has granted as much":                 func(x *tried) { x.p.vote = voteOf(9) },
			"it has granted as much to this one":     func(x *tried) { x.p.vote = vote{9, other, other, peer.Renew} },
			"it knows such an owner":                 func(x *tried) { x.p.owner = peer.Epoch{Counter: 9, Instance: third} },
			"it knows a later owner":                 func(x *tried) { x.p.owner = peer.Epoch{Counter: 10, Instance: third} },
			"the heir takes over":                    func(x *tried) { x.c.Kind = peer.Takeover },
			"it is the last resort":                  func(x *tried) { x.c.Kind = peer.LastResort },
			"it hands over":                          func(x *tried) { x.c.Kind = peer.Transfer },
			"it takes back what it has handed over":  func(x *tried) { x.c.Kind = peer.Reopen },
			"it has granted more, but to this claim": func(x *tried) { x.p.vote = vote{10, other, other, peer.Renew} },
		}
	}
	guards(t, claims(peer.Copy), changes(), granted,
		"it has granted as much to this one", "the heir takes over", "it is the last resort", "it hands over",
		"it takes back what it has handed over")
	for _, role := range []peer.Role{peer.Owned, peer.Sealed} {
		guards(t, claims(role), changes(), granted, "it has granted as much to this one", "it hands over",
			"it takes back what it has handed over")
	}
}

// A takeover ends for what its owner had granted since, of a closed partition only.
func TestWhatEndsATakeover(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Heir)
		return &tried{p: p, tn: tn, c: peer.Claim{Kind: peer.Takeover, Counter: 5, For: third}}
	}, map[string]func(x *tried){
		"the partition is available": func(x *tried) { x.p.closed = false },
		"it is no takeover":          func(x *tried) { x.c.Kind = peer.LastResort },
		"it was granted before":      func(x *tried) { x.c.Counter = 4 },
		"it was granted for this one": func(x *tried) {
			x.c.For = self
		},
	}, func(x *tried) bool {
		return x.p.supersedes(&claimRound{kind: x.c.Kind},
			&answer{Answer: peer.Answer{Grant: x.c.Counter, GrantKind: peer.Renew, GrantFor: x.c.For}, has: true})
	})
}

// An heir that a caller asks takes over, unless it must not, or claims or asks already.
func TestWhenAnHeirIsAskedToTakeOver(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Heir)
		return &tried{p: p, tn: tn}
	}, map[string]func(x *tried){
		"it is fresh":                      func(x *tried) { x.p.fresh = true },
		"its owner was alive a moment ago": func(x *tried) { x.p.claiming.quiet = x.tn.Now + 1 },
		"it asks something":                func(x *tried) { x.p.claiming.round = &claimRound{kind: peer.Ask} },
		"it takes over":                    func(x *tried) { x.p.takeOver(x.tn) },
	}, func(x *tried) bool { return x.p.TakesOver(x.tn) }, "it takes over")
}

// An heir takes over for its owner that lost its state, and for nobody else.
func TestWhoUrgesAnHeir(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Heir)
		return &tried{p: p, tn: tn, b: peer.Batch{Next: ownedBy(third)},
			c: peer.Claim{Partition: p.id, Kind: peer.Takeover, For: self}}
	}, map[string]func(x *tried){
		"it is fresh":                      func(x *tried) { x.p.fresh = true },
		"it is no heir":                    func(x *tried) { x.p.role, x.p.appointment = peer.Copy, 0 },
		"another member asks":              func(x *tried) { x.b.Next.Instance = other },
		"another member is meant":          func(x *tried) { x.c.For = other },
		"it is a claim":                    func(x *tried) { x.c.Counter = 9 },
		"it is another question":           func(x *tried) { x.c.Kind = peer.Ask },
		"its owner was alive a moment ago": func(x *tried) { x.p.claiming.quiet = x.tn.Now + 1 },
		"it claims something":              func(x *tried) { x.p.startRound(x.tn, peer.Renew, self, x.p.epoch) },
		"it asks something":                func(x *tried) { x.p.claiming.round = &claimRound{kind: peer.Ask} },
	}, func(x *tried) bool {
		x.p.Step(x.tn, x.b.Next.Instance, Message{Claim: &x.c})
		return x.p.claiming.round != nil && x.p.claiming.round.kind == peer.Takeover
	}, "it asks something")
}

// The member with the best copy claims the last resort when the one that the ring names asks it to.
func TestWhoIsNominated(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Copy)
		return &tried{p: p, tn: tn, c: peer.Claim{Partition: p.id, Kind: peer.LastResort, For: self}}
	}, map[string]func(x *tried){
		"it is fresh":             func(x *tried) { x.p.fresh = true },
		"it has no copy":          func(x *tried) { x.p.role = peer.Nothing },
		"it is heir":              func(x *tried) { x.p.role, x.p.appointment = peer.Heir, 1 },
		"another member is meant": func(x *tried) { x.c.For = other },
		"it is a claim":           func(x *tried) { x.c.Counter = 9 },
		"it is another question":  func(x *tried) { x.c.Kind = peer.Ask },
		"it claims something":     func(x *tried) { x.p.startRound(x.tn, peer.Renew, self, x.p.epoch) },
		"it asks something":       func(x *tried) { x.p.claiming.round = &claimRound{kind: peer.Ask} },
		"it has given up":         func(x *tried) { x.p.breakage.givenUp = true },
	}, func(x *tried) bool {
		x.p.Step(x.tn, third, Message{Claim: &x.c})
		return x.p.claiming.round != nil && x.p.claiming.round.kind == peer.LastResort
	}, "it asks something")
}

// An owner that is said to exist is doubted by who holds nothing of its own and asks nothing else.
func TestWhoDoubts(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Copy)
		return &tried{p: p, tn: tn}
	}, map[string]func(x *tried){
		"it has given up":      func(x *tried) { x.p.breakage.givenUp = true },
		"it asks something":    func(x *tried) { x.p.claiming.round = &claimRound{kind: peer.Ask} },
		"it is heir":           func(x *tried) { x.p.role = peer.Heir },
		"it is fresh":          func(x *tried) { x.p.fresh = true },
		"no owner is known":    func(x *tried) { x.p.owner = peer.Epoch{} },
		"it was the owner":     func(x *tried) { x.p.owner.Instance = self },
		"it doubted it before": func(x *tried) { x.p.Doubt(x.tn); x.p.claiming.round = nil },
	}, func(x *tried) bool {
		x.p.Doubt(x.tn)
		return x.p.claiming.round != nil && x.p.claiming.round.doubts.Instance != 0
	})
}

// An owner is without a standby only if nothing will make one or says that none is possible.
func TestWhoHasNoStandby(t *testing.T) {
	guards(t, func() *tried {
		_, p, tn := closedOwner(t)
		p.own.heir = nil
		return &tried{p: p, tn: tn}
	}, map[string]func(x *tried){
		"the partition is available": func(x *tried) { x.p.own.closed = false },
		"no other member has a copy": func(x *tried) { x.p.own.soleCopy = true },
		"it has an heir":             func(x *tried) { x.p.own.heir = &target{to: other} },
		"one is to become heir":      func(x *tried) { x.p.own.next = &target{to: other} },
		"it must claim a new epoch":  func(x *tried) { x.p.own.renew = true },
	}, func(x *tried) bool { return x.p.own.noStandby() })
}

// An owner answers without an heir only if none is, was or will be there.
func TestWhoIsIsolated(t *testing.T) {
	guards(t, func() *tried {
		_, p, tn := closedOwner(t)
		p.own.heir, p.own.soleCopy = nil, true
		return &tried{p: p, tn: tn}
	}, map[string]func(x *tried){
		"another may have a copy":            func(x *tried) { x.p.own.soleCopy = false },
		"it has an heir":                     func(x *tried) { x.p.own.heir = &target{to: other} },
		"its heir has not said that it ends": func(x *tried) { x.p.own.revoking = true },
		"it must claim a new epoch":          func(x *tried) { x.p.own.renew = true },
	}, func(x *tried) bool { return x.p.own.isolated(x.tn) })
}

// A receiver leaves to its giver what that may have executed, for a while and while it can answer.
func TestWhenTheGiverAnswers(t *testing.T) {
	const within = 300 * limiter.Millisecond
	guards(t, func() *tried {
		_, p, tn := closedOwner(t)
		p.own.from.giver, p.own.from.since = other, tn.Now
		return &tried{p: p, tn: tn}
	}, map[string]func(x *tried){
		"nobody handed over":     func(x *tried) { x.p.own.from.giver = 0 },
		"it was too long ago":    func(x *tried) { x.tn.Now += within },
		"it is not long ago":     func(x *tried) { x.tn.Now += within - 1 },
		"it cannot be reached":   func(x *tried) { x.p.node.Peers.(*lab).down = []peer.Instance{other} },
		"another is not reached": func(x *tried) { x.p.node.Peers.(*lab).down = []peer.Instance{third} },
	}, func(x *tried) bool { return x.p.GiverAnswers(x.tn, within) }, "it is not long ago", "another is not reached")
}

// A handover goes on only while its receiver can take it.
func TestWhenATransferIsWanted(t *testing.T) {
	guards(t, func() *tried {
		_, p, tn := closedOwner(t)
		tn.View = viewOf(seats{1, 0})
		return &tried{p: p, tn: tn, c: peer.Claim{For: other}}
	}, map[string]func(x *tried){
		"it owns no more":                      func(x *tried) { x.p.disown() },
		"it has no heir":                       func(x *tried) { x.p.own.heir = nil },
		"another is heir":                      func(x *tried) { x.p.own.heir.to = third },
		"it must claim a new epoch":            func(x *tried) { x.p.own.renew = true },
		"the ring names another":               func(x *tried) { x.tn.View = viewOf(seats{2, 0}) },
		"its receiver is not in view any more": func(x *tried) { x.tn.View = viewOf(seats{1, 0}, third) },
	}, func(x *tried) bool { return (&claimRound{kind: peer.Transfer, owner: x.c.For}).hands(x.tn, x.p) })
}

// A batch applies to the state that it builds on, and once.
func TestWhatABatchBuildsOn(t *testing.T) {
	e, earlier := ownedBy(third), peer.Epoch{Counter: 3, Instance: third}
	guards(t, func() *tried {
		p, tn := begins(peer.Copy)
		p.seq = 5
		return &tried{p: p, tn: tn, b: peer.Batch{Partition: p.id, Kind: peer.Delta, Epoch: e, BaseEpoch: e, Base: 5, Seq: 6}}
	}, map[string]func(x *tried){
		"it has no copy":                       func(x *tried) { x.p.role = peer.Nothing },
		"its copy is of another epoch":         func(x *tried) { x.p.epoch.Counter = 2; x.b.BaseEpoch = earlier },
		"its copy is what it builds on":        func(x *tried) { x.p.epoch, x.b.BaseEpoch = earlier, earlier },
		"its copy is of the epoch since":       func(x *tried) { x.b.BaseEpoch = earlier },
		"it lacks a batch":                     func(x *tried) { x.p.seq = 4 },
		"it has more than the batch builds on": func(x *tried) { x.b.Base = 4 },
	}, func(x *tried) bool { return x.p.apply(x.tn, Message{Batch: &x.b}) && x.p.seq == 6 && x.p.epoch == e },
		"its copy is what it builds on", "its copy is of the epoch since", "it has more than the batch builds on")
}

// A revocation that comes twice, or late by a relay, ends no appointment after the one that it is of. Otherwise the
// owner would appoint a second heir, while the first can take over.
func TestALateRevocationEndsNoLaterAppointment(t *testing.T) {
	for n, ends := range map[uint32]bool{1: false, 2: false, 3: true, 4: true} {
		_, p, tn := closedOwner(t)
		p.own.appointing, p.own.heir.appointment = 3, 3
		p.Step(tn, other, Message{Ack: &peer.Ack{Partition: p.id, Status: peer.Revoked, Epoch: p.epoch, Appointment: n,
			Owner: p.owner}})
		if ended := p.own.heir == nil; ended != ends {
			t.Errorf("a revocation up to appointment %d of 3: it ends the heir's %t, want %t", n, ended, ends)
		}
	}
	_, p, tn := closedOwner(t)
	p.Step(tn, third, Message{Ack: &peer.Ack{Partition: p.id, Status: peer.Revoked, Epoch: p.epoch, Appointment: 1,
		Owner: p.owner}})
	if p.own.heir == nil {
		t.Error("a revocation of another member ends the heir's appointment")
	}
}

// What was acknowledged under an earlier epoch makes no member heir, releases nothing and is not copied, whatever
// number of an appointment it has: the numbers begin anew with each epoch.
func TestAnAcknowledgementOfAnEarlierEpoch(t *testing.T) {
	for name, one := range map[string]struct {
		epoch uint64
		heir  bool
	}{"of this epoch": {4, true}, "of an earlier one": {3, false}} {
		_, p, tn := closedOwner(t)
		p.seq = 5
		p.own.heir, p.own.appointing = nil, 1
		p.own.next = &target{to: third, base: p.epoch, begun: true, whole: true, sent: 5, appointment: 1, appointed: 5}
		p.Step(tn, third, Message{Ack: &peer.Ack{
			Partition: p.id, Status: peer.Acked, Epoch: peer.Epoch{Counter: one.epoch, Instance: self}, Appointment: 1, Seq: 5,
			Owner: p.owner,
		}})
		if heir := p.own.heir != nil; heir != one.heir || p.own.next != nil && p.own.next.acked != 0 {
			t.Errorf("an acknowledgement %s: it is heir %t, want %t; next: %+v", name, heir, one.heir, p.own.next)
		}
	}
}

// A fresh member of a closed partition votes once more than half of the others that count have told what they
// recorded, or all of them if they are fewer; of an available one, once all in its view have.
func TestHowManyInformAFreshMember(t *testing.T) {
	for _, one := range []struct {
		partition, count, seen, answered int
		informed                         bool
	}{
		{table.Partitions, 5, 5, 2, false}, {table.Partitions, 5, 5, 3, true},
		{table.Partitions, 5, 3, 2, false}, // it does not see the majority
		{table.Partitions, 4, 4, 2, false}, {table.Partitions, 4, 4, 3, true},
		{table.Partitions, 3, 3, 1, false}, {table.Partitions, 3, 3, 2, true},
		{table.Partitions, 2, 2, 0, false}, {table.Partitions, 2, 2, 1, true},
		{table.Partitions, 1, 1, 0, true},
		{0, 5, 5, 3, false}, {0, 5, 5, 4, true},
		{0, 5, 3, 1, false}, {0, 5, 3, 2, true},
		{0, 3, 1, 0, true},
	} {
		l := newLab()
		p := New(l.node(self), uint16(one.partition+7))
		all := members(self, other, third, fourth, fourth+1)
		tn := l.turn(view.New(self, all[:one.seen], seats{1, 0}, one.count, one.count))
		if one.seen == 1 {
			tn.View = view.New(self, all[:1], seats{0, 0}, one.count, one.count)
		}
		p.ViewChanged(tn)
		for _, m := range all[1 : 1+one.answered] {
			if r := p.claiming.round; r != nil {
				p.onAnswer(tn, m.Instance, peer.Answer{Partition: p.id, Round: r.id})
			}
		}
		if p.fresh == one.informed {
			t.Errorf("partition %d, %d count, %d are seen, %d have answered: fresh %t", p.id, one.count, one.seen, one.answered,
				p.fresh)
		}
	}
}

// An answer of a member that is not in the view any more informs nobody: it may have started anew, and forgotten.
func TestOnlyMembersInViewInform(t *testing.T) {
	l := newLab()
	p := New(l.node(self), table.Partitions+7)
	tn := l.turn(view.New(self, members(self, other, third, fourth), seats{1, 0}, 4, 4))
	p.ViewChanged(tn)
	answer := func(i peer.Instance) { p.onAnswer(tn, i, peer.Answer{Partition: p.id, Round: p.claiming.round.id}) }
	answer(other)
	answer(third)
	tn.View = view.New(self, members(self, third, fourth), seats{1, 0}, 4, 4)
	p.ViewChanged(tn)
	if answer(fourth); !p.fresh {
		t.Error("two of four, and one that is gone, have informed it")
	}
}
