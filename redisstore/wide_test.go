package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/redisstore"
)

// A cost above 2^32-1 fits no limit below: it is denied for good, and counts nothing.
func TestAWideCostIsNeverAdmitted(t *testing.T) {
	s := openStore(t, redisstore.Config{Addrs: []string{startServer(t).addr()}})
	for a, name := range limiter.AlgorithmNames() {
		for _, count := range []limiter.CountRejected{limiter.CountNone, limiter.CountAll} {
			l := limitertest.Limit(t, limiter.Spec{Algorithm: limiter.Algorithm(a), Limit: 10, Window: time.Hour,
				CountRejected: count})

			now := arith.At(limitertest.Start())
			for _, cost := range []uint64{limiter.MaxUnits, limiter.NarrowUnits + 1, 10} {
				var c arith.Charge
				var d limiter.Decision
				c.Add(arith.Key{Hash: arith.Hash{Hi: 1, Lo: uint64(a)<<8 | uint64(count)},
					Rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}}, Cost: cost})
				if err := s.Decide(t.Context(), now, []*arith.Charge{&c}, []*limiter.Decision{&d}, nil); err != nil {
					t.Fatal(err)
				}
				if d.Source != limiter.SourceRedis || d.Never != (cost > 10) || d.Allowed != (cost == 10) || d.RetryAfter != 0 {
					t.Errorf("%s, %v: cost %d: %+v", name, count, cost, d)
				}
			}
		}
	}
}

// both is a table and Redis, which decide the same charges of one limit.
type both struct {
	t        *testing.T
	table    *table.Table
	store    *redisstore.Store
	key      arith.Key
	now      limiter.Tick
	receipts []receipt
	decision limiter.Decision
}

func newBoth(t *testing.T, spec limiter.Spec) *both {
	t.Helper()
	b := &both{t: t, table: table.New(table.Config{}), now: limitertest.Start(),
		store: openStore(t, redisstore.Config{Addrs: []string{startServer(t).addr()}})}
	b.key = arith.Key{Hash: arith.Hash{Hi: 1, Lo: 2}, Rule: &limiter.Rule{Name: "r"}}
	b.limit(spec)
	return b
}

// limit replaces the limit.
func (b *both) limit(spec limiter.Spec) {
	b.t.Helper()
	spec.Name = "l"
	l, err := limiter.NewLimit(spec)
	if err != nil {
		b.t.Fatal(err)
	}
	b.key.Rule = &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}}
}

// check asks both for a cost, and returns what is left.
func (b *both) check(cost uint64) uint64 {
	b.t.Helper()
	var c arith.Charge
	var got limiter.Decision
	k := b.key
	k.Cost = cost
	c.Add(k)
	if err := b.table.Decide(b.now, &c, &b.decision); err != nil {
		b.t.Fatal(err)
	}
	if err := b.store.Decide(b.t.Context(), arith.At(b.now), []*arith.Charge{&c}, []*limiter.Decision{&got},
		nil); err != nil {
		b.t.Fatal(err)
	}
	if want, got := show(&b.decision), show(&got); got != want {
		b.t.Fatalf("at %d, cost %d:\n  the table decides %s\n  redis decides     %s", b.now, cost, want, got)
	}
	if arith.Fields(&b.decision.Receipt).Charged != 0 {
		b.receipts = append(b.receipts, receipt{c, b.decision.Receipt})
	}
	return b.decision.Limit(0).Remaining
}

// refund takes one of the charges back.
func (b *both) refund(n int) {
	b.t.Helper()
	r := b.receipts[n]
	b.receipts = append(b.receipts[:n], b.receipts[n+1:]...)
	b.table.Refund(b.now, &r.charge, r.of)
	if err := b.store.Refund(b.t.Context(), arith.At(b.now), &r.charge, r.of, nil); err != nil {
		b.t.Fatal(err)
	}
}

