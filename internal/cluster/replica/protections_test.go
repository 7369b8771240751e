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

// Each test here is of one protection, at the step where it decides. What they are for is
// told by docs/protocol.md and the transcripts.

const fourth peer.Instance = 0xd

// ownedBy is the epoch that most tests begin with.
func ownedBy(i peer.Instance) peer.Epoch { return peer.Epoch{Counter: 4, Instance: i} }

// begins returns a replica of a closed partition of three members, in the given role,
// under an epoch of the third member, and a turn for it.
func begins(role peer.Role) (*Replica, *Step) {
	l := newLab()
	p := New(l.node(self), table.Partitions+7)
	tn := l.turn(view.New(self, members(self, other, third), seats{2, 0}, 3, 3))
	f := Fixture{Role: role, Epoch: ownedBy(third), Owner: ownedBy(third), Heir: other}
	if role == peer.Heir {
		f.Heir = self
	}
	p.Begin(tn, f)
	tn.Reset()
	return p, tn
}

// sent returns the effects of a kind.
func sent(tn *Step, kind Kind) (out []Effect) {
	for i := range tn.List {
		if tn.List[i].Kind == kind {
			out = append(out, tn.List[i])
		}
	}
	return out
}

// acked returns the status of the last acknowledgement.
func acked(t *testing.T, tn *Step) peer.AckStatus {
	t.Helper()
	all := sent(tn, SendAck)
	if len(all) == 0 {
		t.Fatal("nothing is acknowledged")
	}
	return all[len(all)-1].Ack.Status
}

// A takeover of a closed partition ends if a member has granted its owner a renewal, a
// transfer or a reopening without this heir.
func TestATakeoverGivesWayToARenewal(t *testing.T) {
	for kind, gives := range map[peer.ClaimKind]bool{peer.Renew: true, peer.Transfer: true, peer.Reopen: true,
		peer.Takeover: false} {
		p, tn := begins(peer.Heir)
		p.takeOver(tn)
		p.onAnswer(tn, other, peer.Answer{Round: p.claiming.round.id, Granted: true, Grant: 5, GrantKind: kind,
			GrantFor: third})
		if ended := p.claiming.round == nil; ended != gives {
			t.Errorf("kind %d: the takeover ended %t, want %t", kind, ended, gives)
		}
	}
}

// Grants of members that are not in the view do not count.
func TestOnlyMembersInViewGrant(t *testing.T) {
	l := newLab()
	p := New(l.node(self), table.Partitions+7)
	ring := seats{2, 0}
	tn := l.turn(view.New(self, members(self, other, third), ring, 4, 4))
	p.Begin(tn, Fixture{Role: peer.Heir, Epoch: ownedBy(fourth), Owner: ownedBy(fourth), Heir: self})
	p.takeOver(tn)
	l.now += claimWithin
	tn.Now, tn.View = l.now, view.New(self, members(self, other), seats{1, 0}, 4, 4)
	p.ViewChanged(tn)
	for _, i := range []peer.Instance{other, third} {
		p.onAnswer(tn, i, peer.Answer{Round: p.claiming.round.id, Granted: true})
	}
	if p.claiming.round == nil || p.claiming.round.granted {
		t.Error("two of four in view, and one that is not, are a majority")
	}
	tn.View = view.New(self, members(self, other, third), ring, 4, 4)
	p.ViewChanged(tn)
	if p.claiming.round == nil || !p.claiming.round.granted {
		t.Fatal("three of four are no majority")
	}
}

