package replica

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// What members say is believed as far as they can know it. The tests have the form of those in guards_test.go.

// Who is heir is said by the owner. What others say counts only where no heir is known.
func TestWhoNamesAnHeir(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Copy)
		return &tried{p: p, tn: tn, c: peer.Claim{For: third},
			b: peer.Batch{Epoch: ownedBy(third), Next: peer.Epoch{Instance: fourth}}}
	}, map[string]func(x *tried){
		"another member says so":                          func(x *tried) { x.c.For = other },
		"another says so, and none is known":              func(x *tried) { x.c.For, x.p.heir = other, 0 },
		"it has none":                                     func(x *tried) { x.b.Next.Instance = 0 },
		"it was the owner before":                         func(x *tried) { x.b.Epoch.Counter-- },
		"it owns the partition, and another names itself": func(x *tried) { x.p.role = peer.Sealed },
	}, func(x *tried) bool {
		x.p.Step(x.tn, x.c.For, Message{Announce: &peer.Announce{Partition: x.p.id, Epoch: x.b.Epoch,
			Heir: x.b.Next.Instance}})
		return x.p.heir == fourth
	}, "another says so, and none is known")
}

// An owner is doubted if a member denies that it is, and names one of before. Who names the same owner is no reason to.
func TestWhatIsDoubtedOfAReply(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Copy)
		return &tried{p: p, tn: tn, b: peer.Batch{Epoch: peer.Epoch{Counter: 3, Instance: other}, First: true}}
	}, map[string]func(x *tried){
		"it names the same owner":       func(x *tried) { x.b.Epoch = ownedBy(third) },
		"it names a later one":          func(x *tried) { x.b.Epoch.Counter = 5 },
		"it says nothing of that owner": func(x *tried) { x.b.First = false },
	}, func(x *tried) bool {
		x.p.Learn(x.tn, x.b.Epoch, x.b.First)
		return x.p.claiming.round != nil && x.p.claiming.round.doubts.Instance != 0
	})
}

// A node claims a new epoch if a member knows a later one of its, unless it owns nothing, or hands over.
func TestWhoRenewsForALaterEpoch(t *testing.T) {
	guards(t, func() *tried {
		_, p, tn := closedOwner(t)
		return &tried{p: p, tn: tn, b: peer.Batch{Epoch: peer.Epoch{Counter: 9, Instance: self}}}
	}, map[string]func(x *tried){
		"it owns nothing":    func(x *tried) { x.p.disown(); x.p.role = peer.Copy },
		"it is of another":   func(x *tried) { x.b.Epoch = peer.Epoch{Counter: 3, Instance: other} },
		"it is no later one": func(x *tried) { x.b.Epoch = x.p.epoch },
		"it hands over": func(x *tried) {
			x.p.own.handover = &handover{next: peer.Epoch{Counter: 5, Instance: other}}
		},
		"it is of a member no heir": func(x *tried) { x.c.For = third },
	}, func(x *tried) bool {
		from := x.c.For
		if from == 0 {
			from = other
		}
		x.p.Step(x.tn, from, Message{Ack: &peer.Ack{Partition: x.p.id, Status: peer.Fenced, Epoch: x.p.epoch,
			Owner: x.b.Epoch}})
		return x.p.own != nil && x.p.own.renew && x.p.top >= 9
	}, "it is of a member no heir")
}

