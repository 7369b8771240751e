package lease

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
)

const span = 100 * limiter.Millisecond

// fixture is a holder of one key, of which the owner says that much is left.
type fixture struct {
	*testing.T
	Holder
	key arith.Key
	now Instant
}

func newFixture(t *testing.T, left uint64) *fixture {
	t.Helper()
	limit := limitertest.Limit(t, limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 1 << 40, Window: 24 * time.Hour})
	x := &fixture{T: t, now: Instant{Now: 1, At: 1e12}}
	x.key = arith.Key{Hash: arith.Hash{Hi: 7, Lo: 9}, Cost: 1,
		Rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit}, Leases: true}}
	x.check()
	x.Heard(&x.key, x.says(left))
	return x
}

// says is a decision of the owner, of which so much remains.
func (x *fixture) says(left uint64) *limiter.Decision {
	d := new(limiter.Decision)
	d.Grow(1)
	*d.Limit(0) = limiter.LimitDecision{Rule: x.key.Rule, Limit: x.key.Rule.Limits[0], Allowed: true, Remaining: left,
		ResetAfter: time.Hour}
	d.Allowed, d.Source = true, limiter.SourceOwner
	return d
}

func (x *fixture) check() (leased bool, w Wish) {
	d := new(limiter.Decision)
	leased, w = x.Decide(x.now, &x.key, 1, d)
	if leased && (d.Source != limiter.SourceLeased || !d.Allowed) {
		x.Errorf("%+v", d)
	}
	return leased, w
}

// wish checks until a lease is to be asked for.
func (x *fixture) wish() uint64 {
	x.Helper()
	for range 1000 {
		if _, w := x.check(); w.Units > 0 {
			return w.Units
		}
	}
	x.Fatal("no lease is wanted")
	return 0
}

// A lease is used if the owner itself has granted it now, by the rule that is used here.
func TestWhichLeasesAreUsed(t *testing.T) {
	other := &limiter.Rule{Name: "r"}
	for name, change := range map[string]func(x *fixture, l *Lease, d *limiter.Decision){
		"":                       func(*fixture, *Lease, *limiter.Decision) {},
		"denied":                 func(_ *fixture, _ *Lease, d *limiter.Decision) { d.Allowed = false },
		"repeated":               func(_ *fixture, _ *Lease, d *limiter.Decision) { d.Repeated = true },
		"by an override":         func(_ *fixture, _ *Lease, d *limiter.Decision) { d.Overridden = true },
		"by the heir":            func(_ *fixture, _ *Lease, d *limiter.Decision) { d.Source = limiter.SourceHeir },
		"by a policy":            func(_ *fixture, _ *Lease, d *limiter.Decision) { d.Source = limiter.SourceFallbackOpen },
		"by another rule":        func(_ *fixture, _ *Lease, d *limiter.Decision) { d.Limit(0).Rule = other },
		"without a limit":        func(_ *fixture, _ *Lease, d *limiter.Decision) { d.Clear(); d.Allowed = true },
		"late":                   func(x *fixture, l *Lease, _ *limiter.Decision) { x.now.Now = l.Until.Now },
		"late by the wall clock": func(x *fixture, l *Lease, _ *limiter.Decision) { x.now.At = l.Until.At },
		"to one that ends":       func(x *fixture, _ *Lease, _ *limiter.Decision) { x.Close() },
	} {
		x := newFixture(t, 1000)
		l := x.Ask(x.now, &x.key, x.wish(), 5, span)
		d := x.says(900)
		change(x, l, d)
		used := x.Answered(x.now, l, span, d)
		leased, _ := x.check()
		if used != (name == "") || leased != used {
			t.Errorf("%q: used %v, and it decides: %v", name, used, leased)
		}
	}
}

// Who waits for answers asks more often once it need not: after a lease that is used up before its time the next one
// has four times as many units, but no more than half of what is left.
func TestLeasesGrow(t *testing.T) {
	x := newFixture(t, 1e6)
	grant := func(n uint64) {
		t.Helper()
		if l := x.Ask(x.now, &x.key, n, n, span); !x.Answered(x.now, l, span, x.says(1e6)) {
			t.Fatal("it is not used")
		}
	}
	first := x.wish()
	grant(first)
	second := x.wish() // while the first lasts
	for leased := true; leased; {
		leased, _ = x.check()
	}
	grant(second)
	if third := x.wish(); third < growth*first {
		t.Errorf("%d units are wanted after %d were used up at once", third, first)
	}
	x = newFixture(t, 100)
	if n := x.wish(); n > 50 {
		t.Errorf("%d units are wanted of 100", n)
	}
}

