package cluster

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// identified is an owner of a key with 10 a day, whose clients send ids.
type identified struct {
	reservedAt
	id uint64
}

func newIdentified(t *testing.T, mode limiter.Replication) *identified {
	t.Helper()
	c, p, h, charge := limited(t, limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 10, Window: 24 * time.Hour})
	k := charge.Key(0)
	k.Rule.Replication = mode
	return &identified{reservedAt{T: t, c: c, p: p, h: h, key: peer.Key{Hi: k.Hash.Hi, Lo: k.Hash.Lo},
		rule: mesh.Definition(k.Rule)}, 77}
}

// try makes a member ask for 4 with the id, as a part of a check over several owners or alone.
func (x *identified) try(from peer.Instance, n uint64, part bool) *peer.Reply {
	x.Helper()
	return x.check(from, n, 4, peer.Check{Prepare: part, Settles: part, Wait: uint32(firstWait), ChargeID: x.id,
		Life: uint64(limiter.Minute)})
}

// cancel ends the reservation of a member: its whole check was denied.
func (x *identified) cancel(from peer.Instance, r peer.Receipt) {
	x.Helper()
	k := x.key
	k.Cost = 4
	x.c.Deliver(&peer.Frame{From: from, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{k}, Refunds: []peer.Refund{
		{ID: 99, Keys: 1, Kind: peer.RefundReserved, Receipt: r, ChargeID: x.id, Denied: true},
	}})
}

// remembers reports whether the id is remembered.
func (x *identified) remembers() bool {
	charge := &arith.Charge{ID: &arith.Idempotency{ID: x.id, Life: time.Minute}}
	charge.Add(arith.Key{Hash: arith.Hash{Hi: x.key.Hi, Lo: x.key.Lo}, Rule: x.c.config.Rule("r"), Cost: 4})
	return x.c.table.Remembers(x.h.now, charge)
}

// wants fails unless so much remains.
func (x *identified) wants(remaining uint64, when string) {
	x.Helper()
	if left, _ := x.left(); left != remaining {
		x.Errorf("%s: %d remain, want %d", when, left, remaining)
	}
}

// acknowledge has the heir take what it is sent. It returns the keys of each batch, and the
// entries of ids among them.
func (x *identified) acknowledge() (keys []uint32, ids int) {
	x.h.pass(20 * limiter.Millisecond)
	for f := x.c.Take(other, true); f != nil; f = x.c.Take(other, true) {
		for i := range f.Entries {
			if !f.Entries[i].Gone && limiter.Algorithm(f.Limits[f.Entries[i].Limit].Algorithm) == arith.Remembered {
				ids++
			}
		}
		for _, b := range f.Batches {
			keys = append(keys, b.Keys)
			x.c.Deliver(&peer.Frame{From: other, To: self, Acks: []peer.Ack{
				{Partition: x.p.id, Epoch: look(x.p).Epoch, Ping: b.Ping, Seq: b.Seq, Appointment: 1, Owner: look(x.p).Epoch},
			}})
		}
	}
	return keys, ids
}

// A check over several owners that is denied forgets its id for no key that another check has charged with it, also not
// at the very instant of that.
func TestADeniedCheckForgetsItsOwnIDs(t *testing.T) {
	x := newIdentified(t, limiter.ReplicationOff)
	x.try(third, 1, false)
	k, two := x.key, x.key
	k.Cost, two.Cost, two.Hi = 4, 4, two.Hi+1
	keys := []peer.Key{k, two}
	x.c.Deliver(&peer.Frame{From: third, To: self, Rules: []peer.Rule{x.rule}, Keys: keys, Checks: []peer.Check{
		{ID: 2, Keys: 2, Prepare: true, Settles: true, Wait: uint32(firstWait), ChargeID: x.id, Life: uint64(limiter.Minute)},
	}})
	r := x.reply(third, 2)
	if r == nil || r.Receipt.Charged != 2 {
		t.Fatalf("premise: the other key is charged: %+v", r)
	}
	x.c.Deliver(&peer.Frame{From: third, To: self, Rules: []peer.Rule{x.rule}, Keys: keys, Refunds: []peer.Refund{
		{ID: 99, Keys: 2, Kind: peer.RefundReserved, Receipt: r.Receipt, ChargeID: x.id, Denied: true},
	}})
	if !x.remembers() {
		t.Error("the id of the first check is forgotten")
	}
	x.wants(6, "one check stands")
	x.key.Hi++
	if x.remembers() {
		t.Error("the id of the denied check is remembered")
	}
	x.wants(10, "the other is taken back")
}

