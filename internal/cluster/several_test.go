package cluster

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// When the deadline ends a check over several owners, the caller may reuse its memory:
// the parts write nothing there afterwards.
func TestSeveralAfterTheDeadline(t *testing.T) {
	l, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 100, Window: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c, _, h, _ := single(t, limiter.UnreachableLocal)
	charge := &arith.Charge{}
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}}
	var owners []peer.Instance
	for lo := uint64(1); len(owners) < 2; lo += 1 << 60 {
		k := arith.Key{Hash: arith.Hash{Hi: lo, Lo: lo}, Rule: rule, Cost: 1, Index: uint8(len(owners))}
		id := table.PartitionOf(&k)
		if c.partitions.byID[id] == nil {
			c.partitions.add(id)
		}
		p, owner := c.partitions.byID[id], []peer.Instance{other, third}[len(owners)]
		put(c, p, replica.Fixture{Owner: peer.Epoch{Counter: 1, Instance: owner}})
		charge.Add(k)
		owners = append(owners, owner)
	}
	answer, told := new(limiter.Decision), 0
	c.Begin(charge, answer, h.now+20*limiter.Millisecond, func() {
		told++
		if answer.Source != limiter.SourceFallbackLocal && answer.Source != limiter.SourceFallbackOpen {
			t.Errorf("%v answers", answer.Source)
		}
		answer.Clear() // the caller reuses its memory
		charge.Clear()
	})
	h.pass(100 * limiter.Millisecond)
	if told != 1 || answer.Len() != 0 || charge.Unnamed != 0 || charge.Len() != 0 {
		t.Errorf("told %d times, and afterwards there are %d limits", told, answer.Len())
	}
}

// If another part denies, everything that a part has charged is taken back: each limit
// of it, by one receipt.
func TestCancelsTakeBackEveryLimit(t *testing.T) {
	c, _, h, like := single(t, limiter.UnreachableLocal)
	short, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 10, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	like.Key(0).Rule = &limiter.Rule{Name: "two", Limits: []*limiter.Limit{like.Key(0).Rule.Limits[0], short}}
	charge := spread(c, like, third, other)
	answer, told := new(limiter.Decision), 0
	c.Begin(charge, answer, h.now+limiter.Second, func() { told++ })
	out := drain(c)
	reply := func(from peer.Instance, allowed bool, charged uint64) {
		r := peer.Result{Allowed: allowed, Remaining: 3}
		c.Deliver(&peer.Frame{
			From: from, To: self, Results: []peer.Result{r, r, r, r},
			Replies: []peer.Reply{{ID: out[from].Checks[0].ID, Status: peer.Decided, Results: 2, Idle: true,
				Receipt: peer.Receipt{
					Epoch: peer.Epoch{Counter: 4}, Time: 9, Charged: charged, Set: 5,
				}}},
		})
	}
	reply(third, true, 3)
	reply(other, false, 0)
	want := peer.Refund{Keys: 1, Kind: peer.RefundReserved,
		Receipt: peer.Receipt{Epoch: peer.Epoch{Counter: 4 + uint64(third)}, Time: 9, Charged: 3, Set: 5}}
	after := drain(c)
	q := after[third].Refunds
	if len(q) != 1 {
		t.Fatalf("taken back is %+v", q)
	}
	id := q[0].ID
	if q[0].ID = 0; q[0] != want {
		t.Errorf("taken back is %+v, want %+v", q, want)
	}
	if q := after[other].Refunds; len(q) != 0 {
		t.Errorf("of who charged nothing is taken back %+v", q)
	}
	c.Deliver(&peer.Frame{From: third, To: self, Replies: []peer.Reply{{ID: id, Status: peer.Done}}})
	if told != 1 || answer.Allowed || arith.Fields(&answer.Receipt).Charged != 0 {
		t.Errorf("told %d times: %+v", told, answer)
	}
}

