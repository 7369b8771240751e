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

// hold makes a member reserve 4 with the id, for a time.
func (x *identified) hold(from peer.Instance, n uint64, q peer.Check, h peer.Hold) *peer.Reply {
	x.Helper()
	k := x.key
	k.Cost, q.ID, q.Keys, q.ChargeID, q.Life, h.ID = 4, n, 1, x.id, uint64(limiter.Minute), n
	x.c.Deliver(&peer.Frame{From: from, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{k}, Checks: []peer.Check{q},
		Holds: []peer.Hold{h}})
	return x.reply(from, n)
}

// amend makes a member settle or extend the reservation.
func (x *identified) amend(from peer.Instance, n uint64, cost uint64, h *peer.Hold) *peer.Reply {
	x.Helper()
	k := x.key
	k.Cost = cost
	f := &peer.Frame{From: from, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{k}, Refunds: []peer.Refund{
		{ID: n, Keys: 1, Kind: peer.AmendHold, ChargeID: x.id},
	}}
	if h != nil {
		h.ID = n
		f.Holds = []peer.Hold{*h}
	}
	x.c.Deliver(f)
	return x.reply(from, n)
}

func minute() peer.Hold { return peer.Hold{Span: uint64(limiter.Minute)} }

func settling() *peer.Hold { return &peer.Hold{Life: uint64(limiter.Minute)} }

// The reply to a settlement, and to the same once more, waits until the heir has it. The batch
// has the key with its holds, and the id.
func TestASettlementWaitsForTheHeir(t *testing.T) {
	x := newIdentified(t, limiter.ReplicationOff)
	if r := x.hold(third, 1, long, minute()); r == nil || r.Receipt.Charged != 1 {
		t.Fatalf("%+v", r)
	}
	if keys, ids := x.acknowledge(); len(keys) != 1 || keys[0] != 2 || ids != 1 {
		t.Errorf("copied are %v keys, %d ids", keys, ids)
	}
	for n := range uint64(2) {
		if r := x.amend(third, 2+n, 0, settling()); r != nil {
			t.Errorf("settlement %d is answered before the heir has it: %+v", n, r)
		}
	}
	x.wants(10, "cancelled")
	for range 2 { // one batch at a time is under way
		i := look(x.p)
		x.c.Deliver(&peer.Frame{From: other, To: self,
			Acks: []peer.Ack{{Partition: x.p.id, Epoch: i.Epoch, Seq: 1 << 30, Appointment: 1, Owner: i.Epoch}}})
	}
	var got []peer.Amended
	for f := x.c.Take(third, true); f != nil; f = x.c.Take(third, true) {
		got = append(got, f.Amended...)
	}
	if len(got) != 2 || got[0].State != uint8(limiter.AmendDone) || got[0].Estimate != 4 ||
		got[1].State != uint8(limiter.AmendRepeated) {
		t.Errorf("told is %+v", got)
	}
}

// The owner of a counter hears that a settlement is of what a holder has used beyond what it was lent, and tells the
// member that asked which keys had counters.
func TestWhatAHolderSaysAcrossMembers(t *testing.T) {
	x := newIdentified(t, limiter.ReplicationOff)
	var got []peer.Amended
	for n := range uint64(4) { // 7, 7 and 6 of 7 are charged of a limit of 10
		x.id++
		h := settling()
		h.Lent = true
		x.amend(third, 1+n, 7, h)
		for range 2 {
			i := look(x.p)
			x.c.Deliver(&peer.Frame{From: other, To: self,
				Acks: []peer.Ack{{Partition: x.p.id, Epoch: i.Epoch, Seq: 1 << 30, Appointment: 1, Owner: i.Epoch}}})
		}
		for f := x.c.Take(third, true); f != nil; f = x.c.Take(third, true) {
			got = append(got, f.Amended...)
		}
	}
	if len(got) != 4 || got[0].Known != 0 || got[1].Known != 1 || got[1].State != uint8(limiter.AmendCharged) ||
		got[2].Over != 6 || got[3].State != uint8(limiter.AmendUnknown) {
		t.Errorf("told is %+v", got)
	}
}

