package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// An extension asks the keys in all slots whether they admit it, and then extends. If another caller takes
// what was left of one key in between, the extension is denied, and all keys are as before: their
// estimates, and the ends of their holds, also of a limit on concurrency.
func TestAnExtensionThatIsDeniedLateIsTakenBack(t *testing.T) {
	t.Parallel()
	store := openStore(t, clusterConfig(startCluster(t)))
	rule := &limiter.Rule{Name: "r"}
	for _, spec := range []limiter.Spec{
		{Name: "hour", Limit: 10, Window: time.Hour, Algorithm: limiter.FixedWindow},
		{Name: "log", Limit: 10, Window: time.Hour, Algorithm: limiter.SlidingLog},
		{Name: "bucket", Limit: 10, Window: time.Hour, Algorithm: limiter.TokenBucket},
		{Name: "slots", Limit: 10, Algorithm: limiter.Concurrency},
	} {
		l := limitertest.Limit(t, spec)
		rule.Limits = append(rule.Limits, l)
	}
	now := limitertest.Start()
	charge := func(id uint64, cost uint64, hold time.Duration, keys ...uint64) *arith.Charge {
		c := &arith.Charge{ID: &arith.Idempotency{ID: id, Life: time.Minute, Hold: hold}}
		for _, k := range keys {
			c.Add(arith.Key{Hash: arith.Hash{Hi: k, Lo: k << 50}, Rule: rule, Cost: cost})
		}
		return c
	}
	between, late := func() {}, func() {}
	named := 0
	name := func(dst []byte, _, _ int) []byte {
		switch named++; named {
		case 7: // the calls that ask named each key twice: those that extend are next
			between()
		case 13: // and then those that take back
			before := named
			late()
			named = before
		}
		return dst
	}
	decide := func(c *arith.Charge) (d limiter.Decision) {
		t.Helper()
		if err := store.Decide(t.Context(), arith.At(now), []*arith.Charge{c}, []*limiter.Decision{&d},
			func(dst []byte, _, _ int) []byte {
				return dst
			}); err != nil || d.Source != limiter.SourceRedis {
			t.Fatalf("%+v, %v", d, err)
		}
		return d
	}
	left := func(when string, want ...uint64) {
		t.Helper()
		for k, n := range want {
			c := charge(0, 1, 0, uint64(k+1))
			c.ID, c.Peek = nil, true
			d := decide(c)
			for j := range d.Len() {
				if got := d.Limit(j).Remaining; got != n {
					t.Errorf("%s: key %d has %d of %s left, want %d", when, k+1, got, d.Limit(j).Limit.Name(), n)
				}
			}
		}
	}
	if d := decide(charge(1, 2, time.Minute, 1, 2, 3)); !d.Allowed {
		t.Fatal("denied")
	}
	now += 10 * limiter.Second
	extend := charge(1, 5, 10*time.Minute, 1, 2, 3)
	amend := func(when string, want limiter.AmendState) {
		t.Helper()
		named = 0
		if a, err := store.Extras().Amend(context.Background(), arith.At(now), extend, limiter.Amend{Extend: true},
			name); err != nil || a.State != want {
			t.Fatalf("%s: %+v, %v", when, a, err)
		}
	}
	other := charge(2, 6, time.Hour, 2)
	between = func() {
		if d := decide(other); !d.Allowed {
			t.Error("the other one is denied")
		}
	}
	amend("another one came in between", limiter.AmendDenied)
	if named < 12 {
		t.Fatalf("premise: %d names were asked for", named)
	}
	left("denied late", 8, 2, 8)
	between = func() {}
	amend("again", limiter.AmendDenied)
	left("denied at once", 8, 2, 8)
	// Others have charged what comes back too much, if the raise stays in the holds that are to end.
	if d := decide(charge(3, 3, time.Hour, 1, 3)); !d.Allowed {
		t.Fatal("denied")
	}
	left("charged by another one", 5, 2, 5)
	now = limitertest.Start() + limiter.Minute - 1
	left("before their end", 5, 2, 5)
	now++
	left("at their end", 7, 4, 7)

	// One that is granted before another is taken back stands: the hold lasts as long as it says.
	now += limiter.Minute
	if d := decide(charge(4, 1, time.Minute, 1, 2, 3)); !d.Allowed {
		t.Fatal("denied")
	}
	left("reserved once more", 6, 3, 6)
	extend = charge(4, 2, 2*time.Minute, 1, 2, 3)
	between = func() {
		if d := decide(charge(5, 3, time.Hour, 2)); !d.Allowed {
			t.Error("the other one is denied")
		}
	}
	granted := false
	late = func() {
		plain := func(dst []byte, _, _ int) []byte { return dst }
		for _, key := range []uint64{1, 3} {
			a, err := store.Extras().Amend(context.Background(), arith.At(now), charge(4, 2, 30*time.Minute, key),
				limiter.Amend{Extend: true}, plain)
			if granted = err == nil && a.State == limiter.AmendDone; !granted {
				t.Errorf("%+v, %v", a, err)
			}
		}
	}
	amend("one is granted before it is taken back", limiter.AmendDenied)
	if !granted {
		t.Fatalf("premise: %d names were asked for", named)
	}
	now += 2 * limiter.Minute // after the ends of the reservation and of the extension that was taken back
	left("as long as the later one says", 5, 1, 5)
}
