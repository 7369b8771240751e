package cluster

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// The charge of a check is taken back for all its keys if one partition withholds the reply until the
// deadline. So an attempt that shares a key with it waits, also if the partition of that key does not
// withhold the reply: since its heir has the charge, or since the charge is within D.
func TestAnAttemptWaitsForAReplyWithheldElsewhere(t *testing.T) {
	for name, test := range map[string]struct {
		cost     uint64 // of the key that both attempts have; D is 1
		answered bool   // all is acknowledged in the end
	}{
		"acknowledged here, taken back":   {4, false},
		"acknowledged here, then there":   {4, true},
		"never withheld here, taken back": {1, false},
		"never withheld here, then acked": {1, true},
	} {
		x := newIdentified(t, limiter.ReplicationLag)
		like := &arith.Charge{}
		like.Add(arith.Key{Hash: arith.Hash{Hi: x.key.Hi, Lo: x.key.Lo}, Rule: x.c.config.Rule("r")})
		more := spread(x.c, like, self).Key(0)
		there := x.c.partitions.byID[table.PartitionOf(more)]
		own(x.c, there)
		acked := func(p *partition) {
			e := look(p).Epoch
			x.c.Deliver(&peer.Frame{From: other, To: self,
				Acks: []peer.Ack{{Partition: p.id, Epoch: e, Seq: 1 << 30, Appointment: 1, Owner: e}}})
			x.h.pass(2 * replica.TickEvery)
		}
		const wait = 2 * limiter.Second
		here := x.key
		here.Cost = test.cost
		x.c.Deliver(&peer.Frame{
			From: third, To: self, Rules: []peer.Rule{x.rule},
			Keys:   []peer.Key{here, {Hi: more.Hash.Hi, Lo: more.Hash.Lo, Cost: 4, Index: 1}},
			Checks: []peer.Check{{ID: 1, Keys: 2, Wait: uint32(firstWait), ChargeID: x.id, Life: uint64(limiter.Minute)}},
		})
		x.wants(10-test.cost, name+": at first")
		acked(x.p)
		if r := x.reply(third, 1); r != nil || look(x.p).Withheld != 0 || look(there).Withheld != 1 {
			t.Fatalf("%s: premise: the reply is withheld there only: %+v", name, r)
		}
		if r := x.check(other, 2, test.cost, peer.Check{Wait: uint32(wait), ChargeID: x.id,
			Life: uint64(limiter.Minute)}); r != nil {
			t.Fatalf("%s: another attempt is told %+v", name, r)
		}
		if test.answered {
			acked(there)
		} else {
			x.h.pass(firstWait + 2*replica.TickEvery) // then the first gives up
			acked(x.p)
		}
		r := x.reply(other, 2)
		if r == nil || r.Status != peer.Decided || r.Repeated != test.answered {
			t.Errorf("%s: then it is told %+v", name, r)
		}
		x.wants(10-test.cost, name+": in the end")
	}
}

// withheldThere is an owner of two partitions with a check that has charged 4 in each. The first one's heir has
// that. The second one, there, withholds the reply.
func withheldThere(t *testing.T, id uint64) (x *identified, there *partition) {
	t.Helper()
	x = newIdentified(t, limiter.ReplicationStrict)
	like := &arith.Charge{}
	like.Add(arith.Key{Hash: arith.Hash{Hi: x.key.Hi, Lo: x.key.Lo}, Rule: x.c.config.Rule("r")})
	more := spread(x.c, like, self).Key(0)
	there = x.c.partitions.byID[table.PartitionOf(more)]
	own(x.c, there)
	here, life := x.key, uint64(0)
	here.Cost = 4
	if id != 0 {
		life = uint64(limiter.Minute)
	}
	x.c.Deliver(&peer.Frame{
		From: third, To: self, Rules: []peer.Rule{x.rule},
		Keys:   []peer.Key{here, {Hi: more.Hash.Hi, Lo: more.Hash.Lo, Cost: 4, Index: 1}},
		Checks: []peer.Check{{ID: 1, Keys: 2, Wait: uint32(firstWait), ChargeID: id, Life: life}},
	})
	x.h.pass(20 * limiter.Millisecond)
	e := look(x.p).Epoch
	x.c.Deliver(&peer.Frame{From: other, To: self,
		Acks: []peer.Ack{{Partition: x.p.id, Epoch: e, Seq: 1 << 30, Appointment: 1, Owner: e}}})
	drain(x.c)
	if look(x.p).Withheld != 0 || look(there).Withheld != 1 {
		t.Fatal("premise: the reply is withheld there only")
	}
	x.wants(6, "at first")
	return x, there
}

