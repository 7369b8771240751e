package table

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

const benchKeys = 100_000

func benchHashes(n int) []arith.Hash {
	r := rand.New(rand.NewPCG(1, 2))
	hs := make([]arith.Hash, n)
	for i := range hs {
		hs[i] = arith.Hash{Hi: r.Uint64(), Lo: r.Uint64()}
	}
	return hs
}

func benchLimits(b testing.TB, a limiter.Algorithm, windows ...time.Duration) *limiter.Rule {
	r := &limiter.Rule{Name: "bench"}
	for _, w := range windows {
		l, err := limiter.NewLimit(limiter.Spec{Algorithm: a, Limit: 1_000_000, Window: w})
		if err != nil {
			b.Fatal(err)
		}
		r.Limits = append(r.Limits, l)
	}
	return r
}

// BenchmarkDecide decides uniformly random keys of 100,000, in parallel, under
// the benchmark's own clock. Each is admitted.
func BenchmarkDecide(b *testing.B) {
	hashes := benchHashes(benchKeys)
	run := func(name string, rule *limiter.Rule) {
		b.Run(name, func(b *testing.B) {
			t := New(Config{})
			start := time.Now()
			var c arith.Charge
			var d limiter.Decision
			for _, h := range hashes {
				c.Clear()
				c.Add(arith.Key{Hash: h, Rule: rule, Cost: 1})
				t.Decide(1e15, &c, &d)
			}
			b.ResetTimer()
			var seed atomic.Uint64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r := rand.New(rand.NewPCG(seed.Add(1), 7))
				var c arith.Charge
				var d limiter.Decision
				for pb.Next() {
					c.Clear()
					c.Add(arith.Key{Hash: hashes[r.Uint32N(benchKeys)], Rule: rule, Cost: 1})
					if t.Decide(limiter.Tick(time.Since(start)/1000)+1e15, &c, &d); !d.Allowed {
						b.Error("denied")
						return
					}
				}
			})
		})
	}
	for i, name := range limiter.AlgorithmNames() {
		run(name, benchLimits(b, limiter.Algorithm(i), time.Hour))
	}
	run("three_windows", benchLimits(b, limiter.SlidingCounter, time.Second, time.Minute, time.Hour))
}

// BenchmarkTurn decides random keys of 100,000, each in another sub-window, or
// window, than the last time.
func BenchmarkTurn(b *testing.B) {
	hashes := benchHashes(benchKeys)
	for _, a := range []limiter.Algorithm{limiter.SlidingCounter, limiter.SlidingWindow} {
		b.Run(a.String(), func(b *testing.B) {
			t, rule := New(Config{}), benchLimits(b, a, 100*time.Second)
			now := limiter.Tick(1e15)
			var c arith.Charge
			var d limiter.Decision
			next := func(i int) {
				if i%benchKeys == 0 {
					now += 20 * limiter.Second
				}
				c.Clear()
				c.Add(arith.Key{Hash: hashes[i*7919%benchKeys], Rule: rule, Cost: 1})
				t.Decide(now, &c, &d)
			}
			for i := range 3 * benchKeys {
				next(i)
			}
			i := 0
			for b.Loop() {
				next(i)
				i++
			}
			b.ReportMetric(float64(t.Stats().Bytes)/benchKeys, "B/key")
		})
	}
}

func BenchmarkSizes(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000, 10_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			hashes := benchHashes(n)
			rule := benchLimits(b, limiter.SlidingCounter, time.Hour)
			t := New(Config{MaxKeys: n})
			var c arith.Charge
			var d limiter.Decision
			for _, h := range hashes {
				c.Clear()
				c.Add(arith.Key{Hash: h, Rule: rule, Cost: 1})
				t.Decide(1e15, &c, &d)
			}
			s := t.Stats()
			b.ReportMetric(float64(s.Bytes)/float64(s.Keys), "B/key")
			r := rand.New(rand.NewPCG(1, 7))
			for b.Loop() {
				c.Clear()
				c.Add(arith.Key{Hash: hashes[r.IntN(n)], Rule: rule, Cost: 1})
				t.Decide(1e15, &c, &d)
			}
		})
	}
}

// BenchmarkArithmetic decides one key over and over on one core: what a check
// costs where memory does not matter.
func BenchmarkArithmetic(b *testing.B) {
	run := func(name string, rule *limiter.Rule) {
		b.Run(name, func(b *testing.B) {
			t := New(Config{})
			var c arith.Charge
			var d limiter.Decision
			h := benchHashes(1)[0]
			now := limiter.Tick(1e15)
			for b.Loop() {
				now += 10_000
				c.Clear()
				c.Add(arith.Key{Hash: h, Rule: rule, Cost: 1})
				t.Decide(now, &c, &d)
			}
		})
	}
	for i, name := range limiter.AlgorithmNames() {
		run(name, benchLimits(b, limiter.Algorithm(i), time.Second))
	}
	run("three_windows", benchLimits(b, limiter.SlidingCounter, time.Second, time.Minute, time.Hour))
}

// BenchmarkReplaceKey measures the update of a copy: one entry replaces the only counter
// of a key.
func BenchmarkReplaceKey(b *testing.B) {
	rule := window(b, 1_000_000, time.Hour)
	source, table := New(Config{}), New(Config{})
	for i := range uint64(4096) {
		h := hash(i)
		h.Lo = 0
		decide(b, source, hourStart, charge(1, arith.Key{Hash: h, Rule: rule}))
	}
	all := exported(source, 0, hourStart)
	if err := table.Import(0, hourStart, all, Replace); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e := all[i%len(all) : i%len(all)+1]
		if err := table.ReplaceKey(0, e[0].Hi, hourStart, e); err != nil {
			b.Fatal(err)
		}
	}
}