// A lease ends with the fixed window in which it was granted, counted from when it was asked for: what it admits later
// would be of the next one.
func TestALeaseEndsWithItsWindow(t *testing.T) {
	for _, passed := range []limiter.Tick{0, 20 * limiter.Millisecond, 45 * limiter.Millisecond} {
		x := newFixture(t, 1000)
		began := x.now
		l := x.Ask(x.now, &x.key, x.wish(), 5, span)
		d := x.says(900)
		d.Limit(0).ResetAfter = 40 * time.Millisecond
		x.now.Now, x.now.At = began.Now+passed, began.At+passed
		used := x.Answered(x.now, l, span, d)
		if used != (passed < 40*limiter.Millisecond) {
			t.Errorf("after %v: used %v", passed.Duration(), used)
		}
		if !used {
			continue
		}
		if leased, _ := x.check(); !leased {
			t.Errorf("after %v it is not used", passed.Duration())
		}
		x.now.Now, x.now.At = began.Now+40*limiter.Millisecond, began.At+40*limiter.Millisecond
		if over, _ := x.Ended(x.now); len(over) != 1 {
			t.Error("it goes on after the window")
		}
		if leased, _ := x.check(); leased {
			t.Error("it admits after the window")
		}
	}
}

// Where a sliding window is nearly full, a lease ends before the step in which it was asked for: what it admits is
// charged in that step, and what is left of it is free then. After a recall the next one is asked for in the next step.
func TestALeaseEndsWithAStep(t *testing.T) {
	for left, until := range map[uint64]limiter.Tick{2400: 68 * limiter.Millisecond, 2500: useFor(span)} {
		x := newFixture(t, left)
		limit := limitertest.Limit(t, limiter.Spec{Algorithm: limiter.SlidingWindow, Limit: 1e4, Window: time.Second})
		step := arith.LeaseStep(limit)
		x.key.Rule = &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit}, Leases: true}
		x.now.At += step - x.now.At%step + 30*limiter.Millisecond
		x.check()
		x.Heard(&x.key, x.says(left))
		l := x.Ask(x.now, &x.key, x.wish(), 5, span)
		if !x.Answered(x.now, l, span, x.says(left)) {
			t.Fatal("it is not used")
		}
		if got := l.Until.At - x.now.At; step != 100*limiter.Millisecond || got != until || l.Until.Now-x.now.Now != got {
			t.Errorf("%d left: used for %v, in a step of %v", left, got.Duration(), step.Duration())
		}
		x.Recall(x.now, 5)
		x.pass(60 * limiter.Millisecond)
		for range 100 {
			if _, w := x.check(); w.Units > 0 {
				t.Fatalf("%d left: %d units are wanted in the step of a recall", left, w.Units)
			}
		}
		x.pass(10 * limiter.Millisecond)
		x.wish()
	}
}

func (x *fixture) pass(span limiter.Tick) { x.now.Now, x.now.At = x.now.Now+span, x.now.At+span }

// A receipt is good for minutes, in which its holder gives back thousands of other leases. The oldest make room.
func TestRefundsAfterManyLeases(t *testing.T) {
	x := newFixture(t, 1e9)
	charge := new(arith.Charge)
	charge.Add(x.key)
	for id := range uint64(maxPast + 1) {
		l := x.Ask(x.now, &x.key, 16, 1+id, span)
		l.used = 1
		x.Returned(l, true, arith.NewReceipt(arith.ReceiptFields{Epoch: 7, Time: 77}))
		x.all = nil
	}
	for id, want := range map[uint64]limiter.Tick{1: 0, 2: 77, 1000: 77, maxPast + 1: 77} {
		r := charge.Credit()
		f := arith.Fields(&r)
		f.Epoch, f.Time = id, 1
		for range 2 { // the second time its unit is back already
			owner, _ := x.Refund(x.now, charge, r)
			if at := arith.Fields(&owner).Time; at != want {
				t.Errorf("lease %d: the owner charged at %d, want %d", id, at, want)
			}
			want = 0
		}
	}
}