// C3: thousands of sub-windows of wide counts, whose sum is above 2^53, and whose list is changed in its place.
func TestManyWideSubWindowsCountAlike(t *testing.T) {
	for _, count := range []limiter.CountRejected{limiter.CountNone, limiter.CountAll} {
		b := newBoth(t, limiter.Spec{Algorithm: limiter.SlidingWindow, Limit: limiter.MaxUnits, Window: time.Hour,
			SubWindows: 3600, CountRejected: count})
		c := limitertest.SeededChoices(uint64(count))
		left, denied := uint64(limiter.MaxUnits), 0
		for i := range 3000 {
			b.now += limiter.Second * limiter.Tick(c.Pick(4)) / 2
			if i%1000 == 999 {
				b.now += 45 * limiter.Minute
			}
			cost := []uint64{1, limiter.NarrowUnits, left/100 + 1, left + 1, limiter.MaxUnits / 3,
				limiter.MaxUnits}[c.Pick(40)%6]
			if c.Pick(8) > 0 {
				cost = left/1000 + uint64(c.Pick(200))
			}
			left = b.check(min(cost, limiter.MaxUnits))
			if !b.decision.Allowed {
				denied++
			}
			if len(b.receipts) > 0 && c.Pick(5) == 0 {
				b.refund(max(0, len(b.receipts)-1-c.Pick(300)))
			}
		}
		if denied < 100 {
			t.Errorf("%d denials, 100 were to be", denied)
		}
	}
}

// settle settles an id that is not known.
func (b *both) settle(id, cost uint64) {
	b.t.Helper()
	var c arith.Charge
	k := b.key
	k.Cost = cost
	c.Add(k)
	c.ID = &arith.Idempotency{ID: id, Life: limiter.MinIDTTL, Hold: limiter.MinHold}
	want, _ := b.table.Amend(b.now, &c, limiter.Amend{})
	got, err := b.store.Extras().Amend(b.t.Context(), arith.At(b.now), &c, limiter.Amend{}, nil)
	want.Known = 0 // Redis does not say it
	if err != nil || got != want || want.State != limiter.AmendCharged {
		b.t.Fatalf("a settlement with %d: the table says %+v, redis %+v, %v", cost, want, got, err)
	}
}

// C3: an overdrawn bucket when the clock goes back: its level in units is then more than a double holds.
func TestOverdrawnWideBucketsWhenTheClockGoesBack(t *testing.T) {
	for _, spec := range []limiter.Spec{
		{Algorithm: limiter.TokenBucket, Limit: 1 << 40, Window: time.Hour, Burst: 1 << 20},
		{Algorithm: limiter.GCRA, Limit: limiter.MaxUnits, Window: limiter.MaxWindow, Burst: 1},
		{Algorithm: limiter.LeakyBucket, Limit: limiter.MaxUnits, Window: 24 * time.Hour},
		{Algorithm: limiter.GCRA, Limit: limiter.MaxUnits, Window: time.Millisecond, Burst: 1 << 40},
	} {
		b := newBoth(t, spec)
		b.settle(1, limiter.MaxUnits-1)
		for i, back := range []limiter.Tick{0, 0, 1, limiter.Second, limiter.Hour, 400 * limiter.Day} {
			b.now -= back
			b.check(1)
			b.settle(uint64(2+i), limiter.MaxUnits)
			b.check(b.key.Rule.Limits[0].Capacity())
		}
	}
}

// C3: what three windows leak, less nearly one of them, where a double cannot hold the product.
func TestWideDripsLeakExactly(t *testing.T) {
	for _, limit := range []int64{3002399751580333, 3002399751580334, 3002399751580335} {
		b := newBoth(t, limiter.Spec{Algorithm: limiter.LeakyBucket, Limit: limit, Window: 24 * time.Hour,
			Burst: limiter.MaxUnits, Drip: limiter.DripInterval})
		b.now += limiter.Day - 1
		b.check(limiter.MaxUnits)
		b.now += 2*limiter.Day + 7
		if left := b.check(limiter.MaxUnits); left < 2*uint64(limit) || left > 2*uint64(limit)+1<<40 {
			t.Errorf("%d have leaked in two days of %d", left, limit)
		}
	}
}