// At the deadline each partition takes back what was charged to its own keys, while this node owns it with the same
// state. What another one has got with a handover stands, at both: otherwise this node, its heir, would lack
// what a later attempt finds counted there. So does what a merged count may lack.
func TestEachPartitionTakesBackItsOwn(t *testing.T) {
	next := peer.Epoch{Counter: 4, Instance: other}
	for name, test := range map[string]struct {
		do   func(x *identified)
		left uint64
	}{
		"owned":           {func(*identified) {}, 10},
		"merged":          {func(x *identified) { x.merge() }, 6},
		"merged too late": {func(x *identified) { x.h.pass(firstWait); x.merge() }, 10},
		"handed over": {func(x *identified) {
			put(x.c, x.p, replica.Fixture{Role: peer.Heir, Epoch: next, Owner: next, Heir: self})
		}, 6},
		"handed over and back": {func(x *identified) {
			put(x.c, x.p, replica.Fixture{Role: peer.Heir, Epoch: next, Owner: next, Heir: self})
			own(x.c, x.p)
		}, 6},
	} {
		for _, id := range []uint64{0, 77} {
			x, there := withheldThere(t, id)
			test.do(x)
			x.h.pass(firstWait + 2*replica.TickEvery)
			if n := look(there).Withheld; n != 0 {
				t.Fatalf("%s: premise: %d replies wait there", name, n)
			}
			x.wants(test.left, name)
			if got, want := x.remembers(), id != 0 && test.left == 6; got != want {
				t.Errorf("%s: the id is remembered: %t, want %t", name, got, want)
			}
		}
	}
}

// What is taken back since another partition withheld the reply is copied, with its id: the heir would know
// the id of a charge that a later batch of its key does not have.
func TestWhatIsTakenBackForAnotherPartitionIsCopied(t *testing.T) {
	x, _ := withheldThere(t, 77)
	x.h.pass(firstWait - 40*limiter.Millisecond)
	drain(x.c)
	x.h.pass(60 * limiter.Millisecond)
	x.wants(10, "after the deadline")
	found := false
	if f := drain(x.c)[other]; f != nil {
		for _, b := range f.Batches {
			found = found || b.Partition == x.p.id && b.Keys == 2
		}
	}
	if !found {
		t.Error("the heir is not sent the key and its id")
	}
}

// A reply may end in one partition before another has taken back its part. Until that is done an attempt waits.
func TestAnAttemptWaitsUntilAllIsTakenBack(t *testing.T) {
	x, there := withheldThere(t, 77)
	k := arith.Key{Hash: arith.Hash{Hi: x.key.Hi, Lo: x.key.Lo}, Rule: x.c.config.Rule("r"), Cost: 4}
	there.mu.Lock()
	tr := x.c.begin()
	tr.Now += firstWait
	there.r.Tick(tr.inputs()) // its effects are not done yet
	there.mu.Unlock()
	x.p.mu.Lock()
	if !x.p.r.Own().Attempted(&k, &arith.Idempotency{ID: 77}) {
		t.Error("an attempt does not wait")
	}
	x.p.r.EndAwaited(x.c.begin().inputs())
	if x.p.r.Own().Attempted(&k, &arith.Idempotency{ID: 77}) {
		t.Error("an attempt waits for what is taken back")
	}
	x.p.mu.Unlock()
	x.wants(10, "in the end")
}

// A reply ends once.
func TestAReplyEndsOnce(t *testing.T) {
	for name, end := range map[string]func(h *withheldReply) bool{"answered": (*withheldReply).released,
		"taken back": (*withheldReply).TakeBack} {
		h := new(withheldReply)
		h.waits.Add(1)
		if over, _ := h.Over(); over || !end(h) {
			t.Errorf("%s: it does not end", name)
		}
		if over, back := h.Over(); !over || back != (name == "taken back") || h.TakeBack() || h.released() {
			t.Errorf("%s: over %t, taken back %t, or it ends twice", name, over, back)
		}
	}
}
