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

// reservedAt returns an owner of a key with 10 a day that blocks for an hour, of which
// the third member has reserved 6.
type reservedAt struct {
	*testing.T
	c       *Core
	p       *partition
	h       *byHand
	key     peer.Key
	rule    peer.Rule
	receipt peer.Receipt
}

const firstWait = 200 * limiter.Millisecond

func newReserved(t *testing.T) *reservedAt {
	t.Helper()
	c, p, h, charge := limited(t, limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 10, Window: 24 * time.Hour,
		Block: time.Hour})
	k := charge.Key(0)
	x := &reservedAt{T: t, c: c, p: p, h: h, key: peer.Key{Hi: k.Hash.Hi, Lo: k.Hash.Lo}, rule: mesh.Definition(k.Rule)}
	r := x.check(third, 1, 6, peer.Check{Prepare: true, Settles: true, Wait: uint32(firstWait)})
	if r == nil || r.Status != peer.Decided || r.Receipt.Charged != 1 {
		t.Fatalf("premise: 6 are reserved: %+v", r)
	}
	x.receipt = r.Receipt
	return x
}

// check makes a member ask for a cost and returns the reply; nil if there is none.
func (x *reservedAt) check(from peer.Instance, id uint64, cost uint64, q peer.Check) *peer.Reply {
	x.Helper()
	k := x.key
	k.Cost, q.ID, q.Keys = cost, id, 1
	x.c.Deliver(&peer.Frame{From: from, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{k},
		Checks: []peer.Check{q}})
	return x.reply(from, id)
}

// reply returns the reply to a member's check.
func (x *reservedAt) reply(to peer.Instance, id uint64) *peer.Reply {
	x.Helper()
	for _, r := range drain(x.c)[to].Replies {
		if r.ID == id {
			return &r
		}
	}
	return nil
}

// end ends the reservation and takes back what charged names.
func (x *reservedAt) end(charged uint64, id uint64) {
	x.Helper()
	k, r := x.key, x.receipt
	k.Cost, r.Charged = 6, charged
	x.c.Deliver(&peer.Frame{From: third, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{k}, Refunds: []peer.Refund{
		{ID: id, Keys: 1, Kind: peer.RefundReserved, Receipt: r},
	}})
}

// left returns, by a peek, what remains and for how long the key is blocked.
func (x *reservedAt) left() (remaining uint64, blocked bool) {
	x.Helper()
	k := arith.Key{Hash: arith.Hash{Hi: x.key.Hi, Lo: x.key.Lo}, Rule: x.c.config.Rule("r"), Cost: 1}
	charge, d := &arith.Charge{Peek: true}, new(limiter.Decision)
	charge.Add(k)
	if err := x.c.table.Decide(x.h.now, charge, d); err != nil {
		x.Fatal(err)
	}
	return d.Limit(0).Remaining, d.Limit(0).Blocked
}

var long = peer.Check{Wait: uint32(300 * limiter.Millisecond)}

// A check that a reservation would deny waits until the reservation ends, and is decided
// then: no block begins for a charge that is taken back.
func TestADenialWaitsForTheReservation(t *testing.T) {
	for name, test := range map[string]struct {
		end     func(x *reservedAt)
		allowed bool
		left    uint64
	}{
		"taken back":           {func(x *reservedAt) { x.end(1, 7) }, true, 5},
		"kept":                 {func(x *reservedAt) { x.end(0, 0) }, false, 0},
		"never heard of again": {func(x *reservedAt) { x.h.pass(firstWait + replica.TickEvery) }, false, 0},
		"another is taken back": {func(x *reservedAt) {
			x.receipt.Time++
			x.end(1, 7)
			x.h.pass(firstWait + replica.TickEvery)
		}, false, 0},
		"taken back once, twice": {func(x *reservedAt) { x.end(1, 7); x.end(1, 8) }, true, 5},
	} {
		x := newReserved(t)
		if r := x.check(other, 2, 5, peer.Check{Wait: uint32(limiter.Second)}); r != nil {
			t.Fatalf("%s: while 6 of 10 are reserved, 5 are answered: %+v", name, r)
		}
		if _, blocked := x.left(); blocked {
			t.Errorf("%s: a block began while it waits", name)
		}
		test.end(x)
		r := x.reply(other, 2)
		if r == nil || r.Status != peer.Decided || r.Provisional || (r.Receipt.Charged != 0) != test.allowed {
			t.Errorf("%s: then it is told %+v", name, r)
		}
		if left, blocked := x.left(); left != test.left || blocked == test.allowed {
			t.Errorf("%s: left are %d, blocked %t", name, left, blocked)
		}
		if n := look(x.p).InDoubt + look(x.p).Waiting; n != 0 {
			t.Errorf("%s: %d are kept", name, n)
		}
	}
}