// An instance that has recorded an epoch and is gone does not count: the one that has its
// name now has recorded nothing.
func TestARecordOfAnInstanceThatIsGone(t *testing.T) {
	const fifth peer.Instance = 0xe
	l := newLab()
	p := New(l.node(self), table.Partitions+7)
	tn := l.turn(view.New(self, members(self, other, third, fourth), seats{2, 0}, 5, 5))
	p.Begin(tn, Fixture{Role: peer.Heir, Epoch: ownedBy(fifth), Owner: ownedBy(fifth), Heir: self})
	p.takeOver(tn)
	l.now += claimWithin
	tn.Now = l.now
	for _, i := range []peer.Instance{other, third, fourth} {
		p.onAnswer(tn, i, peer.Answer{Round: p.claiming.round.id, Granted: true})
	}
	e := p.claiming.round.epoch(p)
	tn.View = view.New(self, members(self, other, third), seats{2, 0}, 5, 5)
	for _, i := range []peer.Instance{other, fourth} {
		p.onAnswer(tn, i, peer.Answer{Round: p.claiming.round.id, Granted: true, Owner: e})
	}
	if p.role == peer.Owned {
		t.Fatal("it decides, though one of three that recorded it is gone")
	}
	p.onAnswer(tn, third, peer.Answer{Round: p.claiming.round.id, Granted: true, Owner: e})
	if p.role != peer.Owned {
		t.Errorf("three of five have recorded it, and the role is %d", p.role)
	}
}

// The last resort takes the copy of the latest epoch, and of those the longest.
func TestTheLastResortTakesTheBestCopy(t *testing.T) {
	p, tn := begins(peer.Copy)
	p.seq = 9
	copied := func(counter, seq uint64) answer {
		return answer{peer.Answer{Role: peer.Copy, Epoch: peer.Epoch{Counter: counter, Instance: fourth}, Seq: seq}, true}
	}
	r := &claimRound{kind: peer.Ask, whom: []peer.Instance{other, third, fourth},
		answers: []answer{copied(5, 1), copied(5, 2), copied(3, 99)}}
	p.lastResort(tn, r)
	claims := sent(tn, SendClaim)
	if len(claims) != 1 || claims[0].To != third || claims[0].Claim.Kind != peer.LastResort ||
		claims[0].Claim.For != third {
		t.Errorf("it asks %+v, want %v to claim", claims, third)
	}
}

// Who is heir under an epoch is heir no more when it learns of a later one.
func TestAnHeirIsOfItsEpoch(t *testing.T) {
	p, tn := begins(peer.Heir)
	p.Learn(tn, peer.Epoch{Counter: 5, Instance: third}, false)
	if p.role != peer.Copy || p.appointment != 0 {
		t.Errorf("its role is %d", p.role)
	}
}

// An appointment that requires more than is held is refused.
func TestAnHeirHasWhatWasAnswered(t *testing.T) {
	for required, want := range map[uint64]peer.AckStatus{2: peer.Acked, 3: peer.Refused} {
		p, tn := begins(peer.Copy)
		p.seq = 2
		e := ownedBy(third)
		p.Step(tn, third, Message{Batch: &peer.Batch{Partition: p.id, Kind: peer.Delta, Epoch: e, BaseEpoch: e, Base: 2,
			Seq: 2, Appointment: 1, Appointed: required}})
		if got := acked(t, tn); got != want || (p.role == peer.Heir) != (want == peer.Acked) {
			t.Errorf("required %d: status %d, role %d", required, got, p.role)
		}
	}
}

// A snapshot that lacks a part, and a batch that does not follow what is held, are not
// taken in.
func TestWhatIsMissingIsNoticed(t *testing.T) {
	e := ownedBy(third)
	p, tn := begins(peer.Nothing)
	for _, part := range []peer.Batch{
		{Kind: peer.Snapshot, Epoch: e, Seq: 5, First: true},
		{Kind: peer.Snapshot, Epoch: e, Seq: 5, Base: 2, Last: true},
	} {
		part.Partition = p.id
		p.Step(tn, third, Message{Batch: &part})
	}
	if p.role != peer.Nothing {
		t.Errorf("a snapshot without its second part is held: role %d", p.role)
	}
	p, tn = begins(peer.Copy)
	p.seq = 2
	p.Step(tn, third, Message{Batch: &peer.Batch{Partition: p.id, Kind: peer.Delta, Epoch: e, BaseEpoch: e, Base: 4,
		Seq: 5}})
	if got := acked(t, tn); got != peer.Gap || p.seq != 2 {
		t.Errorf("a batch from 4 on is answered with %d and the sequence is %d, of 2", got, p.seq)
	}
}