// The heir gets a charge and its id in one batch, and nothing because of a repetition.
func TestAnIDIsCopiedWithItsCharge(t *testing.T) {
	x := newIdentified(t, limiter.ReplicationOff)
	x.h.now++ // after the instant in which it became owner
	r := x.try(third, 1, false)
	if r == nil || r.Repeated || r.Receipt.Charged != 1 {
		t.Fatalf("%+v", r)
	}
	if keys, ids := x.acknowledge(); len(keys) != 1 || keys[0] != 2 || ids != 1 {
		t.Errorf("copied are %v keys, %d ids", keys, ids)
	}
	again := x.try(other, 2, false)
	if again == nil || !again.Repeated || again.Receipt != r.Receipt {
		t.Errorf("%+v, want what %+v was", again, r)
	}
	x.wants(6, "after two tries")
	if keys, _ := x.acknowledge(); len(keys) != 0 {
		t.Errorf("a repetition copies %v", keys)
	}
}

// While the reply to an attempt is withheld, its charge may be taken back. So another attempt
// waits: it repeats what is acknowledged, and charges anew after what was taken back.
func TestAnAttemptWaitsForAWithheldReply(t *testing.T) {
	for _, acked := range []bool{true, false} {
		x := newIdentified(t, limiter.ReplicationStrict)
		if r := x.try(third, 1, false); r != nil {
			t.Fatalf("premise: the reply is withheld: %+v", r)
		}
		const wait = 2 * limiter.Second
		if r := x.check(other, 2, 4, peer.Check{Wait: uint32(wait), ChargeID: x.id, Life: uint64(limiter.Minute)}); r != nil {
			t.Fatalf("another attempt is told %+v", r)
		}
		x.wants(6, "while both wait")
		if acked {
			i := look(x.p)
			x.c.Deliver(&peer.Frame{From: other, To: self,
				Acks: []peer.Ack{{Partition: x.p.id, Epoch: i.Epoch, Seq: 1 << 30, Appointment: 1, Owner: i.Epoch}}})
			x.h.pass(20 * limiter.Millisecond)
			if r := x.reply(other, 2); r == nil || !r.Repeated {
				t.Errorf("when the first is acknowledged it is told %+v", r)
			}
			continue
		}
		first := x.h.now
		x.h.pass(firstWait + 2*replica.TickEvery) // then the first gives up
		x.wants(6, "after the first has given up")
		charge := &arith.Charge{Peek: true, ID: &arith.Idempotency{ID: x.id, Life: time.Minute}}
		charge.Add(arith.Key{Hash: arith.Hash{Hi: x.key.Hi, Lo: x.key.Lo}, Rule: x.c.config.Rule("r"), Cost: 4})
		d := new(limiter.Decision)
		if err := x.c.table.Decide(x.h.now, charge, d); err != nil || !d.Repeated || arith.Fields(&d.Receipt).Time <= first {
			t.Errorf("charged is %+v, %v, and not anew", d.Receipt, err)
		}
	}
}

// What becomes of a reservation decides what a later attempt with its id is told.
func TestAnAttemptWaitsForAReservation(t *testing.T) {
	for name, test := range map[string]struct {
		end      func(x *identified, r peer.Receipt)
		repeated bool
	}{
		"taken back":           {func(x *identified, r peer.Receipt) { x.cancel(third, r) }, false},
		"never heard of again": {func(x *identified, _ peer.Receipt) { x.h.pass(firstWait + replica.TickEvery) }, true},
		"another member's cancel": {func(x *identified, r peer.Receipt) {
			x.cancel(other, r)
			x.h.pass(firstWait + replica.TickEvery)
		}, true},
	} {
		x := newIdentified(t, limiter.ReplicationOff)
		first := x.try(third, 1, true)
		if first == nil || first.Receipt.Charged != 1 {
			t.Fatalf("%s: %+v", name, first)
		}
		if r := x.check(other, 2, 4, peer.Check{Wait: uint32(limiter.Second), ChargeID: x.id,
			Life: uint64(limiter.Minute)}); r != nil {
			t.Fatalf("%s: another attempt is told %+v before it is known", name, r)
		}
		x.h.now += limiter.Millisecond
		test.end(x, first.Receipt)
		r := x.reply(other, 2)
		if r == nil || r.Status != peer.Decided || r.Repeated != test.repeated {
			t.Fatalf("%s: then it is told %+v", name, r)
		}
		x.wants(6, name)
		if !x.remembers() {
			t.Errorf("%s: the id is not remembered", name)
		}
		// The first attempt's cancel arrives late, or once more.
		x.cancel(third, first.Receipt)
		x.wants(6, name+", after a late cancel")
		if !x.remembers() {
			t.Errorf("%s: a late cancel forgets the id", name)
		}
	}
}