// What a limit counted below 2^32 still counts when it goes above, and back as soon as the narrow limit can hold it:
// no script reads the bytes of the one as those of the other. The family in a value tells them apart, also for earlier
// versions, which have no family above 8.
func TestNoScriptMisreadsWideCounts(t *testing.T) {
	for a, name := range limiter.AlgorithmNames() {
		if a := limiter.Algorithm(a); a != limiter.SlidingLog {
			t.Run(name, func(t *testing.T) {
				srv := startServer(t)
				narrow := limiter.Spec{Algorithm: a, Limit: limiter.NarrowUnits - 1, Window: time.Hour}
				wide := narrow
				wide.Limit = limiter.MaxUnits
				b := newBoth(t, narrow)
				b.store = openStore(t, redisstore.Config{Addrs: []string{srv.addr()}})
				family := func(wide bool) {
					t.Helper()
					key := srv.do("KEYS", "*:l").([]any)[0]
					value := srv.do("GET", key).(string)
					if got := strings.HasPrefix(value, "[9,") || strings.HasPrefix(value, "[1"); got != wide &&
						a != limiter.FixedWindow {
						t.Errorf("the value is %q", value)
					}
				}
				b.check(limiter.NarrowUnits - 7)
				family(false)
				b.limit(wide)
				b.now++
				b.check(1 << 50)
				family(true)
				if left := b.check(1 << 33); left != limiter.MaxUnits-(limiter.NarrowUnits-7)-1<<50-1<<33 &&
					a == limiter.FixedWindow {
					t.Errorf("%d are left", left)
				}
				b.limit(narrow)
				b.now++
				if left := b.check(1); left != 0 || b.decision.Allowed {
					t.Errorf("%d are left of a limit that was passed", left)
				}
				// A bucket that counts more than the narrow limit can hold stays what it is.
				family(a == limiter.TokenBucket || a == limiter.LeakyBucket || a == limiter.GCRA)
				b.now += limiter.Span(b.decision.RetryAfter)
				if b.check(1); !b.decision.Allowed {
					t.Error("denied after the wait that was told")
				}
				family(false)
			})
		}
	}
}

// C3: nothing comes back from a count that is full beyond its limit.
func TestNothingComesBackFromAFullCount(t *testing.T) {
	for _, spec := range []limiter.Spec{
		{Algorithm: limiter.FixedWindow, Limit: 4_000_000_000, Window: time.Hour},
		{Algorithm: limiter.SlidingCounter, Limit: 4_000_000_000, Window: time.Hour},
		{Algorithm: limiter.SlidingWindow, Limit: 4_000_000_000, Window: time.Hour},
		{Algorithm: limiter.FixedWindow, Limit: limiter.MaxUnits - 1, Window: time.Hour},
	} {
		b := newBoth(t, spec)
		most := uint64(spec.Limit)
		b.check(most)
		b.settle(1, most)
		b.refund(0)
		if left := b.check(1); left != 0 {
			t.Errorf("%s of %d: %d are left after as many were used", spec.Algorithm, most, left)
		}
	}
}

// C3: a bucket counts what was used beyond its limit, also above 32 bits, and gives exactly the rest back. Another
// limit takes it over.
func TestABucketCountsBeyond32Bits(t *testing.T) {
	const limit, held = 4_000_000_000, 3_900_000_000
	for _, spec := range []limiter.Spec{
		{Algorithm: limiter.TokenBucket}, {Algorithm: limiter.GCRA, CountRejected: limiter.CountAll},
		{Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval},
		{Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval, DripUnits: 1000, CountRejected: limiter.CountAll},
	} {
		for _, over := range []uint64{held, 9_000_000_000, limiter.MaxUnits} {
			spec.Limit, spec.Window, spec.Burst = limit, time.Hour, 0
			b := newBoth(t, spec)
			b.check(held)
			b.settle(1, over)
			b.now++
			b.refund(0)
			// At the bound, a hundred years, nothing more counts.
			b.explained()
			if left := b.check(200_000_000); left > limit-held {
				t.Errorf("%s: %d are left after %d were used", spec.Algorithm, left, over)
			}
			spec.Limit /= 1000
			b.limit(spec)
			b.explained()
			b.check(7)
			b.now += 3 * limiter.Hour
			b.explained()
			b.check(7)
			spec.Limit, spec.Burst = 5000, 4_294_967_295/1000
			if b.limit(spec); spec.DripUnits > 0 {
				spec.DripUnits = 100
				b.limit(spec)
			}
			b.check(1)
			b.now += 1000 * limiter.Day
			b.check(1)
			b.explained()
		}
	}
}