// A former owner that has pushed what it had asks the present one for a snapshot. It builds no changes on its own
// state, so it would ask for the same ones again and again.
func TestAFormerOwnerAsksForASnapshot(t *testing.T) {
	e := ownedBy(third)
	p, tn := begins(peer.Copy)
	p.seq, p.mine = 2, p.epoch
	p.Step(tn, third, Message{Batch: &peer.Batch{Partition: p.id, Kind: peer.Delta, Epoch: e, BaseEpoch: p.epoch, Base: 2,
		Seq: 3, Appointment: 1}})
	if got := sent(tn, SendAck); len(got) != 1 || got[0].Ack.Status != peer.Gap || got[0].Ack.Seq != 0 {
		t.Errorf("it answers %+v", got)
	}
}

// An heir that is revoked ends its takeover.
func TestARevokedHeirEndsItsTakeover(t *testing.T) {
	p, tn := begins(peer.Heir)
	p.takeOver(tn)
	p.Step(tn, third, Message{Revoke: &peer.Revoke{Partition: p.id, Epoch: ownedBy(third), Appointment: 1}})
	if p.role != peer.Copy || p.claiming.round != nil {
		t.Errorf("its role is %d, and it claims: %t", p.role, p.claiming.round != nil)
	}
}

// Requests that wait for the takeover of an heir that is revoked are refused at once: the owner
// is alive. It may have executed one of them.
func TestARevokedHeirRefusesWhatWaited(t *testing.T) {
	p, tn := begins(peer.Heir)
	p.takeOver(tn)
	for _, elsewhere := range []bool{false, true} {
		p.Park(tn, &question{Wait: Wait{Until: tn.Now + limiter.Second, Sent: elsewhere}})
	}
	p.Step(tn, third, Message{Revoke: &peer.Revoke{Partition: p.id, Epoch: ownedBy(third), Appointment: 1}})
	got := sent(tn, Refuse)
	if len(got) != 2 || len(p.waiting) != 0 {
		t.Fatalf("%d requests are refused and %d wait on, want both to be refused", len(got), len(p.waiting))
	}
	for i, want := range []peer.ReplyStatus{peer.NotOwner, peer.Alive} {
		if got[i].Status != want || got[i].Owner != ownedBy(third) {
			t.Errorf("request %d is refused with %d, and %v is named as owner, want %d and %v", i, got[i].Status, got[i].Owner,
				want, ownedBy(third))
		}
	}
}

// What a member acknowledges that is not heir any more releases nothing, whatever it holds.
func TestAFormerHeirsAcknowledgementReleasesNothing(t *testing.T) {
	_, p, tn := closedOwner(t)
	k := strictKey(t, p.id)
	stamp, wait := p.own.Charged(tn, &k, nil, false, 1)
	if !wait {
		t.Fatal("a strict charge need not wait")
	}
	q := withheldAt(tn, &k)
	p.own.Withhold(tn, q, stamp)
	p.Flush(tn)
	a := peer.Ack{Partition: p.id, Status: peer.Refused, Epoch: p.epoch, Seq: p.seq, Ping: p.own.heir.ping}
	p.Step(tn, other, Message{Ack: &a})
	p.own.release(tn)
	if len(sent(tn, Release)) != 0 {
		t.Error("a reply is released by a member that is not heir")
	}
	a.Status, a.Appointment = peer.Acked, 1
	p.Step(tn, other, Message{Ack: &a})
	if len(sent(tn, Release)) != 1 {
		t.Error("the heir's acknowledgement releases no reply")
	}
}

