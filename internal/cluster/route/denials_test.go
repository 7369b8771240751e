package route

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// aCheck returns a check of one key with a limit, and a time.
func aCheck(t *testing.T) (limiter.Tick, *arith.Charge) {
	t.Helper()
	l, err := limiter.NewLimit(limiter.Spec{Limit: 100, Window: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	charge := new(arith.Charge)
	charge.Add(arith.Key{Hash: arith.Hash{Hi: 1, Lo: 2}, Rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}},
		Cost: 5})
	return 1_700_000_000 * limiter.Second, charge
}

// denied is an owner's denial of a key for a while.
func denied(k *arith.Key, wait limiter.Tick) *limiter.Decision {
	d := new(limiter.Decision)
	d.Grow(1)
	*d.Limit(0) = limiter.LimitDecision{Rule: k.Rule, Limit: k.Rule.Limits[0], Cost: k.Cost, RetryAfter: wait.Duration(),
		ResetAfter: wait.Duration(), Owner: "b"}
	arith.Combine(d, false)
	arith.Conclude(d)
	d.Source = limiter.SourceOwner
	return d
}

// A denial is not cached if the owner might answer differently, or would charge the
// check.
func TestDenialsThatAreNotRemembered(t *testing.T) {
	now, charge := aCheck(t)
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
	slots := *k
	slots.Rule = limit(limiter.Spec{Limit: 5, Algorithm: limiter.Concurrency})
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
		k *arith.Key
		d *limiter.Decision
	}{
		"count_rejected": {&counted, denied(&counted, limiter.Minute)}, "shadow": {&shadow, denied(&shadow, limiter.Minute)},
		"concurrency":  {&slots, denied(&slots, limiter.Minute)},
		"a full table": {k, full}, "never": {k, never}, "over before it was heard": {k, late}, "by other rules": {k, foreign},
	} {
		var x denials
		x.add(now+2*limiter.Millisecond, now, one.k, one.d)
		if x.refuse(now+2*limiter.Millisecond, one.k, new(limiter.Decision)) {
			t.Errorf("%s: it is remembered", name)
		}
	}
}

// A cached denial ends RetryAfter after its owner was asked, so never too late. The
// remaining wait is counted from the arrival of the answer, so it is never too short.
func TestCachedDenialsOnTheWay(t *testing.T) {
	now, charge := aCheck(t)
	const ms = limiter.Millisecond
	var x denials
	var d limiter.Decision
	k, asked := charge.Key(0), now
	x.add(asked+20*ms, asked, k, denied(k, 100*ms))
	if !x.refuse(asked+100*ms-1, k, &d) || limiter.Span(d.RetryAfter) != 20*ms+1 ||
		limiter.Span(d.Limit(0).RetryAfter) != 20*ms+1 || limiter.Span(d.Limit(0).ResetAfter) != 20*ms+1 {
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
	now, charge := aCheck(t)
	var x denials
	k := *charge.Key(0)
	for i := range uint64(4 * maxDenials) {
		k.Hash = arith.Hash{Hi: i, Lo: i}
		x.add(now, now, &k, denied(&k, limiter.Tick(i+1)))
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
	if !x.refuse(now, &k, new(limiter.Decision)) {
		t.Error("the last denial found no room")
	}
}