// While a charge may be taken back, its settlement waits.
func TestASettlementWaitsForItsCheck(t *testing.T) {
	x := newIdentified(t, limiter.ReplicationOff)
	first := x.hold(third, 1, peer.Check{Prepare: true, Settles: true, Wait: uint32(firstWait)}, minute())
	if first == nil || first.Receipt.Charged != 1 {
		t.Fatalf("%+v", first)
	}
	x.amend(other, 2, 1, settling())
	x.wants(6, "while it is not known what becomes of the check")
	x.h.now += limiter.Millisecond
	x.cancel(third, first.Receipt)
	x.wants(9, "the check was denied, and the settlement is charged")
}

// A late cancel of a check takes nothing back that was settled, or that came back by itself.
func TestALateCancelOfAHold(t *testing.T) {
	for name, test := range map[string]struct {
		span  limiter.Tick
		meets func(x *identified)
		left  uint64
	}{
		"settled": {limiter.Minute, func(x *identified) { x.amend(other, 2, 3, settling()) }, 7},
		"over":    {20 * limiter.Millisecond, func(*identified) {}, 4},
		"held":    {limiter.Minute, func(*identified) {}, 4},
	} {
		x := newIdentified(t, limiter.ReplicationOff)
		r := x.hold(third, 1, peer.Check{Prepare: true, Settles: true, Wait: uint32(10 * limiter.Millisecond)},
			peer.Hold{Span: uint64(test.span)})
		if r == nil || r.Receipt.Charged != 1 {
			t.Fatalf("%s: %+v", name, r)
		}
		x.h.pass(40 * limiter.Millisecond) // the charge is late
		test.meets(x)
		if name != "settled" {
			x.id++
			x.hold(other, 3, long, minute()) // others' units, which are not to be given back
			x.amend(other, 4, 6, &peer.Hold{Life: uint64(limiter.Minute), Span: uint64(limiter.Minute), Extend: true})
			x.id--
		}
		x.cancel(third, r.Receipt)
		x.wants(test.left, name)
	}
}

// A cancel takes nothing back of a hold that is over and stays charged, though nothing else was charged since.
func TestACancelOfAHoldThatIsKept(t *testing.T) {
	x := newIdentified(t, limiter.ReplicationOff)
	x.id++
	x.hold(other, 3, long, minute()) // so that there is a counter
	x.id--
	r := x.hold(third, 1, peer.Check{Prepare: true, Settles: true, Wait: uint32(limiter.Second)},
		peer.Hold{Span: uint64(20 * limiter.Millisecond), Keep: true})
	if r == nil || r.Receipt.Charged != 1 {
		t.Fatalf("%+v", r)
	}
	x.h.pass(40 * limiter.Millisecond)
	x.cancel(third, r.Receipt)
	x.wants(2, "kept")
}

// Amendments and holds that contradict themselves change nothing.
func TestAmendmentsThatCannotBe(t *testing.T) {
	ok := func(change func(*peer.Hold)) *peer.Hold { h := settling(); change(h); return h }
	for what, h := range map[string]*peer.Hold{
		"no word of how":          nil,
		"no time to remember it":  ok(func(h *peer.Hold) { h.Life = 0 }),
		"remembered for ever":     ok(func(h *peer.Hold) { h.Life = 1 << 62 }),
		"extended by nothing":     ok(func(h *peer.Hold) { h.Extend = true }),
		"extended for ever":       ok(func(h *peer.Hold) { h.Extend, h.Span = true, 1<<62 }),
		"settled for a time":      ok(func(h *peer.Hold) { h.Span = 1 << 20 }),
		"taken back without word": ok(func(h *peer.Hold) { h.Back = true }),
		"an end of nothing":       ok(func(h *peer.Hold) { h.End = 1 << 40 }),
		"extended, taken back":    ok(func(h *peer.Hold) { h.Back, h.End, h.Extend, h.Span = true, 1<<40, true, 1<<20 }),
		"taken back, unknown":     ok(func(h *peer.Hold) { h.Back, h.End, h.Ignore = true, 1<<40, true }),
		"what was not extended":   ok(func(h *peer.Hold) { h.Back, h.End = true, 1<<40 }),
		"nothing (as it must be)": settling(),
	} {
		x := newIdentified(t, limiter.ReplicationOff)
		x.hold(third, 1, long, minute())
		x.amend(third, 2, 9, h)
		want := uint64(6)
		if what == "nothing (as it must be)" {
			want = 1
		}
		x.wants(want, what)
	}
	for what, h := range map[string]peer.Hold{
		"held for no time": {},
		"held for ever":    {Span: 1 << 62},
		"extended":         {Span: 1 << 20, Extend: true},
		"taken back":       {Span: 1 << 20, Back: true, End: 1 << 40},
		"of another life":  {Span: 1 << 20, Life: 1 << 20},
	} {
		x := newIdentified(t, limiter.ReplicationOff)
		if r := x.hold(third, 1, long, h); r != nil {
			t.Errorf("%s: %+v", what, r)
		}
		x.wants(10, what)
	}
}

