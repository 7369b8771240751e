package table

import (
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// threadTime returns the processor time of the calling thread: that of others does not count.
func threadTime(tb testing.TB) time.Duration {
	tb.Helper()
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// costs reports the processor time of n calls of one, and the bytes of a table for each key.
func costs(b *testing.B, tab *Table, keys int, one func(i int)) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.ReportAllocs()
	b.ResetTimer()
	began := threadTime(b)
	for i := range b.N {
		one(i)
	}
	b.ReportMetric(float64(threadTime(b)-began)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(tab.Stats().Bytes)/float64(keys), "B/key")
}

// BenchmarkCost is of checks without ids: of one key, and of random ones of 100,000. bench/ids.sh copies
// this file to a commit before there were ids.
func BenchmarkCost(b *testing.B) {
	rules := map[string]*limiter.Rule{
		"counter": benchLimits(b, limiter.SlidingCounter, time.Hour),
		"window":  benchLimits(b, limiter.FixedWindow, time.Hour),
		"three":   benchLimits(b, limiter.SlidingCounter, time.Second, time.Minute, time.Hour),
	}
	for _, name := range []string{"counter", "window", "three"} {
		rule := rules[name]
		for what, keys := range map[string]int{"one": 1, "many": benchKeys} {
			b.Run(name+"/"+what, func(b *testing.B) {
				tab, hashes := New(Config{}), benchHashes(keys)
				var c arith.Charge
				var d limiter.Decision
				r, now := rand.New(rand.NewPCG(1, 7)), limiter.Tick(1e15)
				check := func(h arith.Hash) {
					now++
					c.Clear()
					c.Add(arith.Key{Hash: h, Rule: rule, Cost: 1})
					if tab.Decide(now, &c, &d) != nil || !d.Allowed {
						b.Fatal("denied")
					}
				}
				for _, h := range hashes {
					check(h)
				}
				costs(b, tab, keys, func(int) { check(hashes[r.Uint32N(uint32(keys))]) })
			})
		}
	}
}