// An heir that has lost its copy, and its appointment with it, gets both again although nothing changes: until
// then nobody could take over. A refused appointment is sent again after a while.
func TestALapsedHeirIsAppointedAgain(t *testing.T) {
	l, p, tn := closedOwner(t)
	k := strictKey(t, p.id)
	p.own.Charged(tn, &k, nil, false, 1)
	p.Flush(tn)
	answer := func(s peer.AckStatus, seq uint64, appointment uint32) {
		a := peer.Ack{Partition: p.id, Status: s, Epoch: p.epoch, Seq: seq, Appointment: appointment, Ping: l.pings}
		p.Step(tn, other, Message{Ack: &a})
		p.Flush(tn)
	}
	last := func() *peer.Batch {
		all := sent(tn, SendBatch)
		return &all[len(all)-1].Batch
	}
	answer(peer.Gap, 0, 0)
	if b := last(); b.Kind != peer.Snapshot {
		t.Fatalf("an heir without a copy is sent a batch of kind %v", b.Kind)
	}
	answer(peer.Acked, p.seq, 0)
	b := last()
	if b.Kind != peer.Delta || b.Appointment != p.own.heir.appointment || b.Seq != p.seq {
		t.Fatalf("an heir that has its copy again is sent %+v", b)
	}
	n := len(sent(tn, SendBatch))
	answer(peer.Refused, p.seq, 0)
	if p.Settled(tn) || p.Due(tn) != tn.Now || !p.own.busy(tn) || len(sent(tn, SendBatch)) != n {
		t.Error("the owner rests while its heir is none, or repeats the appointment at once")
	}
	tn.Now += resendAfter
	p.Tick(tn)
	if len(sent(tn, SendBatch)) == n || last().Appointment != b.Appointment {
		t.Error("the appointment is not sent again")
	}
	answer(peer.Acked, p.seq, b.Appointment)
	l.pings--
	answer(peer.Acked, p.seq, 0) // to an earlier message, by a relay
	if l.pings++; !p.Settled(tn) || len(p.own.dirty.list) != 0 {
		t.Errorf("the heir has accepted, and the owner takes it for none or has %d changed keys", len(p.own.dirty.list))
	}
}

// strictKey returns a key of a partition whose charges wait for the heir.
func strictKey(t *testing.T, id uint16) arith.Key {
	return keyOf(t, id, 100, limiter.ReplicationStrict)
}

// keyOf returns a key of a partition, of so many units a day.
func keyOf(t *testing.T, id uint16, units int64, mode limiter.Replication) arith.Key {
	t.Helper()
	l, err := limiter.NewLimit(limiter.Spec{Limit: units, Window: 24 * time.Hour, Algorithm: limiter.FixedWindow})
	if err != nil {
		t.Fatal(err)
	}
	r := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}, Replication: mode, OnUnreachable: limiter.UnreachableLocal}
	if id >= table.Partitions {
		r.OnUnreachable = limiter.UnreachableClosed
	}
	k := arith.Key{Rule: r, Cost: 1}
	for table.PartitionOf(&k) != int(id) {
		k.Hash.Hi++
		k.Hash.Lo = k.Hash.Hi * 0x9e37_79b9_7f4a_7c15
	}
	return k
}

// withheldAt returns the reply to a check of a key that waits from now on.
func withheldAt(tn *Step, k *arith.Key) withheldCheck {
	c := new(arith.Charge)
	c.Add(*k)
	return withheldCheck{&question{Withheld: Withheld{Charge: c, Since: tn.Now, Until: tn.Now + limiter.Second}}}
}

// A handover is taken by the heir that has every change.
func TestAHandoverIsTakenByTheHeir(t *testing.T) {
	for role, taken := range map[peer.Role]bool{peer.Heir: true, peer.Copy: false} {
		p, tn := begins(role)
		p.seq = 2
		e := ownedBy(third)
		p.Step(tn, third, Message{Batch: &peer.Batch{Partition: p.id, Kind: peer.Handover, Epoch: e, BaseEpoch: e, Base: 2,
			Seq: 2, Next: peer.Epoch{Counter: 5, Instance: self}}})
		if got := p.role == peer.Owned; got != taken {
			t.Errorf("role %d: taken %t, want %t", role, got, taken)
		}
	}
}