// A denial also waits for what this node itself has reserved, while it hands over the
// partition: until that is open again, and the charge is taken back, or has another owner.
func TestADenialWaitsForTheHandover(t *testing.T) {
	next := peer.Epoch{Counter: 4, Instance: other}
	for name, end := range map[string]struct {
		do   func(c *Core, p *partition, h *byHand)
		left uint64
	}{
		"opened again": {func(c *Core, p *partition, _ *byHand) { own(c, p) }, 100},
		"handed over": {func(c *Core, p *partition, _ *byHand) {
			put(c, p, replica.Fixture{Role: peer.Heir, Epoch: next, Owner: next, Heir: self})
		}, 95},
		"at the deadline": {func(_ *Core, _ *partition, h *byHand) { h.pass(limiter.Second + replica.TickEvery) }, 95},
	} {
		c, p, h, like := single(t, limiter.UnreachableLocal)
		charge := spread(c, like, third)
		charge.Add(*like.Key(0))
		charge.Key(1).Index = 1
		own(c, p)
		answer, told := new(limiter.Decision), 0
		c.Begin(charge, answer, h.now+limiter.Second, func() { told++ })
		putAs(c, p, peer.Sealed)
		c.Deliver(&peer.Frame{
			From: third, To: self, Results: []peer.Result{{RetryAfter: 70}, {RetryAfter: 70}},
			Replies: []peer.Reply{{ID: drain(c)[third].Checks[0].ID, Status: peer.Decided, Results: 1, Idle: true}},
		})
		if told != 0 {
			t.Errorf("%s: it is answered before", name)
		}
		end.do(c, p, h)
		peek, d := &arith.Charge{Peek: true}, new(limiter.Decision)
		peek.Add(*like.Key(0))
		if err := c.table.Decide(h.now, peek, d); err != nil {
			t.Fatal(err)
		}
		if told != 1 || answer.Allowed || d.Limit(0).Remaining != end.left {
			t.Errorf("%s: told %d times, %v, and %d of 100 are left, want %d", name, told, answer.Allowed, d.Limit(0).Remaining,
				end.left)
		}
		if left := c.calls.Waiting(); left != 0 {
			t.Errorf("%s: %d operations are under way", name, left)
		}
	}
}

// The parts of a check say whether there is no time to begin it anew: three rounds, and three round
// trips to the slowest of their owners.
func TestTheLastAttemptOfACheck(t *testing.T) {
	for _, x := range []struct {
		within, trip limiter.Tick // in milliseconds
		final        bool
	}{{121, 1, false}, {119, 1, true}, {166, 40, false}, {164, 40, true}} {
		c, _, h, like := single(t, limiter.UnreachableLocal)
		c.mesh.Measured(other, x.trip*limiter.Millisecond)
		c.Begin(spread(c, like, third, other), new(limiter.Decision), h.now+x.within*limiter.Millisecond, func() {})
		for m, f := range drain(c) {
			if len(f.Checks) != 1 || f.Checks[0].Final != x.final {
				t.Errorf("%d ms before its deadline, %d ms from an owner, %v is asked %+v", x.within, x.trip, m, f.Checks)
			}
		}
	}
}

// An attempt that took long, and began anew, says how long another one may take. The next one is the last if not
// five times as much is left. What an attempt took includes its pause of at most 10 ms.
func TestTheLastAttemptAfterALongOne(t *testing.T) {
	for after, final := range map[limiter.Tick]bool{35: false, 60: true} {
		c, h, _, _ := dividedWithin(t, 300*limiter.Millisecond, peer.Reply{Status: peer.Contested})
		q := drain(c)[third].Refunds
		if len(q) != 1 {
			t.Fatalf("premise: %+v is taken back", q)
		}
		h.pass(after * limiter.Millisecond)
		drain(c)
		c.Deliver(&peer.Frame{From: third, To: self, Replies: []peer.Reply{{ID: q[0].ID, Status: peer.Done}}})
		h.pass(3*route.RetryEvery + replica.TickEvery)
		for m, f := range drain(c) {
			if len(f.Checks) != 1 || f.Checks[0].Final != final {
				t.Errorf("after %d ms, %v is asked %+v, want final %v", after, m, f.Checks, final)
			}
		}
	}
}

