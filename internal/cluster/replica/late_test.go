package replica

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// reserves records n reservations of one unit of a key by a member, one each microsecond,
// whose checks end after a tick.
func reserves(tn *Step, own *Ownership, n int) {
	k := &arith.Key{Hash: arith.Hash{Hi: 1}, Cost: 1}
	for i := range n {
		own.Prepare(tn, k, nil, third, tn.At+limiter.Tick(i), tn.Now+TickEvery, nil)
	}
}

// TestLateChargesAreBounded: an owner keeps as many late charges of a partition as
// charges in doubt, the newest.
func TestLateChargesAreBounded(t *testing.T) {
	_, p, tn := closedOwner(t)
	began := tn.At
	for range 2 {
		reserves(tn, p.own, maxInDoubt)
		tn.Now += TickEvery
		tn.At = tn.Now
		p.Tick(tn)
	}
	if n := len(p.own.late); n != maxLate {
		t.Fatalf("%d charges are late, want %d", n, maxLate)
	}
	if first := p.own.late[0].time; first != began+TickEvery {
		t.Errorf("the oldest is %d µs old, want those of the first round forgotten", tn.Now-first)
	}
	if n := p.own.count.Add(0); n != maxLate {
		t.Errorf("%d charges are counted, want %d", n, maxLate)
	}
}

// TestASettledOwnerForgetsLateCharges: late charges keep an owner from no rest, and
// wake it when they can no longer be taken back.
func TestASettledOwnerForgetsLateCharges(t *testing.T) {
	_, p, tn := closedOwner(t)
	p.own.heir.begun = true
	reserves(tn, p.own, 1)
	tn.Now += TickEvery
	p.Tick(tn)
	end := tn.Now + LateFor
	if due := p.Due(tn); due != end {
		t.Fatalf("due in %v, want %v", (due - tn.Now).Duration(), LateFor.Duration())
	}
	tn.Now = end - 1
	if next := p.Tick(tn); next != end || len(p.own.late) != 1 {
		t.Errorf("before its end %d are late, and the next tick is in %v", len(p.own.late), (next - tn.Now).Duration())
	}
	tn.Now = end
	p.Tick(tn)
	if due := p.Due(tn); due != Never || len(p.own.late) != 0 {
		t.Errorf("at its end %d are late, and the next tick is in %v", len(p.own.late), (due - tn.Now).Duration())
	}
}