// An owner hands over to an heir that has every change.
func TestAnOwnerHandsOverWhatIsCopied(t *testing.T) {
	for acked, hands := range map[uint64]bool{5: true, 4: false} {
		l, p, tn := closedOwner(t)
		tn.View = view.New(self, members(self, other, third), seats{1, 0}, 3, 3)
		p.seq, p.own.heir.acked, p.own.heir.sent = 5, acked, 5
		l.now += backAfter
		tn.Now = l.now
		p.manage(tn)
		if got := p.claiming.round != nil && p.claiming.round.kind == peer.Transfer; got != hands {
			t.Errorf("%d of 5 acknowledged: it hands over %t, want %t", acked, got, hands)
		}
	}
}

// openOwner returns the replica of an available partition that this node owns, whose heir
// is silent, so that the policy bounds what may be answered.
func openOwner() (*Replica, *Step) {
	l := newLab()
	p := New(l.node(self), 7)
	tn := l.turn(view.New(self, members(self, other, third), seats{0, 1}, 3, 3))
	e := ownedBy(self)
	p.Begin(tn, Fixture{Role: peer.Owned, Epoch: e, Owner: e, Heir: other})
	p.own.byPolicy = true
	return p, tn
}

// An owner whose heir is silent answers its share of the limit, and counts what it
// answers.
func TestAnOwnerWithoutItsHeirAnswersItsShare(t *testing.T) {
	p, tn := openOwner()
	k := keyOf(t, p.id, 90, limiter.ReplicationLag)
	if got := p.own.capOver(tn, k.Rule, lag(k.Rule)); got != 30 {
		t.Errorf("it may answer %d of 90, want a third", got)
	}
	p.own.byPolicy = false
	k.Cost = 20
	for range 2 {
		stamp, wait := p.own.Charged(tn, &k, nil, false, 20)
		if !wait {
			t.Fatal("a charge of 20 need not wait where D is 5")
		}
		p.own.Withhold(tn, withheldAt(tn, &k), stamp)
	}
	p.own.byPolicy = true
	p.own.release(tn)
	if got := len(sent(tn, Release)); got != 1 {
		t.Errorf("%d replies of 20 are released, of 30", got)
	}
}

// A charge that is taken back is copied.
func TestWhatIsTakenBackIsCopied(t *testing.T) {
	_, p, tn := closedOwner(t)
	k := strictKey(t, p.id)
	stamp, _ := p.own.Charged(tn, &k, nil, false, 1)
	q := withheldAt(tn, &k)
	p.own.Withhold(tn, q, stamp)
	p.Flush(tn)
	if p.own.dirtyAt != 0 {
		t.Fatal("the batch was sent and is not empty")
	}
	tn.Now = q.Facts().Until
	p.own.expireWithheld(tn, p.owner)
	if d := p.own.dirty.find(k.Hash.Hi); p.own.dirtyAt == 0 || d == nil || d.last != p.own.open {
		t.Error("the key has not changed since the batch")
	}
}

