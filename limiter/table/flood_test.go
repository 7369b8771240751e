package table

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// flood is checks of one key, each with a new id: more than one key may have. The first ten ids last for as long as
// first says, all others for a second, and one ends every 20 µs.
type flood struct {
	table *Table
	rule  *limiter.Rule
	ids   *rand.Rand
	now   limiter.Tick
	first time.Duration
	n     int
}

func newFlood(tb testing.TB, first time.Duration) *flood {
	return &flood{
		table: New(Config{MaxKeys: 400_000}), rule: benchLimits(tb, limiter.SlidingCounter, time.Hour),
		ids: rand.New(rand.NewPCG(1, 7)), now: 1e15, first: first,
	}
}

func (f *flood) check(tb testing.TB) {
	tb.Helper()
	f.now += 20
	id := arith.Idempotency{ID: f.ids.Uint64() | 1, Life: time.Second}
	if f.n++; f.n <= 10 {
		id.Life = f.first
	}
	c := charge(1, arith.Key{Hash: hash(1), Rule: f.rule})
	c.ID = &id
	var d limiter.Decision
	if err := f.table.Decide(f.now, c, &d); err != nil || !d.Allowed {
		tb.Fatal("denied: ", err)
	}
}

// TestAFloodOfIDsIsSweptNowAndThen: a key has as many ids as it may, and one ends before each check. The checks do not
// sweep them each time, whichever is the oldest, and ended ids make room again.
func TestAFloodOfIDsIsSweptNowAndThen(t *testing.T) {
	inWire(t)
	for _, first := range []time.Duration{time.Second, time.Hour} {
		f := newFlood(t, first)
		for f.table.Stats().IDs < 400_000/idsOfKey-1 {
			f.check(t)
		}
		const checks = 60_000
		swept, most := 0, 0
		p := &f.table.parts[PartitionOf(&arith.Key{Hash: hash(1), Rule: f.rule})]
		for range checks {
			before := p.expiry.Load()
			f.check(t)
			if p.expiry.Load() > before { // a sweep has found when the next one ends
				swept++
			}
			most = max(most, int(f.table.Stats().IDs))
		}
		if swept > 3*crowdPart*checks/most || most < 20_000 {
			t.Errorf("the oldest last for %v: %d of %d checks swept the partition of %d ids", first, swept, checks, most)
		}
		if first == time.Hour && swept == 0 {
			t.Error("ended ids made no room")
		}
		f.table.checkAll(t)
	}
}

// BenchmarkFloodOfIDs is of such checks.
func BenchmarkFloodOfIDs(b *testing.B) {
	for _, first := range []time.Duration{time.Second, time.Hour} {
		b.Run("oldest "+first.String(), func(b *testing.B) {
			f := newFlood(b, first)
			for range 50_000 {
				f.check(b)
			}
			longest := time.Duration(0)
			for b.Loop() {
				began := time.Now()
				f.check(b)
				longest = max(longest, time.Since(began))
			}
			b.ReportMetric(float64(longest.Microseconds()), "longest-us")
		})
	}
}
