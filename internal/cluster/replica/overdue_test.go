package replica

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// reserves records n reservations of one unit of a key by a member, one each microsecond,
// whose checks end after a tick.
func reserves(tn *Step, own *Ownership, n int) {
	k := &limiter.Key{Hash: limiter.Hash{Hi: 1}, Cost: 1}
	for i := range n {
		own.Reserve(tn, k, nil, third, tn.At+limiter.Tick(i), tn.Now+TickEvery)
	}
}

// TestOverdueChargesAreBounded: an owner keeps as many overdue charges of a partition as
// unsettled ones, the newest.
func TestOverdueChargesAreBounded(t *testing.T) {
	_, p, tn := closedOwner(t)
	began := tn.At
	for range 2 {
		reserves(tn, p.own, maxUnsettled)
		tn.Now += TickEvery
		tn.At = tn.Now
		p.Tick(tn)
	}
	if n := len(p.own.overdue); n != maxOverdue {
		t.Fatalf("%d charges are overdue, want %d", n, maxOverdue)
	}
	if first := p.own.overdue[0].time; first != began+TickEvery {
		t.Errorf("the oldest is %d µs old, want those of the first round forgotten", tn.Now-first)
	}
	if n := p.own.count.Add(0); n != maxOverdue {
		t.Errorf("%d charges are counted, want %d", n, maxOverdue)
	}
}

// TestASettledOwnerForgetsOverdueCharges: overdue charges keep an owner from no rest, and
// wake it when they can no longer be taken back.
func TestASettledOwnerForgetsOverdueCharges(t *testing.T) {
	_, p, tn := closedOwner(t)
	p.own.heir.begun = true
	reserves(tn, p.own, 1)
	tn.Now += TickEvery
	p.Tick(tn)
	end := tn.Now + OverdueFor
	if due := p.Due(tn); due != end {
		t.Fatalf("due in %v, want %v", (due - tn.Now).Duration(), OverdueFor.Duration())
	}
	tn.Now = end - 1
	if next := p.Tick(tn); next != end || len(p.own.overdue) != 1 {
		t.Errorf("before its end %d are overdue, and the next tick is in %v", len(p.own.overdue), (next - tn.Now).Duration())
	}
	tn.Now = end
	p.Tick(tn)
	if due := p.Due(tn); due != Never || len(p.own.overdue) != 0 {
		t.Errorf("at its end %d are overdue, and the next tick is in %v", len(p.own.overdue), (due - tn.Now).Duration())
	}
}
