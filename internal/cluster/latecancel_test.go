package cluster

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// TestALateCancel: a member that is slow concludes a check after the check's deadline. Its
// cancel takes the charge back all the same, once, for as long as the owner keeps it, and
// unless the counter has become that of another owner meanwhile.
func TestALateCancel(t *testing.T) {
	const overdue = firstWait + replica.TickEvery
	for name, test := range map[string]struct {
		act  func(x *reservedAt)
		left uint32
		kept int64 // charges that may still be taken back
	}{
		"taken back":       {func(x *reservedAt) { x.h.pass(overdue); x.end(1, 7) }, 10, 0},
		"taken back twice": {func(x *reservedAt) { x.h.pass(overdue); x.end(1, 7); x.end(1, 8) }, 10, 0},
		"it stands":        {func(x *reservedAt) { x.h.pass(overdue); x.end(0, 0); x.end(1, 7) }, 4, 0},
		"another is meant": {func(x *reservedAt) { x.receipt.Time++; x.h.pass(overdue); x.end(1, 7) }, 4, 1},
		"late by seconds":  {func(x *reservedAt) { x.h.pass(overdue + 9*limiter.Second); x.end(1, 7) }, 10, 0},
		"not heard of":     {func(x *reservedAt) { x.h.pass(overdue + 9*limiter.Second) }, 4, 1},
		"much too late":    {func(x *reservedAt) { x.h.pass(overdue + 11*limiter.Second); x.end(1, 7) }, 4, 0},
		"after a merge":    {func(x *reservedAt) { x.h.pass(overdue); x.merge(); x.end(1, 7) }, 4, 0},
		"after a later owner": {func(x *reservedAt) {
			x.h.pass(overdue)
			owned(x.c, x.p, peer.Epoch{Counter: 9, Instance: third})
			x.end(1, 7)
		}, 4, 0},
	} {
		x := newReserved(t)
		test.act(x)
		if left, _ := x.left(); left != test.left {
			t.Errorf("%s: left are %d, want %d", name, left, test.left)
		}
		if n := x.c.decider.reservations.count.Load(); n != test.kept {
			t.Errorf("%s: %d charges are kept, want %d", name, n, test.kept)
		}
	}
}

// merge has the owner merge the state of one that was overtaken.
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
	if info := look(x.p); info.Unsettled != 0 {
		t.Errorf("%d charges are unsettled", info.Unsettled)
	}
	if r := x.check(other, 2, 5, long); r == nil || r.Status != peer.Decided || r.Provisional || r.Receipt.Charged != 0 {
		t.Errorf("it is told %+v", r)
	}
}