// A handover that its receiver refuses is taken back. What another member acknowledges of this epoch takes nothing
// back.
func TestWhoRefusesAHandover(t *testing.T) {
	guards(t, func() *tried {
		_, p, tn := closedOwner(t)
		p.role, p.own.handover = peer.Sealed, &handover{next: peer.Epoch{Counter: 5, Instance: other}, seq: p.seq}
		return &tried{p: p, tn: tn, c: peer.Claim{For: other}, b: peer.Batch{Epoch: p.epoch}}
	}, map[string]func(x *tried){
		"another member answers":    func(x *tried) { x.c.For = third },
		"nothing was handed over":   func(x *tried) { x.p.role, x.p.own.handover = peer.Owned, nil },
		"it is of an earlier epoch": func(x *tried) { x.b.Epoch.Counter-- },
		"it takes it back already": func(x *tried) {
			x.p.startRound(x.tn, peer.Reopen, self, x.p.epoch)
			x.p.claiming.round.id = 99
		},
		"it asks another for a vote": func(x *tried) { x.p.claiming.round = &claimRound{kind: peer.Ask} },
	}, func(x *tried) bool {
		x.p.Step(x.tn, x.c.For, Message{Ack: &peer.Ack{Partition: x.p.id, Status: peer.Gap, Epoch: x.b.Epoch,
			Owner: x.p.owner}})
		return x.p.claiming.round != nil && x.p.claiming.round.kind == peer.Reopen && x.p.claiming.round.id != 99
	})
}

// A giver that hears of a later owner has handed over to that one only if it is its receiver. Otherwise it was fenced,
// and pushes what it has.
func TestWhoConfirmsAHandover(t *testing.T) {
	guards(t, func() *tried {
		_, p, tn := closedOwner(t)
		p.role, p.own.handover = peer.Sealed, &handover{next: peer.Epoch{Counter: 5, Instance: other}, seq: p.seq}
		return &tried{p: p, tn: tn, b: peer.Batch{Epoch: p.own.handover.next}}
	}, map[string]func(x *tried){
		"another owns":             func(x *tried) { x.b.Epoch.Instance = third },
		"it owns by a later claim": func(x *tried) { x.b.Epoch.Counter = 6 },
		"nothing was handed over":  func(x *tried) { x.p.role, x.p.own.handover = peer.Owned, nil },
	}, func(x *tried) bool {
		x.p.Step(x.tn, x.b.Epoch.Instance, Message{Announce: &peer.Announce{Partition: x.p.id, Epoch: x.b.Epoch}})
		if x.p.own != nil || x.p.role >= peer.Sealed {
			t.Errorf("it still owns")
		}
		return !x.p.pushing.unpushed && x.p.role == peer.Heir
	})
}

// A last resort ends if a member holds a later state than this node. A takeover goes on: what an heir lacks was not
// answered.
func TestWhatEndsALastResort(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Heir)
		p.seq = 5
		p.startRound(tn, peer.LastResort, self, p.owner)
		return &tried{p: p, tn: tn, c: peer.Claim{Counter: 6}, b: peer.Batch{Epoch: p.epoch}}
	}, map[string]func(x *tried){
		"it takes over":                func(x *tried) { x.p.claiming.round.kind = peer.Takeover },
		"the other holds as much":      func(x *tried) { x.c.Counter = 5 },
		"the other holds an older one": func(x *tried) { x.b.Epoch.Counter-- },
	}, func(x *tried) bool {
		r := x.p.claiming.round
		x.p.onAnswer(x.tn, other, peer.Answer{
			Partition: x.p.id, Round: r.id, Role: peer.Copy, Epoch: x.b.Epoch, Seq: x.c.Counter, Owner: x.p.owner, Granted: true,
		})
		return x.p.claiming.round != r
	})
}

// An owner that denies its ownership names the one of before. What this node itself owned later stays known.
func TestWhatIsKnownOnceAnOwnerIsDisproved(t *testing.T) {
	mine := peer.Epoch{Counter: 3, Instance: self}
	for name, x := range map[string]struct {
		named, want peer.Epoch
		heir        peer.Instance
	}{
		"one of before what this node owned": {peer.Epoch{Counter: 2, Instance: other}, mine, 0},
		"one of after that": {peer.Epoch{Counter: 3, Instance: fourth},
			peer.Epoch{Counter: 3, Instance: fourth}, other},
		"what this node owned":       {mine, mine, other},
		"another epoch of this node": {peer.Epoch{Counter: 9, Instance: self}, mine, 0},
	} {
		p, tn := begins(peer.Copy)
		p.mine = mine
		p.disprove(tn, x.named, other)
		if p.owner != x.want || p.heir != x.heir {
			t.Errorf("it names %s: the owner is %v and the heir %v, want %v and %v", name, p.owner, p.heir, x.want, x.heir)
		}
	}
}

