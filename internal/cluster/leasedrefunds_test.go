package cluster

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// returning is a member that has used a lease, and gives it back.
type returning struct {
	*holder
	receipt limiter.Receipt // of one of two checks that the lease admitted
	reply   uint64          // to which the owner answers
}

func newReturning(t *testing.T) *returning {
	t.Helper()
	x := &returning{holder: newHolder(t, peer.LeaseWire)}
	x.answer(x.lease.ID, 70, peer.Receipt{Charged: 1})
	x.receipt = x.ask().Receipt
	x.ask()
	drain(x.c)
	x.h.pass(120 * limiter.Millisecond)
	for _, q := range x.sent(other) {
		if q.Kind == peer.AmendHold && q.ChargeID == x.lease.ChargeID {
			x.reply = q.ID
		}
	}
	if x.reply == 0 || arith.Fields(&x.receipt).Epoch != x.lease.ChargeID {
		t.Fatalf("premise: given back %d, by receipt %+v", x.reply, x.receipt)
	}
	return x
}

// sent returns the refunds that a member is sent.
func (x *returning) sent(to peer.Instance) (out []peer.Refund) {
	for f := x.c.Take(to, true); f != nil; f = x.c.Take(to, true) {
		if f.To == to { // it is not relayed for another one
			out = append(out, f.Refunds...)
		}
	}
	return out
}

// settled has the owner answer that it has charged what was used at an instant.
func (x *returning) settled(at uint64) {
	x.c.Deliver(&peer.Frame{From: other, To: self, Replies: []peer.Reply{{ID: x.reply, Status: peer.Done}},
		Amended: []peer.Amended{{ID: x.reply, WasEnd: at}}})
}

// refund has a check refunded by a receipt with a number.
func (x *returning) refund(once uint64) (done bool) {
	r := x.receipt
	arith.Fields(&r).Once = once
	x.c.Refund(x.charge, r, func(route.Outcome) { done = true })
	return done
}

// A check that a lease has admitted is refunded at the owner once the lease is given back: of what was charged then.
func TestARefundAfterALease(t *testing.T) {
	x := newReturning(t)
	x.settled(77)
	x.refund(5)
	for _, once := range []uint64{5, 0, 0} { // refunded before; the other one; there were two
		x.refund(once)
	}
	got := x.sent(other)
	if len(got) != 2 || got[0].Kind != peer.RefundAll || got[0].Once != 5 || got[1].Once != 0 {
		t.Fatalf("the owner is sent %+v", got)
	}
	r := got[0].Receipt
	if r.Time != 77 || r.Epoch.Counter != uint64(other) || r.Charged != 1 || r.Set != arith.Fields(&x.receipt).Set {
		t.Errorf("by the receipt %+v", r)
	}
}

// While the lease is being given back the refund waits. If nobody knows when it was charged, the units stay charged.
func TestARefundWhileALeaseIsGivenBack(t *testing.T) {
	for at, want := range map[uint64]int{77: 1, 0: 0} {
		x := newReturning(t)
		if !x.refund(5) {
			t.Error("the caller waits")
		}
		if got := x.sent(other); len(got) > 0 {
			t.Errorf("the owner is sent %+v before it has answered", got)
		}
		x.refund(5)
		x.settled(at)
		if got := x.sent(other); len(got) != want || want > 0 && got[0].Receipt.Time != int64(at) {
			t.Errorf("charged at %d: the owner is sent %+v", at, got)
		}
	}
}

// A receipt of a lease is good at each member: another one sends it to whoever had the lease.
func TestARefundByAnotherMember(t *testing.T) {
	x := newReturning(t)
	x.settled(77)
	k := x.charge.Key(0)
	x.c.Deliver(&peer.Frame{From: third, To: self, Rules: []peer.Rule{mesh.Definition(k.Rule)},
		Keys:    []peer.Key{{Hi: k.Hash.Hi, Lo: k.Hash.Lo, Cost: 1}},
		Refunds: []peer.Refund{{Keys: 1, Kind: peer.RefundLeased, Receipt: mesh.Receipt(x.receipt, 0), Once: 5}}})
	if got := x.sent(other); len(got) != 1 || got[0].Receipt.Time != 77 || got[0].Once != 5 {
		t.Errorf("the owner is sent %+v", got)
	}
	const far peer.Instance = 1 << 50
	members := append([]peer.Member(nil), x.c.View().Members...)
	for i := range members {
		if members[i].Instance == third {
			members[i].Instance = far
		}
	}
	x.c.SetView(view.New(self, members, x.h, 3, 3))
	x.c.Up(far)
	arith.Fields(&x.receipt).Epoch = uint64(far) - 3
	if !x.refund(6) {
		t.Error("the caller waits")
	}
	got := x.sent(far)
	if len(got) != 1 || got[0].Kind != peer.RefundLeased || got[0].Receipt.Epoch.Counter != uint64(far)-3 ||
		got[0].Once != 6 {
		t.Errorf("the holder is sent %+v", got)
	}
	arith.Fields(&x.receipt).Epoch = 1 << 60 // a client's
	x.refund(7)
	if got := x.sent(far); len(got) > 0 && got[0].Kind == peer.RefundLeased {
		t.Errorf("of a client's lease: %+v", got)
	}
}

// An owner says when it charged what was used of a lease, and takes a part of that back.
func TestAnOwnerRefundsWhatALeaseUsed(t *testing.T) {
	x := newLender(t)
	x.p.to.Store(uint64(self))
	x.hold(third, 1, long, leaseOf())
	x.settle()
	charge := new(arith.Charge)
	charge.ID = &arith.Idempotency{ID: x.id, Life: limiter.Second.Duration()}
	charge.Add(arith.Key{Hash: arith.Hash{Hi: x.key.Hi, Lo: x.key.Lo}, Rule: x.c.config.Rule("r"), Cost: 3})
	var at limiter.Tick
	x.c.Amend(charge, limiter.Amend{IgnoreUnknown: true}, func(o route.Outcome) { at = o.At })
	x.settle()
	x.wants(997, "3 of 4 were used")
	if at == 0 {
		t.Fatal("it does not say when")
	}
	charge.ID, charge.Key(0).Cost = nil, 2
	r := charge.Credit() // with what fits it
	arith.Fields(&r).Epoch, arith.Fields(&r).Time = uint64(self), at
	x.c.Refund(charge, r, func(route.Outcome) {})
	x.wants(999, "two of them were refunded")
}