// A part that is a repetition reserves nothing, so that its cancel takes nothing back.
func TestARepetitionReservesNothing(t *testing.T) {
	x := newIdentified(t, limiter.ReplicationOff)
	x.try(third, 1, false)
	r := x.try(other, 2, true)
	if r == nil || !r.Repeated || look(x.p).InDoubt != 0 {
		t.Fatalf("%+v, %d in doubt", r, look(x.p).InDoubt)
	}
	x.cancel(other, r.Receipt)
	x.wants(6, "after the cancel of a repetition")
	if !x.remembers() {
		t.Error("the id is forgotten")
	}
}

// What another owner has charged is known here by its id, and no receipt is good for it. Its charge comes
// in the very instant in which this ownership begins, or is merged later, and seems to be of that instant.
func TestARepetitionHasNoReceiptOfAnotherOwners(t *testing.T) {
	elsewhere := newIdentified(t, limiter.ReplicationOff)
	elsewhere.try(third, 1, false)
	elsewhere.h.pass(20 * limiter.Millisecond)
	sent := elsewhere.c.Take(other, true)
	if len(sent.Batches) != 1 || sent.Batches[0].Keys != 2 {
		t.Fatalf("premise: the heir is sent a key and an id: %+v", sent.Batches)
	}
	for i := range sent.Entries {
		if sent.Entries[i].Until < 0 {
			sent.Entries[i].Until = 0 // it was sent at once
		}
	}
	for name, merged := range map[string]bool{"handed over": false, "merged": true} {
		x := newIdentified(t, limiter.ReplicationOff)
		e := peer.Epoch{Counter: 1, Instance: third}
		b := peer.Batch{Partition: x.p.id, Kind: peer.Push, Epoch: e, First: true, Last: true, Keys: 2}
		if !merged {
			put(x.c, x.p, replica.Fixture{Role: peer.Heir, Epoch: e, Owner: e, Heir: self})
			b = peer.Batch{Partition: x.p.id, Kind: peer.Handover, Epoch: e, BaseEpoch: e, Ping: 1,
				Next: peer.Epoch{Counter: 2, Instance: self}, Keys: 2}
		}
		x.h.pass(limiter.Second)
		x.c.Deliver(&peer.Frame{From: third, To: self, Limits: sent.Limits, Entries: sent.Entries, Batches: []peer.Batch{b}})
		if look(x.p).Role != peer.Owned {
			t.Fatalf("%s: premise: it is the owner", name)
		}
		x.h.pass(limiter.Second)
		if r := x.try(other, 2, false); r == nil || !r.Repeated || r.Receipt.Charged != 0 {
			t.Errorf("%s: %+v", name, r)
		}
		x.id++ // what is charged here has a receipt
		first := x.try(other, 3, false)
		if r := x.try(third, 4, false); first == nil || r == nil || !r.Repeated || r.Receipt != first.Receipt ||
			r.Receipt.Charged == 0 {
			t.Errorf("%s: a repetition of what was charged here: %+v, after %+v", name, r, first)
		}
	}
}

// The cancel of an attempt forgets its id at the heir too: in the batch of what is taken back.
func TestACancelIsCopiedWithItsID(t *testing.T) {
	x := newIdentified(t, limiter.ReplicationOff)
	r := x.try(third, 1, true)
	x.acknowledge()
	x.cancel(third, r.Receipt)
	x.wants(10, "after the cancel")
	if keys, ids := x.acknowledge(); len(keys) != 1 || keys[0] != 2 || ids != 0 || x.remembers() {
		t.Errorf("copied are %v keys, %d ids", keys, ids)
	}
}

// A refund forgets the id at the heir too, although its counter has recovered.
func TestARefundIsCopiedWithItsID(t *testing.T) {
	x := newIdentified(t, limiter.ReplicationOff)
	r := x.try(third, 1, false)
	x.acknowledge()
	k := x.key
	k.Cost = 4
	receipt := r.Receipt
	receipt.Epoch.Counter += uint64(self)
	x.c.Deliver(&peer.Frame{From: third, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{k}, Refunds: []peer.Refund{
		{ID: 9, Keys: 1, Receipt: receipt, ChargeID: x.id},
	}})
	x.wants(10, "after the refund")
	if keys, _ := x.acknowledge(); x.remembers() || len(keys) != 1 || keys[0] != 2 {
		t.Errorf("the id is remembered: %t; copied are %v keys", x.remembers(), keys)
	}
}

