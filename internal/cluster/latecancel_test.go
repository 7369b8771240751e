package cluster

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// TestALateCancel: a member that is slow concludes a check after the check's deadline. Its
// cancel takes the charge back all the same, once, for as long as the owner keeps it, and
// unless the counter has become that of another owner meanwhile.
func TestALateCancel(t *testing.T) {
	const late = firstWait + replica.TickEvery
	for name, test := range map[string]struct {
		act  func(x *reservedAt)
		left uint64
		kept int64 // charges that may still be taken back
	}{
		"taken back":       {func(x *reservedAt) { x.h.pass(late); x.end(1, 7) }, 10, 0},
		"taken back twice": {func(x *reservedAt) { x.h.pass(late); x.end(1, 7); x.end(1, 8) }, 10, 0},
		"it stands":        {func(x *reservedAt) { x.h.pass(late); x.end(0, 0); x.end(1, 7) }, 4, 0},
		"another is meant": {func(x *reservedAt) { x.receipt.Time++; x.h.pass(late); x.end(1, 7) }, 4, 1},
		"late by seconds":  {func(x *reservedAt) { x.h.pass(late + 9*limiter.Second); x.end(1, 7) }, 10, 0},
		"not heard of":     {func(x *reservedAt) { x.h.pass(late + 9*limiter.Second) }, 4, 1},
		"much too late":    {func(x *reservedAt) { x.h.pass(late + 11*limiter.Second); x.end(1, 7) }, 4, 0},
		"after a merge":    {func(x *reservedAt) { x.h.pass(late); x.merge(); x.end(1, 7) }, 4, 0},
		"after a later owner": {func(x *reservedAt) {
			x.h.pass(late)
			owned(x.c, x.p, peer.Epoch{Counter: 9, Instance: third})
			x.end(1, 7)
		}, 4, 0},
	} {
		x := newReserved(t)
		test.act(x)
		if left, _ := x.left(); left != test.left {
			t.Errorf("%s: left are %d, want %d", name, left, test.left)
		}
		if n := x.c.decider.preparations.count.Load(); n != test.kept {
			t.Errorf("%s: %d charges are kept, want %d", name, n, test.kept)
		}
	}
}

// merge has the owner merge the state of one that was fenced.
func (x *reservedAt) merge() {
	x.Helper()
	x.c.Deliver(&peer.Frame{From: other, To: self, Batches: []peer.Batch{
		{Partition: x.p.id, Kind: peer.Push, Epoch: peer.Epoch{Counter: 1, Instance: other}, First: true, Last: true},
	}})
	if a := drain(x.c)[other].Acks; len(a) != 1 || a[0].Status != peer.Merged {
		x.Fatalf("premise: a push is merged: %+v", a)
	}
}

// TestADenialDoesNotWaitForALateCancel: once an asker has given up, its charge counts as
// settled, and whoever is denied because of it is told at once.
func TestADenialDoesNotWaitForALateCancel(t *testing.T) {
	x := newReserved(t)
	x.h.pass(firstWait + replica.TickEvery)
	if info := look(x.p); info.InDoubt != 0 {
		t.Errorf("%d charges are in doubt", info.InDoubt)
	}
	if r := x.check(other, 2, 5, long); r == nil || r.Status != peer.Decided || r.Provisional || r.Receipt.Charged != 0 {
		t.Errorf("it is told %+v", r)
	}
}

// TestACancelThatNoMemberRelays: the connection to the member that made a reservation is silent, and
// the one that was to relay the cancel could not. Neither has the cancel, so it is sent again, for as
// long as the owner takes it, and the answer waits for that until the check's deadline. If the
// connection is broken, it is lost.
func TestACancelThatNoMemberRelays(t *testing.T) {
	for name, test := range map[string]struct {
		lost   int // how often it was not relayed
		broken bool
		late   limiter.Tick // how late the answer to the first cancel is
		sent   int
	}{
		"relayed":           {lost: 0, sent: 1},
		"not relayed once":  {lost: 1, sent: 2},
		"not relayed twice": {lost: 2, sent: 3},
		"no connection":     {lost: 1, broken: true, sent: 1},
		"at the deadline":   {lost: 2, late: limiter.Second, sent: 3},
		"much too late":     {lost: 1, late: limiter.Second + replica.LateFor, sent: 1},
	} {
		c, _, h, like := single(t, limiter.UnreachableLocal)
		charge := spread(c, like, third, other)
		answer, told := new(limiter.Decision), 0
		c.Begin(charge, answer, h.now+limiter.Second, func() { told++ })
		out := drain(c)
		for _, from := range []peer.Instance{third, other} {
			allowed := from == third
			if !allowed && test.broken {
				c.Down(third)
				drain(c)
			}
			r := peer.Result{Allowed: allowed, Remaining: 3}
			reply := peer.Reply{ID: out[from].Checks[0].ID, Status: peer.Decided, Results: 1, Idle: true}
			if allowed {
				reply.Receipt = peer.Receipt{Epoch: peer.Epoch{Counter: 4}, Time: 9, Charged: 1, Set: 5}
			}
			c.Deliver(&peer.Frame{From: from, To: self, Results: []peer.Result{r, r}, Replies: []peer.Reply{reply}})
		}
		sent, ids := 0, map[uint64]bool{}
		for range 1 + test.lost {
			out := drain(c)
			q := slices.Concat(out[third].Refunds, out[other].Refunds) // to relay
			if len(q) == 0 {
				break
			}
			if sent++; len(q) != 1 || q[0].Receipt.Charged != 1 || ids[q[0].ID] {
				t.Fatalf("%s: request %d is %+v", name, sent, q)
			}
			ids[q[0].ID] = true
			if answered := told != 0; answered != (test.late > 0 && sent > 1) {
				t.Fatalf("%s: answered %t before request %d", name, answered, sent)
			}
			if sent == 1 {
				h.pass(test.late)
			}
			lost := peer.Frame{From: other, To: self,
				Replies: []peer.Reply{{ID: q[0].ID, Status: peer.Lost, Owner: peer.Epoch{Instance: third}}}}
			if sent > test.lost {
				lost = peer.Frame{From: third, To: self, Replies: []peer.Reply{{ID: q[0].ID, Status: peer.Done}}}
			}
			c.Deliver(&lost)
			h.pass(20 * limiter.Millisecond)
		}
		if sent != test.sent || told != 1 || answer.Allowed {
			t.Errorf("%s: %d requests, want %d, told %d times, allowed %t", name, sent, test.sent, told, answer.Allowed)
		}
		if n := c.calls.Waiting(); n != 0 {
			t.Errorf("%s: %d calls are left", name, n)
		}
	}
}
