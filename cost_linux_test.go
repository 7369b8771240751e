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
// with each id twice, and held and settled. 100,000 ids are remembered at a time. The processor time is that
// of the checks, and not of making the texts of their ids.
func BenchmarkCostOfIDs(b *testing.B) {
	for _, name := range []string{"without", "with", "repeated", "held"} {
		b.Run(name, func(b *testing.B) {
			start, ticks := time.Unix(1767225600, 0), 0
			node, err := weir.Open(context.Background(), weir.Config{
				Rules: benchRules("{limit: 1000000, window: 400d}"), Now: func() time.Time {
					return start.Add(time.Duration(ticks) * time.Microsecond)
				},
			})
			if err != nil {
				b.Fatal(err)
			}
			paths, users := benchParts()
			r, ctx := rand.New(rand.NewPCG(1, 7)), context.Background()
			var d weir.Decision
			var q weir.Request
			var ids benchIDs
			if name != "without" {
				q.ID, q.IDTTL = "first", 100*time.Millisecond
			}
			if name == "held" {
				q.Hold = 100 * time.Millisecond
			}
			check := func(n uint64) {
				ticks++
				q.Path, q.User = paths[n/100], users[n%100]
				if name != "without" && (name != "repeated" || ticks%2 == 0) {
					q.ID = ids.of[ticks%len(ids.of)]
				}
				if err := node.CheckInto(ctx, &q, &d); err != nil || !d.Allowed {
					b.Fatalf("%v, %+v", err, d)
				}
				if name == "held" {
					if _, err := node.Settle(ctx, q, 1); err != nil {
						b.Fatal(err)
					}
				}
			}
			for n := range uint64(100_000) {
				if ids.ended(ticks) {
					ids.make(ticks)
				}
				check(n)
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			b.ReportAllocs()
			b.ResetTimer()
			n, spent, began := uint64(0), time.Duration(0), threadTime(b)
			for range b.N {
				if ids.ended(ticks) {
					spent += threadTime(b) - began
					ids.make(ticks)
					began = threadTime(b)
				}
				if name != "repeated" || ticks%2 == 1 {
					n = r.Uint64N(100_000)
				}
				check(n)
			}
			spent += threadTime(b) - began
			b.ReportMetric(float64(spent)/float64(b.N), "cpu-ns/op")
			s := node.Stats()
			b.ReportMetric(float64(s.Bytes)/100_000, "B/key")
			b.ReportMetric(float64(s.IDs), "ids")
		})
	}
}

// benchIDs are the ids of some checks, by their tick. They stay in the processor's cache, and leave no garbage.
type benchIDs struct {
	of   [256]string
	text [256][len("request-100000000")]byte
}

// ended reports whether the check after a tick needs ids that were not made yet.
func (s *benchIDs) ended(ticks int) bool { return ticks%len(s.of) == len(s.of)-1 || ticks == 0 }

// make makes the ids of the checks after a tick.
func (s *benchIDs) make(ticks int) {
	for range s.of {
		ticks++
		i := ticks % len(s.of)
		text := append(s.text[i][:0], "request-"...)
		text = strconv.AppendInt(text, int64(100_000_000+ticks), 10)
		s.of[i] = unsafe.String(&text[0], len(text)) // a node keeps no part of a request
	}
}
