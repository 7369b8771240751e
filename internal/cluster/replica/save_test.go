package replica

import (
	"math/bits"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// readBack returns a closed replica that has just read a state of the epoch 4 of another from its disk.
func readBack(t *testing.T) (*lab, *Replica, *Step) {
	t.Helper()
	l := newLab()
	node := l.node(self)
	node.SaveEvery, node.RestoreUntil = limiter.Second, l.now+10*limiter.Second
	p := New(node, table.Partitions+7)
	tn := l.turn(view.New(self, members(self, other), seats{0, 1}, 3, 3))
	e := peer.Epoch{Counter: 4, Instance: third}
	if !p.OnDisk().Restore(tn, &peer.Batch{Partition: p.id, Kind: peer.Snapshot, Epoch: e, Seq: 3, First: true,
		Last: true}, nil) {
		t.Fatal("a snapshot is not taken")
	}
	if !p.OnDisk().Restore(tn, &peer.Batch{Partition: p.id, Epoch: e, BaseEpoch: e, Base: 3, Seq: 5}, nil) {
		t.Fatal("a batch that follows is not taken")
	}
	if p.OnDisk().Restore(tn, &peer.Batch{Partition: p.id, Epoch: e, BaseEpoch: e, Base: 6, Seq: 7}, nil) {
		t.Error("a batch is taken, and the one before is missing")
	}
	p.OnDisk().RestorePromises(tn, &peer.Answer{Owner: e, Heir: other, Top: 8, Grant: 7, GrantFor: other,
		GrantKind: peer.Renew})
	p.OnDisk().Restored(tn)
	return l, p, tn
}

// What is read back is a copy, whatever this node was, with all that it had promised.
func TestWhatIsReadBack(t *testing.T) {
	_, p, tn := readBack(t)
	if p.role != peer.Copy || p.seq != 5 || p.epoch.Counter != 4 || !p.fresh || !p.FromDisk() {
		t.Fatalf("it is %d of %v/%d, fresh %t, from disk %t", p.role, p.epoch, p.seq, p.fresh, p.FromDisk())
	}
	p.fresh = false
	tn.Effects.Reset()
	p.Step(tn, other, Message{Claim: &peer.Claim{Kind: peer.Renew, Round: 1, Counter: 7, For: third}})
	if a := tn.List[0].Answer; a.Granted || a.Grant != 7 || a.GrantFor != other || !a.FromDisk || a.Owner != p.epoch {
		t.Errorf("a counter that was granted before is claimed by another: %+v", a)
	}
	p.startRound(tn, peer.LastResort, self, p.owner)
	if p.claiming.round.counter != 9 {
		t.Errorf("it claims %d, and knew of 8", p.claiming.round.counter)
	}
}

// A last resort has lost nothing if all members that count are back and ended in good order, the last owner among them.
func TestALastResortThatHasLostNothing(t *testing.T) {
	const mine, others = peer.Instance(77), peer.Instance(78)
	for name, test := range map[string]struct {
		self, other, owner peer.Instance
		silent             bool
		vain               bool // the other one has claimed the partition and has nothing of it
		lost               bool
	}{
		"this node was the owner":        {self: third, other: others},
		"another one was the owner":      {self: mine, other: third},
		"this node ended otherwise":      {other: third, lost: true},
		"another one ended otherwise":    {self: third, lost: true},
		"another one claimed in vain":    {self: third, other: others, owner: other, vain: true},
		"another one has owned since":    {self: third, other: others, owner: other, lost: true},
		"another one is not back":        {self: third, other: others, silent: true, lost: true},
		"the owner was none of them":     {self: mine, other: others, lost: true},
		"there was an owner after those": {self: third, other: others, owner: 79, lost: true},
	} {
		l, p, _ := readBack(t)
		tn := l.turn(view.New(self, members(self, other), seats{0, 1}, 2, 2))
		p.node.Ended = test.self
		if test.owner != 0 {
			p.owner = peer.Epoch{Counter: 5, Instance: test.owner}
		}
		p.fresh = false
		p.startRound(tn, peer.LastResort, self, p.owner)
		a := peer.Answer{Granted: true, Ended: test.other}
		if !test.vain && test.owner == other {
			a.Epoch = p.owner
		}
		p.claiming.round.answers[0] = answer{a, !test.silent}
		p.claimed(tn, p.claiming.round)
		want := Renewal
		if test.lost {
			want = Recovered
		}
		if !slices.ContainsFunc(tn.List, func(e Effect) bool { return e.Kind == Happened && e.Event == want }) {
			t.Errorf("%s: want %q", name, events[want])
		}
	}
}

// A closed partition does not go on from a copy of a disk in place of a member that is not back, which may have a later
// one on its own.
func TestACopyFromADiskPassesOverNobody(t *testing.T) {
	for _, from := range []bool{false, true} {
		l, p, tn := readBack(t)
		l.left[third] = l.now
		tn.Now += GoneAfter
		p.restored = false
		r := &claimRound{kind: peer.Ask, whom: []peer.Instance{other},
			answers: []answer{{peer.Answer{Role: peer.Copy, FromDisk: from}, true}}}
		if got := p.lastResortDueClosed(tn, r); got == from {
			t.Errorf("a copy of a disk among the answers: %t, the last resort is due: %t", from, got)
		}
	}
}

// An available partition waits until all members of before have answered, or until the time for that is over.
func TestAnAvailablePartitionWaitsForTheOthers(t *testing.T) {
	_, p, tn := readBack(t)
	p.closed, p.owner, p.heir = false, peer.Epoch{Counter: 4, Instance: self}, 0
	r := &claimRound{kind: peer.Ask, whom: []peer.Instance{other}, answers: []answer{{peer.Answer{}, true}}}
	if p.lastResortDue(tn, r) {
		t.Error("it goes on, and one of three is not back")
	}
	tn.View = view.New(self, members(self, other), seats{0, 1}, 2, 2)
	if !p.lastResortDue(tn, r) {
		t.Error("it waits, and all are back")
	}
	tn.View = view.New(self, members(self, other), seats{0, 1}, 3, 3)
	if tn.Now = p.node.RestoreUntil; !p.lastResortDue(tn, r) {
		t.Error("it waits, and the time is over")
	}
}

// So does a member that has read nothing, and whose others neither: one that is not back may have what they all lack.
func TestWhoHasReadNothingWaitsForTheOthers(t *testing.T) {
	l := newLab()
	node := l.node(self)
	node.RestoreUntil = l.now + 10*limiter.Second
	p := New(node, 7)
	tn := l.turn(view.New(self, members(self, other), seats{0, 1}, 3, 3))
	r := &claimRound{kind: peer.Ask, whom: []peer.Instance{other}, answers: []answer{{peer.Answer{}, true}}}
	if p.lastResortDue(tn, r) {
		t.Error("it goes on, and one of three is not back")
	}
	if tn.Now = node.RestoreUntil; !p.lastResortDue(tn, r) {
		t.Error("it waits, and the time is over")
	}
}

// Meanwhile the last owner and its heir, which this node never saw, are found to be gone: that takes no time beyond.
func TestWhoIsGoneIsSilentWhileOthersAreAwaited(t *testing.T) {
	_, p, tn := readBack(t)
	p.closed, p.owner, p.heir = false, ownedBy(third), fourth
	r := &claimRound{kind: peer.Ask, whom: []peer.Instance{other, third, fourth}, answers: make([]answer, 3)}
	r.answers[0].has = true
	for ; tn.Now < p.node.RestoreUntil; tn.Now += GoneAfter {
		if p.lastResortDue(tn, r) {
			t.Fatal("it goes on, and one of three is not back")
		}
	}
	if !p.lastResortDue(tn, r) {
		t.Error("the time is over, and the owner or its heir is waited for, silent for seconds")
	}
}

// A copy from a disk is not dropped because some member names an owner and an heir: both may have ended with all
// others.
func TestACopyFromADiskIsKept(t *testing.T) {
	_, p, tn := readBack(t)
	later := peer.Epoch{Counter: 9, Instance: third}
	p.vote = grantedTo(later)
	p.Step(tn, other, Message{Announce: &peer.Announce{Partition: p.id, Epoch: later, Heir: fourth}})
	if p.role != peer.Copy {
		t.Fatal("it is dropped at once")
	}
	tn.View = view.New(self, members(self, other, third), seats{0, 1}, 3, 3)
	for range 3 {
		tn.Now += keepFor
		p.Tick(tn)
	}
	if p.role != peer.Nothing {
		t.Error("it stays, and the owner has been in view for long")
	}
}

// Who leaves waits until an owner has found what its disk has: it may be the best copy there is.
func TestWhoLeavesWaitsForWhatItsDiskHas(t *testing.T) {
	_, p, tn := readBack(t)
	if p.claiming.round = nil; p.Drained(tn.View) {
		t.Error("nobody has its copy, and it may go")
	}
	later := peer.Epoch{Counter: 9, Instance: other}
	p.Step(tn, other, Message{Announce: &peer.Announce{Partition: p.id, Epoch: later, Heir: third}})
	if p.claiming.round = nil; !p.Drained(tn.View) {
		t.Errorf("another member owns it by %v: it may not go", p.owner)
	}
}

// What the disk lacks is what changed since it was saved; after an error it is everything.
func TestWhatIsSaved(t *testing.T) {
	_, p, tn := readBack(t)
	d := p.OnDisk()
	first, some := d.Save(tn)
	if !some || first.Batch.Kind != peer.Snapshot || first.Batch.Seq != 5 {
		t.Fatalf("after a start: %+v, %t", first, some)
	}
	if again, some := d.Save(tn); some {
		t.Errorf("nothing has changed: %+v", again)
	}
	e := p.epoch
	lo, _ := bits.Div64(uint64(p.id)%table.Partitions, 0, table.Partitions)
	id := table.ID{Hi: 8, Lo: (lo + 1) ^ arith.NameID(arith.RememberedLimit()),
		State: arith.NewID(limiter.Minute, 0, 1, 1)}
	p.Step(tn, third, Message{Batch: &peer.Batch{Partition: p.id, Epoch: e, BaseEpoch: e, Base: 5, Seq: 6},
		Keys: []Entries{{Hi: 9}, {Hi: 9}, {Hi: 4}}, IDs: []table.ID{id}})
	if p.FromDisk() {
		t.Error("an owner has confirmed it, and it is from the disk")
	}
	next, some := d.Save(tn)
	if !some || next.Batch.Kind != peer.Delta || next.Batch.Base != 5 || next.Batch.Seq != 6 || len(next.Keys) != 3 {
		t.Errorf("two keys and an id have changed: %+v, %t", next, some)
	}
	if !d.Saving(&next.Batch) {
		t.Error("the state is still that one")
	}
	d.SaveAll()
	if all, some := d.Save(tn); !some || all.Batch.Kind != peer.Snapshot {
		t.Errorf("after an error: %+v", all)
	}
	p.drop()
	if d.Saving(&next.Batch) {
		t.Error("the state was dropped, and is being saved")
	}
	for range 2 {
		if none, some := d.Save(tn); some || none.Old {
			t.Errorf("it was dropped just now, and perhaps no other disk has it: %+v, %t", none, some)
		}
		tn.Now += keptSaves*limiter.Second + keptSavesFor - 1
	}
	tn.Now++
	if none, some := d.Save(tn); !some || !none.Nothing {
		t.Errorf("nothing is held: %+v, %t", none, some)
	}
	if none, some := d.Save(tn); some {
		t.Errorf("nothing is held, and the disk has nothing: %+v", none)
	}
}

// What the disk has only in old records stays until it is written anew, or not needed: after a start, after an error
// and after a save that did not come to its end.
func TestOldRecordsAreKept(t *testing.T) {
	for name, begin := range map[string]func(OnDisk, *Step){
		"a start": func(OnDisk, *Step) {},
		"an error": func(d OnDisk, tn *Step) {
			d.Save(tn)
			d.SaveAll()
		},
		"not finished": func(d OnDisk, tn *Step) {
			d.Save(tn)
			d.Unfinished()
		},
	} {
		_, p, tn := readBack(t)
		d := p.OnDisk()
		begin(d, tn)
		p.drop()
		if none, some := d.Save(tn); some || !none.Old {
			t.Errorf("%s: it was dropped, and may be deleted: %+v, %t", name, none, some)
		}
		tn.Now += keptSaves*limiter.Second + keptSavesFor
		if none, some := d.Save(tn); !some || !none.Nothing || none.Old {
			t.Errorf("%s: it is not needed: %+v, %t", name, none, some)
		}
		if none, some := d.Save(tn); some || none.Old {
			t.Errorf("%s: nothing is left: %+v, %t", name, none, some)
		}
	}
}

// An owner that no member could be heir of lists its changes for its disk alone: no tick ends a batch, or looks at it,
// until the disk saves. Its sequence passes what the disk had.
func TestChangesForTheDiskAlone(t *testing.T) {
	l := newLab()
	node := l.node(self)
	node.SaveEvery = limiter.Second
	p := New(node, 7)
	tn := l.turn(view.New(self, members(self), seats{0, 0}, 1, 1))
	e := peer.Epoch{Counter: 4, Instance: self}
	p.Begin(tn, Fixture{Role: peer.Owned, Epoch: e, Owner: e})
	d := p.OnDisk()
	before, _ := d.Save(tn)
	k := arith.Key{Hash: arith.Hash{Hi: 9}, Cost: 1, Rule: new(limiter.Rule)}
	tn.Reset()
	for i := range uint64(3) {
		k.Hash.Hi = 9 + i%2
		p.own.Charged(tn, &k, &arith.Idempotency{ID: 64}, false, 1)
	}
	denied, held, another := arith.Key{Hash: arith.Hash{Hi: 20}}, k, k
	p.own.Charged(tn, &denied, nil, false, 0)
	held.Hash.Hi, another.Hash.Hi = 21, 22
	p.own.Charged(tn, &held, &arith.Idempotency{ID: 5, Hold: time.Second}, false, 1)
	p.own.Charged(tn, &another, nil, false, 0) // it was another limit's
	p.own.Charged(tn, &another, nil, false, 1)
	if tn.Any() || len(p.own.dirty.list) > 0 {
		t.Errorf("a tick is to end the batch of %d keys: %+v", len(p.own.dirty.list), tn.Effects)
	}
	tn.Now += batchEvery
	if next := p.Tick(tn); next != Never || p.seq != before.Batch.Seq {
		t.Errorf("a tick ends the batch %d, or another one is wanted at %d", p.seq, next)
	}
	saved, some := d.Save(tn)
	p.Flush(tn)
	if b := saved.Batch; !some || b.Kind != peer.Delta || b.Base != before.Batch.Seq || b.Seq <= b.Base || b.Seq != p.seq {
		t.Errorf("what was charged is saved as %+v, %t", b, some)
	}
	k9, k10 := k, k
	k9.Hash.Hi, k10.Hash.Hi = 9, 10
	listed := []uint64{table.IDOf(&k9, 64).Hi, table.IDOf(&k10, 64).Hi, 20, 21, 22, table.IDOf(&held, 5).Hi}
	slices.Sort(listed)
	if slices.Sort(saved.Keys); !slices.Equal(saved.Keys, listed) {
		t.Errorf("the keys %v are listed: %v may recover sooner, or are ids", saved.Keys, listed)
	}
	if again, some := d.Save(tn); some {
		t.Errorf("nothing has changed since: %+v", again)
	}
	p.own.Charged(tn, &k, nil, false, 1)
	p.disown()
	if saved, some := d.Save(tn); !some || saved.Batch.Kind != peer.Delta {
		t.Errorf("what was charged before the ownership has ended: %+v, %t", saved, some)
	}
	if again, some := d.Save(tn); some {
		t.Errorf("nothing has changed since it ended: %+v", again)
	}
}

// Changed keys are remembered once each, up to a bound, beyond which all are written; the hash 0 is as good as that.
func TestTheChangedKeysAreBounded(t *testing.T) {
	s := &saving{has: true}
	for range 2 {
		for hi := range uint64(mostUnsaved) {
			s.changed(hi + 1)
		}
	}
	all := s.keys.take()
	slices.Sort(all)
	if s.whole || len(all) != mostUnsaved || all[0] != 1 || all[len(all)-1] != mostUnsaved {
		t.Fatalf("%d keys, all are to be written: %t", len(all), s.whole)
	}
	if s.changed(7); len(s.keys.slots) != 2*mostUnsaved || s.keys.n != 1 {
		t.Errorf("the set is as large as before, and has one key: %d of %d", s.keys.n, len(s.keys.slots))
	}
	if all := s.keys.take(); len(all) != 1 || all[0] != 7 || len(s.keys.slots) != mostUnsaved {
		t.Errorf("few keys have changed: %v, and %d are expected", all, len(s.keys.slots))
	}
	for hi := range uint64(mostUnsaved) {
		s.changed(hi + 1)
	}
	for hi := range uint64(mostUnsaved) {
		s.changed(1<<60 + hi)
	}
	if !s.whole || s.keys.slots != nil {
		t.Errorf("%d keys are remembered", s.keys.n)
	}
	z := new(saving)
	if z.changed(0); !z.whole {
		t.Error("the hash 0 is lost")
	}
}