// Before a state is merged, the charges of withheld replies are taken back. A reset stands, if
// what is merged is not newer: its reply waits on, so that its asker does not repeat it and
// forget what is charged in between. An owner that is fenced keeps none.
func TestAWithheldResetStands(t *testing.T) {
	for counter, stands := range map[uint64]bool{3: true, 5: false} {
		_, p, tn := closedOwner(t)
		k := strictKey(t, p.id)
		p.own.Reset(&k, p.owner.Counter)
		stamp, wait := Confirm(tn, p.own, false)
		reset, check := withheldAt(tn, &k), withheldAt(tn, &k)
		reset.Withheld.Reset = true
		p.own.Withhold(tn, reset, stamp)
		stamp, _ = p.own.Charged(tn, &k, nil, false, 1)
		p.own.Withhold(tn, check, stamp)
		push := peer.Batch{Partition: p.id, Kind: peer.Push, Epoch: peer.Epoch{Counter: counter, Instance: third},
			First: true, Last: true}
		p.Step(tn, third, Message{Batch: &push})
		if !wait || reset.over == stands || !check.over {
			t.Errorf("a state of epoch %d is merged: the reply to the reset is refused %t, to a check %t", counter, reset.over,
				check.over)
		}
		if stands != (p.own.waitSince != 0) {
			t.Errorf("replies wait since %v", p.own.waitSince)
		}
		p.Step(tn, third, Message{Announce: &peer.Announce{Partition: p.id, Epoch: peer.Epoch{Counter: 6, Instance: third}}})
		if !reset.over || p.own != nil {
			t.Error("the reply to a reset waits at an owner that is fenced")
		}
	}
}

// What every copy has is forgotten.
func TestCopiedKeysAreForgotten(t *testing.T) {
	_, p, tn := closedOwner(t)
	k := strictKey(t, p.id)
	p.own.Charged(tn, &k, nil, false, 1)
	tn.Now += batchEvery
	p.Flush(tn)
	p.Step(tn, other, Message{Ack: &peer.Ack{Partition: p.id, Status: peer.Acked, Epoch: p.epoch, Seq: p.seq,
		Appointment: 1}})
	if n := len(p.own.dirty.list); n != 0 {
		t.Errorf("%d keys are remembered as changed", n)
	}
}

// A joining node counts majorities of at least as many members as it has seed addresses.
func TestAJoiningNodeCountsItsSeeds(t *testing.T) {
	p, tn := begins(peer.Nothing)
	p.node.Seeds = 5
	for state, want := range map[peer.State]int{peer.Joining: 5, peer.Active: 3} {
		tn.State = state
		if got := p.n0(tn, true); got != want {
			t.Errorf("state %d: majorities are of %d, want %d", state, got, want)
		}
	}
}

// What a member has not acknowledged is sent again over a new connection.
func TestANewConnectionRepeatsWhatWasSent(t *testing.T) {
	_, p, tn := closedOwner(t)
	k := strictKey(t, p.id)
	p.own.Charged(tn, &k, nil, false, 1)
	tn.Now += batchEvery
	p.Flush(tn)
	tn.Reset()
	p.Connected(tn, other)
	p.Flush(tn)
	all := sent(tn, SendBatch)
	if len(all) != 1 || all[0].To != other || !slices.Equal(all[0].Keys, []uint64{k.Hash.Hi}) {
		t.Errorf("sent again: %+v", all)
	}
}

// A copy is dropped when a later epoch has an heir, and not before.
func TestACopyStaysUntilALaterEpochHasAnHeir(t *testing.T) {
	later := peer.Epoch{Counter: 5, Instance: third}
	for _, one := range []struct {
		epoch peer.Epoch
		heir  peer.Instance
		want  peer.Role
	}{{ownedBy(third), other, peer.Copy}, {later, 0, peer.Copy}, {later, self, peer.Copy}, {later, other, peer.Nothing}} {
		p, tn := begins(peer.Copy)
		p.vote = grantedTo(one.epoch)
		p.Step(tn, third, Message{Announce: &peer.Announce{Partition: p.id, Epoch: one.epoch, Heir: one.heir}})
		if p.role != one.want {
			t.Errorf("%v with the heir %v: role %d, want %d", one.epoch, one.heir, p.role, one.want)
		}
	}
}

