package weir_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/weirlimit/weir"
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

// BenchmarkCostOfIDs is of checks in a process, of random keys of 100,000: without an id, with a new one each,
// with each id twice, and held and settled. 100,000 ids are remembered at a time.
func BenchmarkCostOfIDs(b *testing.B) {
	for _, name := range []string{"without", "with", "repeated", "held"} {
		b.Run(name, func(b *testing.B) {
			start, ticks := time.Unix(1767225600, 0), 0
			node, err := weir.Open(context.Background(), weir.Config{
				Rules: benchRules("{limit: 1000000, window: 400d}"), Now: func() time.Time { return start.Add(time.Duration(ticks) * time.Microsecond) },
			})
			if err != nil {
				b.Fatal(err)
			}
			paths, users := benchParts()
			r, ctx := rand.New(rand.NewPCG(1, 7)), context.Background()
			var d weir.Decision
			var q weir.Request
			id := []byte("request-") // a node keeps no part of a request
			if name != "without" {
				q.ID, q.IDTTL = "first", 100*time.Millisecond
			}
			check := func(n uint64) {
				ticks++
				q.Path, q.User = paths[n/100], users[n%100]
				if name != "without" {
					if name != "repeated" || ticks%2 == 0 {
						id = strconv.AppendInt(id[:8], int64(100_000_000+ticks), 10)
						q.ID = unsafe.String(&id[0], len(id))
					}
				}
				if name == "held" {
					q.Hold = 100 * time.Millisecond
				}
				if err := node.CheckInto(ctx, &q, &d); err != nil || !d.Allowed {
					b.Fatalf("%v, %+v", err, d)
				}
				if name == "held" {
					if _, err := node.Settle(ctx, q, 1, false); err != nil {
						b.Fatal(err)
					}
				}
			}
			for n := range uint64(100_000) {
				check(n)
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			b.ReportAllocs()
			b.ResetTimer()
			n, began := uint64(0), threadTime(b)
			for range b.N {
				if name != "repeated" || ticks%2 == 1 {
					n = r.Uint64N(100_000)
				}
				check(n)
			}
			b.ReportMetric(float64(threadTime(b)-began)/float64(b.N), "cpu-ns/op")
			s := node.Stats()
			b.ReportMetric(float64(s.Bytes)/100_000, "B/key")
			b.ReportMetric(float64(s.IDs), "ids")
		})
	}
}