// explained compares how many units both say are used.
func (b *both) explained() {
	b.t.Helper()
	var c arith.Charge
	var d limiter.Decision
	k := b.key
	k.Cost = 1
	c.Add(k)
	want := b.table.Explain(b.now, &c, &d)
	got, err := b.store.Explain(b.t.Context(), arith.At(b.now), &c, nil)
	if err != nil || len(want) != 1 || len(got.Limits) != 1 || want[0].Arithmetic != got.Limits[0].Arithmetic {
		b.t.Fatalf("explained: the table says %q, redis %q, %v", want[0].Arithmetic, got.Limits[0].Arithmetic, err)
	}
}

// C3: a charge is not given back if the level of its bucket has been at its bound since: what was used beyond was lost.
func TestABucketThatWasFullGivesNothingBack(t *testing.T) {
	for _, spec := range []limiter.Spec{
		{Algorithm: limiter.TokenBucket, Limit: 1, Burst: 91, Window: 400 * 24 * time.Hour},
		{Algorithm: limiter.GCRA, Limit: 1, Burst: 91, Window: 400 * 24 * time.Hour},
		{Algorithm: limiter.LeakyBucket, Limit: 1, Burst: 91, Window: 400 * 24 * time.Hour, Drip: limiter.DripInterval},
		{Algorithm: limiter.TokenBucket, Limit: limiter.MaxUnits, Window: time.Hour},
		{Algorithm: limiter.LeakyBucket, Limit: limiter.MaxUnits - 1, Window: time.Hour, Drip: limiter.DripInterval},
	} {
		for _, later := range []limiter.Tick{0, 1, limiter.Minute} {
			b := newBoth(t, spec)
			burst := b.key.Rule.Limits[0].Capacity()
			b.check(burst / 2)
			b.now += later
			b.settle(1, limiter.MaxUnits)
			b.now += later
			b.refund(0)
			if b.check(burst / 8); b.decision.Allowed {
				t.Errorf("%s, burst %d: %d more are admitted after all were used", spec.Algorithm, burst, burst/8)
			}
			if burst == limiter.MaxUnits {
				continue
			}
			// A burst that is used up is exact.
			b = newBoth(t, spec)
			b.check(burst)
			b.now += later
			b.refund(0)
			if b.check(burst / 8); !b.decision.Allowed {
				t.Errorf("%s, burst %d: nothing came back", spec.Algorithm, burst)
			}
		}
	}
}

// C3: the estimate of a reservation is raised as often as in memory. Then a raise is refused as what it is, and the
// reservation stands.
func TestRaisesHaveABound(t *testing.T) {
	b := newBoth(t, limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 1000, Window: time.Hour})
	var c arith.Charge
	var d, other limiter.Decision
	k := b.key
	k.Cost = 1
	c.Add(k)
	c.ID = &arith.Idempotency{ID: 7, Life: time.Hour, Hold: time.Hour}
	if err := b.table.Decide(b.now, &c, &d); err != nil {
		t.Fatal(err)
	}
	if err := b.store.Decide(t.Context(), arith.At(b.now), []*arith.Charge{&c}, []*limiter.Decision{&other},
		nil); err != nil || !other.Allowed {
		t.Fatal(err)
	}
	for i := range limiter.MaxHoldParts + 1 {
		b.now++
		c.Key(0).Cost++
		want, _ := b.table.Amend(b.now, &c, limiter.Amend{Extend: true})
		got, err := b.store.Extras().Amend(t.Context(), arith.At(b.now), &c, limiter.Amend{Extend: true}, nil)
		if state := limiter.AmendRaised; err != nil || got.State != want.State ||
			i >= limiter.MaxHoldParts && want.State != state {
			t.Fatalf("raise %d: the table says %+v, redis %+v, %v", i, want, got, err)
		}
	}
}