// An owner that was fenced drops its copy when the present one has merged it and has an
// heir, also if an announcement from before it had one comes late.
func TestACopyIsDroppedOnceItIsMerged(t *testing.T) {
	_, p, tn := closedOwner(t)
	later := peer.Epoch{Counter: 5, Instance: third}
	p.vote = grantedTo(later)
	for _, heir := range []peer.Instance{other, 0} {
		p.Step(tn, third, Message{Announce: &peer.Announce{Partition: p.id, Epoch: later, Heir: heir}})
	}
	if p.role != peer.Copy || p.heir != other {
		t.Errorf("it is fenced: role %d, the heir is %v, want %v", p.role, p.heir, other)
	}
	p.Step(tn, third, Message{Ack: &peer.Ack{Partition: p.id, Status: peer.Merged, Epoch: p.epoch, Owner: later}})
	tn.Now += keepFor
	for range 2 {
		p.Tick(tn)
	}
	if p.role != peer.Nothing {
		t.Errorf("its copy is merged, and its role is %d", p.role)
	}
}

// When an heir has accepted, the last one is told to drop its copy, and again over a new
// connection: the first word may be lost with the old one.
func TestTheLastHeirIsDismissed(t *testing.T) {
	_, p, tn := closedOwner(t)
	p.own.heir = nil
	p.own.retired.add(third)
	p.own.next = &target{to: other, base: p.epoch, begun: true, whole: true, appointment: 2}
	p.own.appointing = 2
	p.Step(tn, other, Message{Ack: &peer.Ack{Partition: p.id, Status: peer.Acked, Epoch: p.epoch, Appointment: 2}})
	told := func(when string, want int) {
		t.Helper()
		all := sent(tn, SendRevoke)
		if len(all) != want {
			t.Errorf("%s: told %d times, want %d: %+v", when, len(all), want, all)
		}
		for i := range all {
			if all[i].To != third || !all[i].Revoke.Drop {
				t.Errorf("%s: told: %+v", when, all[i])
			}
		}
		tn.Reset()
	}
	told("the next has accepted", 1)
	p.manage(tn)
	p.Connected(tn, other)
	told("later", 0)
	p.Connected(tn, third)
	told("over a new connection", 1)
	p.own.next = &target{to: third}
	p.Connected(tn, third)
	told("it is to become heir", 0)
}

// A member that was told to drop its copy, and takes a snapshot after that, is told again: what was
// said has overtaken the snapshot.
func TestWhatOvertakesASnapshotIsSaidAgain(t *testing.T) {
	_, p, tn := closedOwner(t)
	p.own.retired.add(third)
	p.manage(tn)
	for status, want := range map[peer.AckStatus]int{peer.Acked: 1, peer.Refused: 1, peer.Gap: 0} {
		tn.Reset()
		p.Step(tn, third, Message{Ack: &peer.Ack{Partition: p.id, Status: status, Epoch: p.epoch}})
		if all := sent(tn, SendRevoke); len(all) != want || want > 0 && (all[0].To != third || !all[0].Revoke.Drop) {
			t.Errorf("status %d: told: %+v", status, all)
		}
	}
}

// A member that got a copy to become heir, and is not wanted as heir any more, is told to
// drop it. So many are remembered, and no more.
func TestACopyThatIsNotWantedIsDismissed(t *testing.T) {
	for name, again := range map[string]bool{"": false, "over a new connection all was to be sent again": true} {
		_, p, tn := closedOwner(t)
		p.own.next = &target{to: third}
		p.Flush(tn)
		if n := len(sent(tn, SendBatch)); n != 1 {
			t.Fatalf("premise: it is sent %d batches", n)
		}
		if again {
			p.Connected(tn, third)
		}
		p.manage(tn)
		all := sent(tn, SendRevoke)
		if p.own.next != nil || len(all) != 1 || all[0].To != third || !all[0].Revoke.Drop {
			t.Errorf("%s: told: %+v", name, all)
		}
	}
	_, p, _ := closedOwner(t)
	for i := range 2 * maxRetired {
		p.own.retired.add(peer.Instance(0x100 + i))
	}
	if n := len(p.own.retired); n != maxRetired {
		t.Errorf("%d members are kept, at most %d", n, maxRetired)
	}
}