// An id whose time is out of range, or a time without an id, is no check of a member's.
func TestForgedIDs(t *testing.T) {
	for name, q := range map[string]peer.Check{
		"a time without an id": {Life: uint64(limiter.Minute)},
		"an id without a time": {ChargeID: 7},
		"too short":            {ChargeID: 7, Life: 999},
		"too long":             {ChargeID: 7, Life: uint64(limiter.Day) + 1},
		"far too long":         {ChargeID: 7, Life: 1<<64 - 1},
	} {
		x := newIdentified(t, limiter.ReplicationOff)
		q.Wait = uint32(firstWait)
		if r := x.check(third, 1, 4, q); r != nil {
			t.Errorf("%s: %+v", name, r)
		}
		x.wants(10, name)
	}
}

// No rule of another node has a limit that remembers ids or reservations, and no counter one that looks like it.
func TestForgedLimits(t *testing.T) {
	for algorithm, limit := range map[limiter.Algorithm]*limiter.Limit{
		arith.Remembered: arith.RememberedLimit(), arith.Holds: arith.HoldsLimit(),
	} {
		known := mesh.NewDictionary(func(string) *limiter.Rule { return nil })
		own := mesh.Definition(&limiter.Rule{Name: "own", Limits: []*limiter.Limit{limit}})
		if l, err := known.Limit(&own.Limits[0]); err != nil || l.Algorithm() != algorithm {
			t.Errorf("%v, %v", l, err)
		}
		known.Learn([]peer.Rule{own})
		if r, _ := known.Lookup(&own, false); r != nil {
			t.Errorf("a rule with it: %+v", r)
		}
		more, longer := own.Limits[0], own.Limits[0]
		more.Limit++
		longer.Window++
		for _, like := range []peer.Limit{more, longer} {
			if l, err := known.Limit(&like); err == nil {
				t.Errorf("a limit that looks like it: %+v", l)
			}
		}
	}
}

// A denial that another check got does not answer a check with an id, which may have been
// admitted before.
func TestIDsAreAskedPastCachedDenials(t *testing.T) {
	c, charge := rememberer(t)
	ask := func() *limiter.Decision {
		d := new(limiter.Decision)
		c.Begin(charge, d, 0, func() {})
		return d
	}
	ask()
	c.Deliver(&peer.Frame{
		From: other, To: self, Results: []peer.Result{{RetryAfter: int64(limiter.Minute)}},
		Replies: []peer.Reply{{ID: drain(c)[other].Checks[0].ID, Status: peer.Decided, Results: 1}},
	})
	if ask().Source != limiter.SourceCached {
		t.Fatal("premise: the denial is cached")
	}
	charge.ID = &arith.Idempotency{ID: 7, Life: time.Minute}
	if d := ask(); d.Source == limiter.SourceCached {
		t.Errorf("%+v", d)
	}
	if q := drain(c)[other].Checks; len(q) != 1 || q[0].ChargeID != 7 || q[0].Life != uint64(limiter.Minute) {
		t.Errorf("asked is %+v", q)
	}
}

// While an owner has very many changes that its heir lacks, it decides no check with an id.
func TestIDsThatAreNotCopiedAreBounded(t *testing.T) {
	x := newIdentified(t, limiter.ReplicationOff)
	x.id = 1
	k := arith.Key{Hash: arith.Hash{Hi: x.key.Hi, Lo: x.key.Lo}, Rule: x.c.config.Rule("r")}
	for i := range uint64(1 << 14) {
		k.Hash.Hi = i
		x.p.mu.Lock()
		x.p.charged(x.c.begin(), &k, nil, false, 0)
		x.p.mu.Unlock()
	}
	if r := x.try(third, 1, false); r == nil || r.Status != peer.Overloaded {
		t.Errorf("%+v", r)
	}
	if r := x.check(third, 2, 4, long); r == nil || r.Status != peer.Decided {
		t.Errorf("without an id: %+v", r)
	}
}

// Where the id of a check is known for some of its keys, a denial names the others alone. A member
// that asked for it is told which: at the owner, also of a part of a check over several owners.
func TestADenialOfTheOtherKeys(t *testing.T) {
	for _, part := range []bool{false, true} {
		x := newIdentified(t, limiter.ReplicationOff)
		if r := x.try(third, 1, false); r == nil || r.Receipt.Charged != 1 {
			t.Fatalf("premise: %+v", r)
		}
		key := peer.Key{Hi: x.key.Hi, Lo: x.key.Lo, Cost: 4}
		more := key
		more.Hi, more.Cost, more.Index = key.Hi+1, 11, 1
		x.c.Deliver(&peer.Frame{From: other, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{key, more},
			Checks: []peer.Check{{
				ID: 2, Keys: 2, Wait: uint32(firstWait), ChargeID: x.id, Life: uint64(limiter.Minute), Prepare: part, Settles: part,
			}}})
		f, sets := drain(x.c)[other], 1
		if part {
			sets = 2
		}
		if len(f.Replies) != 1 || f.Replies[0].Known != 1 || f.Replies[0].Results != 1 || f.Replies[0].Idle != part ||
			len(f.Results) != sets || !f.Results[0].Never {
			t.Errorf("part %t: %+v, %+v", part, f.Replies, f.Results)
		}
	}
}

