package redisstore_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/redisstore"
)

// microseconds returns how long Redis took for a command, on average.
func (s *server) microseconds(command string) float64 {
	s.tb.Helper()
	m := regexp.MustCompile(`cmdstat_` + regexp.QuoteMeta(command) +
		`:.*usec_per_call=([0-9.]+)`).FindStringSubmatch(fmt.Sprint(s.do("INFO", "commandstats")))
	if m == nil {
		return 0
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		s.tb.Fatal(err)
	}
	return n
}

// BenchmarkChecks is 64 callers that check 10,000 keys in a real Redis on this
// machine. Nearly all checks are allowed, and so written.
func BenchmarkChecks(b *testing.B) {
	for _, row := range []struct{ name, limits string }{
		{"fixed_window", "[{limit: 1000000, window: 1h, algorithm: fixed_window}]"},
		{"ids", "[{limit: 1000000, window: 1h, algorithm: fixed_window}]"},
		{"sliding_counter", "[{limit: 1000000, window: 1h}]"},
		{"token_bucket", "[{limit: 1000000, window: 1h, algorithm: token_bucket}]"},
		{"sliding_log", "[{limit: 50, window: 1h, algorithm: sliding_log}]"},
		{"sliding_window", "[{limit: 1000000, window: 1h, algorithm: sliding_window}]"},
		{"three_windows", "[{limit: 1000000, window: 1m}, {limit: 1000000, window: 1h}, {limit: 1000000, window: 24h}]"},
	} {
		b.Run(row.name, func(b *testing.B) {
			srv := startServer(b)
			node := newNode(b, openStore(b, redisstore.Config{Addrs: []string{srv.addr()}, Timeout: time.Minute}),
				"version: 1\nrules: [{name: r, key: [user], limits: "+row.limits+"}]\n")
			users := make([]string, 10_000)
			for i := range users {
				users[i] = fmt.Sprint("user-", i)
			}
			var next, wrong atomic.Int64
			b.SetParallelism(32) // of each of two processors
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				var d weir.Decision
				r := weir.Request{Path: "/"}
				for pb.Next() {
					n := next.Add(1)
					r.User = users[n%int64(len(users))]
					if row.name == "ids" {
						r.ID = strconv.FormatInt(n, 10)
					}
					if err := node.CheckInto(context.Background(), &r, &d); err != nil || d.Source != limiter.SourceRedis {
						wrong.Add(1)
					}
				}
			})
			b.StopTimer()
			if n := wrong.Load(); n > 0 {
				b.Errorf("%d checks were not decided by Redis", n)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "checks/s")
			b.ReportMetric(srv.microseconds("evalsha"), "us-in-redis/check")
		})
	}
}