// An answer that names a later owner ends a claim.
func TestALaterOwnerEndsAClaim(t *testing.T) {
	p, tn := begins(peer.Heir)
	p.takeOver(tn)
	p.onAnswer(tn, other, peer.Answer{Round: p.claiming.round.id, Owner: peer.Epoch{Counter: 9, Instance: fourth}})
	if p.claiming.round != nil {
		t.Error("the claim goes on")
	}
}

// A minority does not start an available partition anew.
func TestNoLastResortInAMinority(t *testing.T) {
	l := newLab()
	p := New(l.node(self), 7)
	r := &claimRound{kind: peer.Ask}
	for known, want := range map[int]bool{1: true, 3: false} {
		if got := p.lastResortDue(l.turn(view.New(self, members(self), seats{0, 0}, known, known)), r); got != want {
			t.Errorf("one of %d: %t, want %t", known, got, want)
		}
	}
}

// An owner keeps its heir while the member that is to take its place could not accept an
// appointment: it has learnt too little of the partition since it started. It is asked
// again until it could.
func TestAnHeirStaysUntilTheNextIsFit(t *testing.T) {
	l, p, tn := closedOwner(t)
	tn.View = view.New(self, members(self, other, third), seats{0, 2}, 3, 3)
	p.ViewChanged(tn)
	copies := sent(tn, SendBatch)
	if len(copies) != 1 || copies[0].To != third || copies[0].Batch.Kind != peer.Snapshot {
		t.Fatalf("the next heir gets %+v", copies)
	}
	answer := func(status peer.AckStatus, b peer.Batch) {
		t.Helper()
		a := peer.Ack{Partition: p.id, Status: status, Epoch: b.Epoch, Ping: b.Ping, Seq: b.Seq, Owner: b.Epoch}
		tn.Reset()
		p.Step(tn, third, Message{Ack: &a})
	}
	answer(peer.Refused, copies[0].Batch)
	if r := sent(tn, SendRevoke); len(r) > 0 || p.own.heir == nil || p.own.heir.to != other {
		t.Fatalf("the heir is given up for one that could not accept: %+v", r)
	}
	tn.Reset()
	l.now += resendAfter
	tn.Now, tn.At = l.now, l.now
	p.Tick(tn)
	asked := sent(tn, SendBatch)
	if len(asked) != 1 || asked[0].To != third || asked[0].Batch.Appointment != 0 {
		t.Fatalf("it is asked again with %+v", asked)
	}
	answer(peer.Acked, asked[0].Batch)
	if r := sent(tn, SendRevoke); len(r) != 1 || r[0].To != other {
		t.Errorf("the heir stays when the next could accept: %+v", r)
	}
}

// Who has learnt too little of a partition to be its heir says so with its copy.
func TestAFreshCopySaysSo(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		p, tn := begins(peer.Copy)
		p.fresh = fresh
		b := peer.Batch{Partition: p.id, Kind: peer.Snapshot, Epoch: ownedBy(third), Seq: 9, Ping: 5, First: true, Last: true}
		p.Step(tn, third, Message{Batch: &b})
		want := peer.Acked
		if fresh {
			want = peer.Refused
		}
		if got := acked(t, tn); got != want {
			t.Errorf("fresh %t: answered %d, want %d", fresh, got, want)
		}
	}
}

// So does who leaves, or still joins, as its owner may not know. Else the owner would revoke its heir, and
// have none until it sees what became of this node.
func TestACopyThatIsNotActiveSaysSo(t *testing.T) {
	for state, want := range map[peer.State]peer.AckStatus{peer.Joining: peer.Refused, peer.Active: peer.Acked,
		peer.Leaving: peer.Refused} {
		p, tn := begins(peer.Copy)
		tn.State = state
		b := peer.Batch{Partition: p.id, Kind: peer.Snapshot, Epoch: ownedBy(third), Seq: 9, Ping: 5, First: true, Last: true}
		p.Step(tn, third, Message{Batch: &b})
		if got := acked(t, tn); got != want {
			t.Errorf("state %d: answered %d, want %d", state, got, want)
		}
	}
}
