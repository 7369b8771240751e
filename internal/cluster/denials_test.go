package cluster

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// denied is an owner's denial of a key for a while.
func denied(k *limiter.Key, wait limiter.Tick) *limiter.Decision {
	d := new(limiter.Decision)
	limiter.Grow(d, 1)
	*d.Limit(0) = limiter.LimitDecision{Rule: k.Rule, Limit: k.Rule.Limits[0], Cost: k.Cost, RetryAfter: wait.Duration(), ResetAfter: wait.Duration(), Owner: "b"}
	limiter.Settle(d, false)
	limiter.Conclude(d)
	d.Source = limiter.SourceOwner
	return d
}

// rememberer returns a core that caches denials, and a partition that another member
// owns.
func rememberer(t *testing.T) (*Core, *byHand, *limiter.Charge) {
	t.Helper()
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	c.denials = new(denials)
	p.to.Store(uint64(other))
	return c, h, charge
}

// A cached denial allocates nothing.
func TestCachedDenialsAllocateNothing(t *testing.T) {
	c, h, charge := rememberer(t)
	k := charge.Key(0)
	c.denials.add(h.now, h.now, k, denied(k, limiter.Minute))
	var d limiter.Decision
	allocs := testing.AllocsPerRun(1000, func() { c.Check(t.Context(), charge, &d) })
	if d.Source != limiter.SourceCached || d.Allowed || limiter.Span(d.RetryAfter) != limiter.Minute || d.Limit(0).Owner != "b" {
		t.Fatalf("%+v", d)
	}
	if allocs != 0 && !raceEnabled {
		t.Errorf("%v allocations for each", allocs)
	}
}

// A cached denial is not used for other costs, other rules, peeks, checks of several
// keys, or after a reset.
func TestCachedDenialsAreOfOneCheck(t *testing.T) {
	c, h, charge := rememberer(t)
	k := charge.Key(0)
	c.denials.add(h.now, h.now, k, denied(k, limiter.Minute))
	refused := func(change func(*limiter.Charge)) bool {
		tr := c.begin()
		defer tr.end()
		asked := charge.Clone()
		change(asked)
		var d limiter.Decision
		to, _ := c.destination(asked)
		return c.refusedHere(tr, to, asked, &d)
	}
	if !refused(func(*limiter.Charge) {}) {
		t.Fatal("the same check is not refused")
	}
	for name, change := range map[string]func(*limiter.Charge){
		"another cost": func(a *limiter.Charge) { a.Key(0).Cost++ },
		"a peek":       func(a *limiter.Charge) { a.Peek = true },
		"a cost of 0":  func(a *limiter.Charge) { a.Key(0).Cost = 0 },
		"new rules":    func(a *limiter.Charge) { r := *k.Rule; a.Key(0).Rule = &r },
		"another key":  func(a *limiter.Charge) { a.Key(0).Hash.Lo++ },
		"several keys": func(a *limiter.Charge) { a.Add(limiter.Key{Hash: limiter.Hash{Hi: 1, Lo: 3}, Rule: k.Rule, Cost: 5}) },
	} {
		if refused(change) {
			t.Errorf("%s: refused here", name)
		}
	}
	c.denials.forget(charge)
	if refused(func(*limiter.Charge) {}) {
		t.Error("what was forgotten is refused")
	}
}

// A node that has become the owner decides, whatever the last owner denied: it has the
// counters, and they may have been reset or refunded meanwhile.
func TestAnOwnerHasNoCachedDenials(t *testing.T) {
	c, h, charge := rememberer(t)
	k := charge.Key(0)
	c.denials.add(h.now, h.now, k, denied(k, limiter.Minute))
	own(c, c.parts[0])
	var d limiter.Decision
	c.Begin(charge, &d, 0, func() {})
	if d.Source != limiter.SourceOwner || !d.Allowed {
		t.Errorf("%v, allowed %t", d.Source, d.Allowed)
	}
}

// A denial is not cached if the owner might answer differently, or would charge the
// check.
func TestDenialsThatAreNotRemembered(t *testing.T) {
	_, h, charge := rememberer(t)
	k := charge.Key(0)
	limit := func(s limiter.Spec) *limiter.Rule {
		l, err := limiter.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		return &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}}
	}
	counted := *k
	counted.Rule = limit(limiter.Spec{Limit: 5, Window: time.Minute, CountRejected: limiter.CountRoom})
	shadow := *k
	shadow.Rule = &limiter.Rule{Name: "r", Limits: k.Rule.Limits, Shadow: true}
	late := denied(k, limiter.Millisecond)
	full := denied(k, limiter.Minute)
	full.Limit(0).Overflow = true
	never := denied(k, 0)
	never.Limit(0).Never, never.Never = true, true
	foreign := denied(k, limiter.Minute)
	foreign.Limit(0).Rule = counted.Rule
	for name, one := range map[string]struct {
		k *limiter.Key
		d *limiter.Decision
	}{
		"count_rejected": {&counted, denied(&counted, limiter.Minute)}, "shadow": {&shadow, denied(&shadow, limiter.Minute)},
		"a full table": {k, full}, "never": {k, never}, "over before it was heard": {k, late}, "by other rules": {k, foreign},
	} {
		var x denials
		x.add(h.now+2*limiter.Millisecond, h.now, one.k, one.d)
		if x.refuse(h.now+2*limiter.Millisecond, one.k, new(limiter.Decision)) {
			t.Errorf("%s: it is remembered", name)
		}
	}
}

// A cached denial ends RetryAfter after its owner was asked, so never too late. The
// remaining wait is counted from the arrival of the answer, so it is never too short.
func TestCachedDenialsOnTheWay(t *testing.T) {
	_, h, charge := rememberer(t)
	const ms = limiter.Millisecond
	var x denials
	var d limiter.Decision
	k, asked := charge.Key(0), h.now
	x.add(asked+20*ms, asked, k, denied(k, 100*ms))
	if !x.refuse(asked+100*ms-1, k, &d) || limiter.Span(d.RetryAfter) != 20*ms+1 || limiter.Span(d.Limit(0).RetryAfter) != 20*ms+1 || limiter.Span(d.Limit(0).ResetAfter) != 20*ms+1 {
		t.Errorf("at its end: %+v", d)
	}
	for _, at := range []limiter.Tick{asked - 1, asked + 100*ms} {
		if x.refuse(at, k, &d) {
			t.Errorf("refused %v after it was asked", (at - asked).Duration())
		}
	}
}

// The room for denials is bounded, and a new one replaces the one that ends first.
func TestCachedDenialsAreBounded(t *testing.T) {
	_, h, charge := rememberer(t)
	var x denials
	k := *charge.Key(0)
	for i := range uint64(4 * maxDenials) {
		k.Hash = limiter.Hash{Hi: i, Lo: i}
		x.add(h.now, h.now, &k, denied(&k, limiter.Tick(i+1)))
	}
	have := 0
	for i := range x.shards {
		for j := range x.shards[i].sets {
			for _, e := range x.shards[i].sets[j] {
				if e.rule != nil {
					have++
				}
			}
		}
	}
	if have != maxDenials {
		t.Errorf("%d denials are kept, of at most %d", have, maxDenials)
	}
	if !x.refuse(h.now, &k, new(limiter.Decision)) {
		t.Error("the last denial found no room")
	}
}
