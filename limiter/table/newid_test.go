package table

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// New ids take slots of ids whose time is over, for checks of one key and of several, and never
// those of others.
func TestANewIDTakesAnEndedOnesSlot(t *testing.T) {
	const first, then = 70, 30 // few enough that nothing is swept
	rule, d := window(t, 1_000_000, 24*time.Hour), limiter.Decision{}
	for keys := 1; keys <= 2; keys++ {
		tab := New(Config{Order: rand.NewPCG(5, 6)})
		check := func(now limiter.Tick, id uint64, life time.Duration) {
			c := &arith.Charge{ID: &arith.Idempotency{ID: hash(id).Hi | 1, Life: life}}
			for i := range keys {
				c.Add(arith.Key{Hash: arith.Hash{Hi: 7, Lo: uint64(i) << 62}, Rule: rule, Cost: 1})
			}
			if err := tab.Decide(now, c, &d); err != nil || !d.Allowed {
				t.Fatalf("%d keys, id %d: %+v, %v", keys, id, d, err)
			}
		}
		for id := range uint64(first) {
			check(idStart, id, time.Duration(1+id%2*9)*time.Second)
		}
		now := idStart + 2*limiter.Second
		for id := range uint64(then) {
			check(now, first+id, time.Second)
			if d.Repeated {
				t.Fatalf("%d keys: id %d is known", keys, first+id)
			}
		}
		if n := tab.Stats().IDs; n > int64(keys)*(first+then*2/3) {
			t.Errorf("%d keys: %d ids after %d and %d", keys, n, first, then)
		}
		tab.checkAll(t)
		for id := range uint64(first + then) {
			if id < first && id%2 == 0 {
				continue // its time was over
			}
			if check(now, id, time.Second); !d.Repeated {
				t.Errorf("%d keys: id %d is not known", keys, id)
			}
		}
	}
}

// A check with a new id that is denied takes no room.
func TestADeniedIDTakesNoRoom(t *testing.T) {
	const limit = 3
	tab, rule := New(Config{}), window(t, limit, time.Hour)
	for id := range uint64(2 * limit) {
		c := charge(1, arith.Key{Hash: hash(1), Rule: rule})
		c.ID = &arith.Idempotency{ID: hash(id).Hi | 1, Life: time.Minute}
		if d := decide(t, tab, hourStart, c); d.Allowed != (id < limit) {
			t.Fatalf("check %d: allowed is %v", id, d.Allowed)
		}
	}
	if n := tab.Stats().IDs; n != limit {
		t.Errorf("%d ids after %d admissions", n, limit)
	}
	tab.checkAll(t)
}

// Where a check's id is known for some of its keys, a rule in shadow that would deny for others says so, and when it
// would not.
func TestAShadowBesideAKnownIDSaysWhenItDenies(t *testing.T) {
	tab, force, shadow := New(Config{}), window(t, 100, time.Hour), window(t, 1, time.Hour)
	shadow.Shadow = true
	var d limiter.Decision
	decide := func(id uint64, rules ...*limiter.Rule) {
		t.Helper()
		c := &arith.Charge{ID: &arith.Idempotency{ID: id, Life: time.Minute}}
		for i, rule := range rules {
			c.Add(arith.Key{Hash: arith.Hash{Hi: 7, Lo: hash(uint64(i)).Lo}, Rule: rule, Cost: 1})
		}
		if err := tab.Decide(idStart, c, &d); err != nil || !d.Allowed || d.Repeated {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	decide(1, force)
	decide(2, force, shadow)
	decide(1, force, shadow)
	if l := d.Limit(1); !d.ShadowDenied || !d.Limit(0).Allowed || l.Allowed || l.RetryAfter <= 0 || d.RetryAfter != 0 {
		t.Errorf("%+v", d)
	}
	if d.Limit(0).Remaining != 98 {
		t.Errorf("%d left: the key for which the id is known was charged again", d.Limit(0).Remaining)
	}
}