// A last resort in place of an owner ends if that has an heir, of a closed partition only: an available one takes what
// there is.
func TestALastResortBesideAnHeir(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Heir)
		p.seq = 5
		p.startRound(tn, peer.LastResort, self, p.owner)
		return &tried{p: p, tn: tn, b: peer.Batch{Epoch: p.epoch, Seq: 5}}
	}, map[string]func(x *tried){
		"the partition is available":    func(x *tried) { x.p.closed = false },
		"it replaces no owner":          func(x *tried) { x.p.claiming.round.base = peer.Epoch{} },
		"it continues its own":          func(x *tried) { x.p.claiming.round.base.Instance = self },
		"the claim was granted already": func(x *tried) { x.p.claiming.round.granted = true },
	}, func(x *tried) bool {
		r := x.p.claiming.round
		x.p.onAnswer(x.tn, other, peer.Answer{
			Partition: x.p.id, Round: r.id, Role: peer.Heir, Epoch: x.b.Epoch, Seq: x.b.Seq, Owner: x.p.owner, Granted: true,
		})
		return x.p.claiming.round != r && x.p.role != peer.Owned
	})
}

// The number of a revocation counts within its epoch: numbers begin anew with each.
func TestTheLatestRevocationIsKept(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Copy)
		p.revoked, p.revokedN = peer.Epoch{Counter: 3, Instance: third}, 9
		return &tried{p: p, tn: tn, b: peer.Batch{Epoch: ownedBy(third), Appointment: 2}}
	}, map[string]func(x *tried){
		"a later one of that epoch is known":    func(x *tried) { x.p.revoked, x.p.revokedN = ownedBy(third), 3 },
		"an earlier one of that epoch is known": func(x *tried) { x.p.revoked, x.p.revokedN = ownedBy(third), 1 },
	}, func(x *tried) bool {
		x.p.onRevoke(x.tn, third, peer.Revoke{Partition: x.p.id, Epoch: x.b.Epoch, Appointment: x.b.Appointment})
		return x.p.revoked == x.b.Epoch && x.p.revokedN == 2
	}, "an earlier one of that epoch is known")
}

// A takeover that is not recorded anywhere pledges nothing, as long as it is what this node granted last.
func TestWhatATakeoverPledges(t *testing.T) {
	before := voteOf(3)
	guards(t, func() *tried {
		p, tn := begins(peer.Heir)
		p.vote = vote{grant: 5, grantTo: self}
		p.claiming.round = &claimRound{kind: peer.Takeover, counter: 5, before: before}
		return &tried{p: p, tn: tn}
	}, map[string]func(x *tried){
		"it claims nothing":             func(x *tried) { x.p.claiming.round = nil },
		"it is a last resort":           func(x *tried) { x.p.claiming.round.kind = peer.LastResort },
		"members record its epoch":      func(x *tried) { x.p.claiming.round.granted = true },
		"it granted another's since":    func(x *tried) { x.p.grantTo = other },
		"it granted a later one of its": func(x *tried) { x.p.grant = 6 },
	}, func(x *tried) bool { return x.p.pledged() == before })
}

// An acknowledgement says how far a copy goes only if it is of the epoch that is acknowledged, or of the one before.
func TestHowFarAGapGoes(t *testing.T) {
	earlier := peer.Epoch{Counter: 3, Instance: third}
	guards(t, func() *tried {
		p, tn := begins(peer.Copy)
		p.seq = 5
		return &tried{p: p, tn: tn, b: peer.Batch{Epoch: p.epoch, BaseEpoch: earlier}}
	}, map[string]func(x *tried){
		"its copy is of the epoch before":   func(x *tried) { x.p.epoch = earlier },
		"its copy is of an epoch of before": func(x *tried) { x.p.epoch = peer.Epoch{Counter: 2, Instance: other} },
		"it has no copy":                    func(x *tried) { x.p.role = peer.Nothing },
	}, func(x *tried) bool {
		x.p.ack(x.tn, third, &x.b, peer.Gap)
		acks := sent(x.tn, SendAck)
		return len(acks) == 1 && acks[0].Ack.Seq == 5
	}, "its copy is of the epoch before")
}