// So its asker takes the answer.
func TestADenialOfTheOtherKeysIsTaken(t *testing.T) {
	c, _, h, like := single(t, limiter.UnreachableLocal)
	charge := like.Clone()
	charge.Add(*like.Key(0))
	charge.Key(1).Index, charge.Key(1).Hash.Hi = 1, 9
	charge.ID = &arith.Idempotency{ID: 77, Life: time.Minute}
	answer, told := new(limiter.Decision), 0
	c.Begin(charge, answer, h.now+limiter.Second, func() { told++ })
	id := drain(c)[third].Checks[0].ID
	c.Deliver(&peer.Frame{
		From: third, To: self, Results: []peer.Result{{RetryAfter: 70}},
		Replies: []peer.Reply{{ID: id, Status: peer.Decided, Results: 1, Known: 1}},
	})
	if told != 1 || answer.Allowed || answer.Len() != 1 || answer.Limit(0).Key != 1 || answer.Limit(0).KeyIndex != 1 {
		t.Errorf("told %d times: %+v", told, answer)
	}
}

// A reset has an id, which its heir gets with it, also if the key had no counter. A reset whose id
// is known is answered, and not executed.
func TestAResetIsKnownByItsID(t *testing.T) {
	x := newIdentified(t, limiter.ReplicationOff)
	reset := func(copied int) peer.Reply {
		t.Helper()
		k := x.key
		k.Cost = 1
		x.c.Deliver(&peer.Frame{From: third, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{k},
			Refunds: []peer.Refund{
				{ID: 5, Keys: 1, Kind: peer.ResetKeys, ChargeID: 99},
			}})
		if _, ids := x.acknowledge(); ids != copied {
			t.Errorf("%d ids are copied, want %d", ids, copied)
		}
		r := drain(x.c)[third].Replies
		if len(r) != 1 || r[0].Status != peer.Done {
			t.Fatalf("the reset is answered by %+v", r)
		}
		return r[0]
	}
	reset(1)
	if n := x.c.table.Count(int(x.p.id)); n != 1 {
		t.Errorf("%d entries, want that of the id", n)
	}
	x.try(third, 1, false)
	x.acknowledge()
	drain(x.c)
	if r := reset(0); r.Count != 0 {
		t.Errorf("again %d counters are forgotten", r.Count)
	}
	x.wants(6, "after the reset that was known")
	x.h.pass(2 * limiter.Second)
	drain(x.c)
	if r := reset(1); r.Count != 1 {
		t.Errorf("when its id is forgotten, %d counters are forgotten, want 1", r.Count)
	}
}

// A node gives its resets ids.
func TestResetsHaveIDs(t *testing.T) {
	c, _, _, charge := single(t, limiter.UnreachableLocal)
	ids := make(map[uint64]bool)
	for range 2 {
		c.Reset(charge, func(route.Outcome) {})
		ids[drain(c)[third].Refunds[0].ChargeID] = true
	}
	if len(ids) != 2 || ids[0] {
		t.Errorf("the ids are %v", ids)
	}
}

// An owner with many changes that its heir lacks adds no ids of resets to them.
func TestAResetOfAnOwnerThatIsBehind(t *testing.T) {
	x := newIdentified(t, limiter.ReplicationOff)
	turn := x.c.begin()
	for i := range uint64(1 << 14) {
		x.p.charged(turn, &arith.Key{Hash: arith.Hash{Hi: 1000 + i}, Rule: x.c.config.Rule("r")}, nil, false, 0)
	}
	turn.end()
	if !x.p.r.Own().Behind() {
		t.Fatal("premise: it is not behind")
	}
	k := x.key
	k.Cost = 1
	x.c.Deliver(&peer.Frame{From: third, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{k}, Refunds: []peer.Refund{
		{ID: 5, Keys: 1, Kind: peer.ResetKeys, ChargeID: 99},
	}})
	if n := x.c.table.Count(int(x.p.id)); n != 0 {
		t.Errorf("%d entries are there, want none", n)
	}
}