// A denial that a reservation did not cause, a check that still fits, and a peek do not
// wait.
func TestWhatDoesNotWaitForAReservation(t *testing.T) {
	for name, cost := range map[string]uint64{"room": 4, "never": 11} {
		x := newReserved(t)
		if r := x.check(other, 2, cost, long); r == nil || r.Status != peer.Decided ||
			(r.Receipt.Charged != 0) != (cost == 4) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	x := newReserved(t)
	if r := x.check(other, 2, 5, peer.Check{Peek: true, Wait: long.Wait}); r == nil || r.Status != peer.Decided {
		t.Errorf("a peek: %+v", r)
	}
	x.end(0, 0)
	if r := x.check(other, 3, 5, long); r == nil || r.Receipt.Charged != 0 {
		t.Errorf("after the reservation is settled: %+v", r)
	}
	// 6 are settled, half of 4 is reserved: 5 are denied in any case.
	x = newReserved(t)
	x.end(0, 0)
	x.check(third, 4, 2, peer.Check{Prepare: true, Settles: true, Wait: long.Wait})
	if r := x.check(other, 5, 5, long); r == nil || r.Status != peer.Decided {
		t.Errorf("what is denied in any case waits: %+v", r)
	}
}

// A part of a check over several owners waits only for a moment, because two of them may
// wait for each other.
func TestAPartWaitsForAMomentOnly(t *testing.T) {
	x := newReserved(t)
	if r := x.check(other, 2, 5, peer.Check{Prepare: true, Settles: true, Wait: long.Wait}); r != nil {
		t.Fatalf("at once it is told %+v", r)
	}
	x.h.pass(3 * replica.TickEvery)
	if r := x.reply(other, 2); r == nil || r.Status != peer.Contested {
		t.Errorf("after a while it is told %+v", r)
	}
	if left, blocked := x.left(); left != 4 || blocked {
		t.Errorf("left are %d, blocked %t", left, blocked)
	}
}

// The last attempt waits for a quarter of the time that is left: the others retreat meanwhile, and it is admitted.
func TestTheLastAttemptWaitsForTheOthers(t *testing.T) {
	x := newReserved(t)
	q := peer.Check{Prepare: true, Settles: true, Final: true, Wait: uint32(160 * limiter.Millisecond)}
	if r := x.check(other, 2, 5, q); r != nil {
		t.Fatalf("at once it is told %+v", r)
	}
	if x.h.pass(35 * limiter.Millisecond); x.reply(other, 2) != nil {
		t.Fatal("it does not wait for 35 of 160 ms")
	}
	x.end(1, 7)
	if r := x.reply(other, 2); r == nil || r.Status != peer.Decided || r.Provisional || r.Receipt.Charged == 0 {
		t.Errorf("what denied it is taken back, and it is told %+v", r)
	}
}

// If there is no time to wait the denial is given, but it has no later effect: no block,
// and a wait no longer than the reservation's.
func TestAProvisionalDenial(t *testing.T) {
	for name, q := range map[string]peer.Check{
		"a check":         {Wait: uint32(20 * limiter.Millisecond)},
		"a part":          {Prepare: true, Settles: true, Wait: uint32(20 * limiter.Millisecond)},
		"an older part":   {Prepare: true, Wait: uint32(20 * limiter.Millisecond)},
		"hardly any time": {Wait: 10},
		"a part that is asked for the last time": {Prepare: true, Settles: true, Final: true,
			Wait: uint32(56 * limiter.Millisecond)},
	} {
		x := newReserved(t)
		r := x.check(other, 2, 5, q)
		if r == nil {
			var f *peer.Frame
			x.h.pass(15 * limiter.Millisecond)
			for f = x.c.Take(other, true); f != nil && len(f.Replies) == 0; f = x.c.Take(other, true) {
			}
			if f == nil || f.Results[0].RetryAfter > int64(firstWait) || f.Results[0].Blocked {
				t.Fatalf("%s: %+v", name, f)
			}
			r = &f.Replies[0]
		}
		if r.Status != peer.Decided || !r.Provisional || r.Receipt.Charged != 0 {
			t.Errorf("%s: %+v", name, r)
		}
		if left, blocked := x.left(); left != 4 || blocked {
			t.Errorf("%s: left are %d, blocked %t", name, left, blocked)
		}
	}
}

// A provisional denial is not cached.
func TestAProvisionalDenialIsNotRemembered(t *testing.T) {
	for _, provisional := range []bool{false, true} {
		c, charge := rememberer(t)
		ask := func() *limiter.Decision {
			d := new(limiter.Decision)
			c.Begin(charge, d, 0, func() {})
			return d
		}
		ask()
		c.Deliver(&peer.Frame{
			From: other, To: self, Results: []peer.Result{{RetryAfter: int64(limiter.Minute)}},
			Replies: []peer.Reply{{ID: drain(c)[other].Checks[0].ID, Status: peer.Decided, Results: 1,
				Provisional: provisional}},
		})
		if again := ask().Source == limiter.SourceCached; again == provisional {
			t.Errorf("provisional %t: given again %t", provisional, again)
		}
	}
}

// A reservation, and the requests that wait for it, end with the ownership: those who
// wait are told that this node is no longer the owner.
func TestWhoWaitsIsToldOfAnotherOwner(t *testing.T) {
	x := newReserved(t)
	x.check(other, 2, 5, long)
	owned(x.c, x.p, peer.Epoch{Counter: 9, Instance: third})
	if r := x.reply(other, 2); r == nil || r.Status != peer.NotOwner || r.Owner.Instance != third {
		t.Errorf("it is told %+v", r)
	}
}

// divided starts a check over two owners. The third member allows its part, and the
// other replies with reply.
func divided(t *testing.T, reply peer.Reply) (c *Core, h *byHand, told *int, answer *limiter.Decision) {
	t.Helper()
	return dividedWithin(t, limiter.Second, reply)
}

// dividedWithin is divided with another deadline than a second.
func dividedWithin(t *testing.T, within limiter.Tick, reply peer.Reply) (c *Core, h *byHand, told *int,
	answer *limiter.Decision) {
	t.Helper()
	c, _, h, like := single(t, limiter.UnreachableLocal)
	charge := spread(c, like, third, other)
	answer, told = new(limiter.Decision), new(int)
	c.Begin(charge, answer, h.now+within, func() { *told++ })
	out := drain(c)
	for _, m := range []peer.Instance{third, other} {
		if q := out[m].Checks[0]; !q.Prepare || !q.Settles {
			t.Fatalf("a part asks %+v", q)
		}
	}
	c.Deliver(&peer.Frame{
		From: third, To: self, Results: []peer.Result{{Allowed: true, Remaining: 3}, {Allowed: true, Remaining: 8}},
		Replies: []peer.Reply{{
			ID: out[third].Checks[0].ID, Status: peer.Decided, Results: 1, Idle: true,
			Receipt: peer.Receipt{Epoch: peer.Epoch{Counter: 4}, Time: 9, Charged: 1, Set: 5},
		}},
	})
	reply.ID = out[other].Checks[0].ID
	f := &peer.Frame{From: other, To: self, Replies: []peer.Reply{reply}}
	if reply.Status == peer.Decided {
		f.Results = []peer.Result{{Allowed: reply.Receipt.Charged != 0, RetryAfter: 70}, {RetryAfter: 70}}
	}
	c.Deliver(f)
	return c, h, told, answer
}

// A denial is answered when the other parts have taken back what was reserved, or can no
// longer say so, and at the deadline at the latest.
func TestADenialWaitsForTheCancel(t *testing.T) {
	for name, end := range map[string]func(c *Core, h *byHand, id uint64){
		"done": func(c *Core, _ *byHand, id uint64) {
			c.Deliver(&peer.Frame{From: third, To: self, Replies: []peer.Reply{{ID: id, Status: peer.Done}}})
		},
		"void": func(c *Core, _ *byHand, id uint64) {
			c.Deliver(&peer.Frame{From: third, To: self,
				Replies: []peer.Reply{{ID: id, Status: peer.NotOwner, Owner: peer.Epoch{Counter: 7, Instance: other}}}})
		},
		"out of reach": func(c *Core, _ *byHand, _ uint64) { c.Down(third) },
		"silent":       func(_ *Core, h *byHand, _ uint64) { h.pass(limiter.Second + replica.TickEvery) },
	} {
		c, h, told, answer := divided(t, peer.Reply{Status: peer.Decided, Results: 1, Idle: true})
		q := drain(c)[third].Refunds
		if len(q) != 1 || q[0].ID == 0 || q[0].Kind != peer.RefundReserved || q[0].Receipt.Charged != 1 {
			t.Fatalf("%s: taken back is %+v", name, q)
		}
		if *told != 0 {
			t.Fatalf("%s: it is answered before", name)
		}
		end(c, h, q[0].ID)
		if *told != 1 || answer.Allowed || limiter.Span(answer.RetryAfter) != 70 || answer.Limit(0).Remaining != 8 {
			t.Errorf("%s: told %d times: %+v", name, *told, answer)
		}
		if name == "silent" && c.calls.Waiting() == 1 { // a member may still say that it relayed nothing
			h.pass(replica.LateFor)
		}
		if left := c.calls.Waiting(); left != 0 || len(drain(c)[other].Refunds) != 0 {
			t.Errorf("%s: %d operations are under way", name, left)
		}
	}
}

// An admission is answered at once, and the owners are told that it stands.
func TestAnAdmissionSettlesItsReservations(t *testing.T) {
	c, _, told, answer := divided(t, peer.Reply{Status: peer.Decided, Results: 1, Idle: true,
		Receipt: peer.Receipt{Time: 11, Charged: 1, Set: 6}})
	if *told != 1 || !answer.Allowed {
		t.Fatalf("told %d times: %+v", *told, answer)
	}
	out := drain(c)
	for m, at := range map[peer.Instance]int64{third: 9, other: 11} {
		if q := out[m].Refunds; len(q) != 1 || q[0].ID != 0 || q[0].Kind != peer.RefundReserved ||
			q[0].Receipt.Charged != 0 || q[0].Receipt.Time != at {
			t.Errorf("told of the end are %+v", q)
		}
	}
}

// If a part meets another check's reservation, all parts are taken back and the whole
// check is asked again.
func TestAContestedCheckBeginsAnew(t *testing.T) {
	c, h, told, _ := divided(t, peer.Reply{Status: peer.Contested})
	q := drain(c)[third].Refunds
	if len(q) != 1 || q[0].Receipt.Charged != 1 {
		t.Fatalf("taken back is %+v", q)
	}
	h.pass(2 * route.RetryEvery)
	if out := drain(c); len(out[third].Checks)+len(out[other].Checks) != 0 {
		t.Fatal("it is asked again before it is taken back")
	}
	c.Deliver(&peer.Frame{From: third, To: self, Replies: []peer.Reply{{ID: q[0].ID, Status: peer.Done}}})
	h.pass(3*route.RetryEvery + replica.TickEvery)
	if out := drain(c); len(out[third].Checks) != 1 || len(out[other].Checks) != 1 || *told != 0 {
		t.Errorf("it is asked again of %d and %d, and told %d times", len(out[third].Checks), len(out[other].Checks), *told)
	}
}