// The heir of a broken ownership is asked so often and no more: then the view's owner asks for copies.
func TestAnHeirIsUrgedForAWhile(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Copy)
		p.mine, p.owner, p.heir = ownedBy(self), ownedBy(self), other
		p.breakage.yields = true
		return &tried{p: p, tn: tn}
	}, map[string]func(x *tried){
		"another owns":                  func(x *tried) { x.p.owner = ownedBy(third) },
		"it has no heir":                func(x *tried) { x.p.heir = 0 },
		"it is its heir":                func(x *tried) { x.p.heir = self },
		"the heir is not in the view":   func(x *tried) { x.p.heir = fourth },
		"it was urged often enough":     func(x *tried) { x.p.breakage.urges = maxUrges },
		"it was urged as often but one": func(x *tried) { x.p.breakage.urges = maxUrges - 1 },
	}, func(x *tried) bool {
		x.p.urge(x.tn)
		return x.p.breakage.yields && len(sent(x.tn, SendClaim)) == 1
	}, "it was urged as often but one")
}

// A snapshot of which a part was lost is not taken for whole.
func TestASnapshotLacksNoPart(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Copy)
		p.staging.next(tn, p.node, &peer.Batch{First: true, Seq: 9}, nil)
		return &tried{p: p, tn: tn, b: peer.Batch{Seq: 9, Base: 1, Last: true}}
	}, map[string]func(x *tried){
		"a part is lost": func(x *tried) { x.b.Base = 2 },
		"a part was lost and comes late": func(x *tried) {
			x.p.staging.next(x.tn, x.p.node, &peer.Batch{Seq: 9, Base: 2}, nil)
		},
		"it is of another snapshot":          func(x *tried) { x.b.Seq = 8 },
		"it is not the last":                 func(x *tried) { x.b.Last = false },
		"there was nothing for a long while": func(x *tried) { x.tn.Now += stagedFor; x.p.staging.tick(x.tn, x.p.node) },
	}, func(x *tried) bool { return x.p.staging.next(x.tn, x.p.node, &x.b, nil) })
}

// An owner that nobody can stand by for answers at once, also while it makes another one its heir.
func TestWhoWithholds(t *testing.T) {
	alone := view.New(self, members(self), seats{0, 0}, 1, 1)
	guards(t, func() *tried {
		_, p, tn := closedOwner(t)
		return &tried{p: p, tn: tn}
	}, map[string]func(x *tried){
		"it is alone and has no heir": func(x *tried) { x.p.own.heir, x.tn.View = nil, alone },
		"it is alone and is about to have one": func(x *tried) {
			x.p.own.next, x.p.own.heir, x.tn.View = &target{to: other, base: x.p.epoch}, nil, alone
		},
		"it has no heir": func(x *tried) { x.p.own.heir = nil },
	}, func(x *tried) bool {
		k := strictKey(t, x.p.id)
		_, wait := x.p.own.Charged(x.tn, &k, nil, false, 1)
		return wait
	}, "it has no heir")
}

// A charge is settled, or taken back, by all that tells it from others: two attempts at one instant have different ids.
func TestWhichChargeIsSettled(t *testing.T) {
	type asked struct {
		hi   uint64
		id   *arith.Idempotency
		from peer.Instance
		time limiter.Tick
		cost uint64
	}
	one := asked{id: &arith.Idempotency{ID: 1}, from: other, time: 7, cost: 3}
	for name, change := range map[string]func(a *asked){
		"as it must be": func(*asked) {},
		"another id":    func(a *asked) { a.id = &arith.Idempotency{ID: 2} },
		"no id":         func(a *asked) { a.id = nil },
		"another asker": func(a *asked) { a.from = third },
		"another time":  func(a *asked) { a.time = 8 },
		"another cost":  func(a *asked) { a.cost = 4 },
		"another key":   func(a *asked) { a.hi = 1 },
	} {
		_, p, tn := closedOwner(t)
		k := strictKey(t, p.id)
		k.Cost = one.cost
		p.own.Prepare(tn, &k, one.id, one.from, one.time, tn.Now+limiter.Second, nil)
		a := one
		change(&a)
		k.Cost, k.Hash.Hi = a.cost, k.Hash.Hi+a.hi
		if is, _, _ := p.own.Conclude(tn, &k, a.id, a.from, a.time, true); is != (name == "as it must be") {
			t.Errorf("%s: it is settled %t", name, is)
		}
	}
}