// A reply with a result that there is none of is ignored, and the settlement goes on.
func TestResultsOfAmendmentsThatCannotBe(t *testing.T) {
	for what, a := range map[string]peer.Amended{
		"a state":       {State: 99},
		"a wait":        {RetryAfter: -1},
		"a long wait":   {RetryAfter: 1 << 62},
		"known keys":    {Known: limiter.MaxKeys + 1},
		"another reply": {ID: 1},
	} {
		c, charge := rememberer(t)
		charge.ID = &arith.Idempotency{ID: 7, Life: time.Minute}
		told := false
		c.Amend(charge, limiter.Amend{}, func(o route.Outcome) { told = o.Amended != nil })
		asked := drain(c)[other].Refunds
		if len(asked) != 1 || asked[0].Kind != peer.AmendHold {
			t.Fatalf("asked is %+v", asked)
		}
		id := asked[0].ID
		if a.ID == 0 {
			a.ID = id
		}
		c.Deliver(&peer.Frame{From: other, To: self, Replies: []peer.Reply{{ID: id, Status: peer.Done}},
			Amended: []peer.Amended{a}})
		if told {
			t.Errorf("%s is taken", what)
		}
		c.Deliver(&peer.Frame{From: other, To: self, Replies: []peer.Reply{{ID: id, Status: peer.Done}},
			Amended: []peer.Amended{{ID: id}}})
		if !told {
			t.Errorf("%s: the right one is not taken", what)
		}
	}
}

// TestALateSettlementIsTakenBackAtItsDeadline: a settlement of an id that is not known is a charge, and its heir is
// silent. At the deadline it is taken back with its id. The same once more waits until that is decided: it is charged
// then, and not answered as one that was made.
func TestALateSettlementIsTakenBackAtItsDeadline(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableClosed)
	own(c, p)
	k := charge.Key(0)
	x := &identified{reservedAt{T: t, c: c, p: p, h: h, key: peer.Key{Hi: k.Hash.Hi, Lo: k.Hash.Lo, Closed: true},
		rule: mesh.Definition(k.Rule)}, 77}
	if r := x.amend(third, 1, 4, settling()); r != nil {
		t.Errorf("answered without the heir: %+v", r)
	}
	x.wants(96, "charged")
	h.pass(200 * limiter.Millisecond)
	x.amend(third, 2, 4, settling())
	h.pass(DefaultDeadline - 200*limiter.Millisecond - 2*replica.TickEvery)
	x.wants(96, "before the deadline")
	h.pass(3 * replica.TickEvery)
	if r := x.reply(third, 1); r == nil || r.Status != peer.Overloaded {
		t.Errorf("at the deadline the asker is told %+v", r)
	}
	x.wants(96, "the second one is charged instead")
	h.pass(DefaultDeadline)
	x.wants(100, "its deadline is over, too")
	if x.remembers() {
		t.Error("the id is remembered, and its charge is not made")
	}
}