// An owner denies one part, and another part meets charges in doubt: the check is denied whatever becomes of those, so
// its next attempt is its last. It would begin anew until its deadline otherwise, and be answered by policy then.
func TestTheLastAttemptOfADeniedCheck(t *testing.T) {
	for _, denied := range []bool{false, true} {
		c, _, h, like := single(t, limiter.UnreachableLocal)
		c.Begin(spread(c, like, third, other), new(limiter.Decision), h.now+limiter.Second, func() {})
		out := drain(c)
		c.Deliver(&peer.Frame{From: third, To: self, Results: []peer.Result{{Allowed: !denied}, {Allowed: !denied}},
			Replies: []peer.Reply{{ID: out[third].Checks[0].ID, Status: peer.Decided, Results: 1, Idle: true}}})
		c.Deliver(&peer.Frame{From: other, To: self,
			Replies: []peer.Reply{{ID: out[other].Checks[0].ID, Status: peer.Contested}}})
		h.pass(3*route.RetryEvery + replica.TickEvery)
		for m, f := range drain(c) {
			if len(f.Checks) != 1 || f.Checks[0].Final != denied {
				t.Errorf("denied %v: %v is asked %+v", denied, m, f.Checks)
			}
		}
	}
}

// So it is with a part that this node decides.
func TestTheLastAttemptOfACheckHere(t *testing.T) {
	x := newReserved(t)
	like := &arith.Charge{}
	like.Add(arith.Key{Hash: arith.Hash{Hi: x.key.Hi, Lo: x.key.Lo}, Rule: x.c.config.Rule("r"), Cost: 5})
	charge := spread(x.c, like, other)
	charge.Add(*like.Key(0))
	charge.Key(1).Index = 1
	answer, told := new(limiter.Decision), 0
	x.c.Begin(charge, answer, x.h.now+100*limiter.Millisecond, func() { told++ })
	id := drain(x.c)[other].Checks[0].ID
	x.c.Deliver(&peer.Frame{
		From: other, To: self, Results: []peer.Result{{RetryAfter: 70}, {RetryAfter: 70}},
		Replies: []peer.Reply{{ID: id, Status: peer.Decided, Results: 1, Idle: true}},
	})
	x.h.pass(6 * replica.TickEvery) // a quarter of 100 ms
	if told != 1 || answer.Allowed || answer.Source.ByPolicy() {
		t.Errorf("told %d times: %+v", told, answer)
	}
}

// If another part denies, a limit that had room and counts that has the wait until it admits the check
// again, also if the check's id was remembered with its charge.
func TestADenialWaitsForWhatItCounted(t *testing.T) {
	for name, id := range map[string]*arith.Idempotency{
		"no id": nil, "id": {ID: 1, Life: time.Minute}, "reservation": {ID: 1, Life: time.Minute, Hold: time.Minute},
	} {
		l, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 100, Window: 24 * time.Hour,
			CountRejected: limiter.CountRoom})
		if err != nil {
			t.Fatal(err)
		}
		c, p, h, like := single(t, limiter.UnreachableLocal)
		like.Key(0).Rule.Limits[0] = l
		charge := spread(c, like, third)
		charge.Add(*like.Key(0))
		charge.Key(1).Index = 1
		charge.ID = id
		own(c, p)
		before := &arith.Charge{}
		before.Add(*like.Key(0))
		before.Key(0).Cost = 94
		if err := c.table.Decide(h.now, before, new(limiter.Decision)); err != nil {
			t.Fatal(err)
		}
		answer, told := new(limiter.Decision), 0
		c.Begin(charge, answer, h.now+limiter.Second, func() { told++ })
		c.Deliver(&peer.Frame{
			From: third, To: self, Results: []peer.Result{{RetryAfter: 70}, {RetryAfter: 70}},
			Replies: []peer.Reply{{ID: drain(c)[third].Checks[0].ID, Status: peer.Decided, Results: 1, Idle: true}},
		})
		if told != 1 || answer.Allowed || answer.Limit(1).Remaining != 1 || answer.RetryAfter <= time.Minute ||
			answer.RetryAfter != answer.Limit(1).RetryAfter {
			t.Errorf("%s: told %d times: %v, %d left, retry after %v", name, told, answer.Allowed, answer.Limit(1).Remaining,
				answer.RetryAfter)
		}
	}
}