// A suspended member is heir again once its time is over.
func TestHowLongAnHeirIsSuspended(t *testing.T) {
	guards(t, func() *tried {
		_, p, tn := closedOwner(t)
		p.own.suspended, p.own.suspendedUntil = other, tn.Now+limiter.Second
		return &tried{p: p, tn: tn}
	}, map[string]func(x *tried){
		"its time is over":           func(x *tried) { x.tn.Now += limiter.Second },
		"its time is not quite over": func(x *tried) { x.tn.Now += limiter.Second - 1 },
		"another is suspended":       func(x *tried) { x.p.own.suspended = third },
	}, func(x *tried) bool { return x.p.own.wanted(x.tn) == third }, "its time is not quite over")
}

// Who has nothing to push pushes nothing, and to each owner once.
func TestWhoPushes(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Copy)
		p.pushing.unpushed = true
		return &tried{p: p, tn: tn}
	}, map[string]func(x *tried){
		"it has nothing to push":    func(x *tried) { x.p.pushing.unpushed = false },
		"there is no owner":         func(x *tried) { x.p.owner.Instance = 0 },
		"it is the owner":           func(x *tried) { x.p.owner.Instance = self },
		"it has pushed to that one": func(x *tried) { x.p.pushing.pushedTo = third },
		"it has pushed to a former": func(x *tried) { x.p.pushing.pushedTo = other },
	}, func(x *tried) bool {
		x.p.push(x.tn)
		return len(sent(x.tn, SendBatch)) > 0
	}, "it has pushed to a former")
}

// A push that begins again is taken from its begin.
func TestAPushThatBeginsAgain(t *testing.T) {
	_, p, tn := closedOwner(t)
	e := peer.Epoch{Counter: 3, Instance: other}
	first := peer.Batch{Partition: p.id, Kind: peer.Push, Epoch: e, First: true}
	p.onPush(tn, other, &first, nil)
	p.onPush(tn, other, &peer.Batch{Partition: p.id, Kind: peer.Push, Epoch: e, Base: 1}, nil)
	if p.onPush(tn, other, &first, nil); p.arriving.pushNext != 1 {
		t.Errorf("part %d is to come next, want the second", p.arriving.pushNext)
	}
}

// A node that does not own asks the owner that it knows, and not itself.
func TestWhomARouteNames(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Copy)
		tn.View = viewOf(seats{1, 0})
		return &tried{p: p, tn: tn}
	}, map[string]func(x *tried){
		"no owner is known":             func(x *tried) { x.p.owner = peer.Epoch{} },
		"it owned itself, and does not": func(x *tried) { x.p.owner.Instance = self },
	}, func(x *tried) bool {
		owner, _, _ := x.p.Route(x.tn)
		if owner == self {
			t.Error("it names itself")
		}
		return owner == third
	})
}

// An acknowledgement names the appointment of an heir of that epoch, and none of another: numbers begin anew with each.
func TestWhichAppointmentIsAcknowledged(t *testing.T) {
	guards(t, func() *tried {
		p, tn := begins(peer.Heir)
		p.appointment = 7
		return &tried{p: p, tn: tn, b: peer.Batch{Epoch: p.epoch}}
	}, map[string]func(x *tried){
		"it is heir of another epoch": func(x *tried) { x.b.Epoch.Counter-- },
		"it is heir no more":          func(x *tried) { x.p.role = peer.Copy },
	}, func(x *tried) bool {
		x.p.ack(x.tn, third, &x.b, peer.Acked)
		return sent(x.tn, SendAck)[0].Ack.Appointment == 7
	})
}
