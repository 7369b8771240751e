package quota_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/envoy/quota"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// BenchmarkReports has 50 streams of 10,000 buckets each, with a report of all of them each second. Each bucket's
// counter has 50 slices.
func BenchmarkReports(b *testing.B) {
	const streams, buckets, atOnce = 50, 10_000, 256
	ids := make([]string, buckets)
	for i := range ids {
		ids[i] = string(quota.AppendAction(nil, &quota.Action{ID: fmt.Sprintf("\n\x10\n\x05class\x12\x07%07d", i)}))
	}
	now := limiter.Hour
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	all := make([]*quota.Stream, streams)
	for i := range all {
		all[i] = quota.NewStream(nil)
	}
	var message []byte
	report := func(s *quota.Stream) {
		for from := 0; from < buckets; from += atOnce {
			var out quota.Out
			us := make([]quota.Usage, 0, atOnce)
			for _, id := range ids[from:min(from+atOnce, buckets)] {
				us = append(us, quota.Usage{ID: id, Allowed: 3, Denied: 1})
			}
			s.Report(now, us, &out)
			for i := range out.Asks {
				s.Answered(now, &out.Asks[i], quota.Grant{Kind: quota.Tokens, Size: 20, Rate: 4}, &out)
			}
			message = message[:0]
			for i := range out.Actions {
				message = quota.AppendAction(message, &out.Actions[i])
			}
		}
		s.Due(now, new(quota.Out))
	}
	for _, s := range all {
		report(s)
	}
	used := float64(heap()-before) / streams / buckets
	n := 0
	for b.Loop() {
		if n%streams == 0 {
			now += limiter.Second
		}
		report(all[n%streams])
		n++
	}
	b.ReportMetric(used, "B/bucket")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n)/buckets, "ns/bucket")
	runtime.KeepAlive(all)
}

// BenchmarkOwner is what the owner of a counter does to renew one of its slices.
func BenchmarkOwner(b *testing.B) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingWindow,
		limiter.SlidingLog} {
		for _, slices := range []int{1, 10, 50} {
			b.Run(fmt.Sprint(a, "/", slices), func(b *testing.B) {
				o := newOwner(b, false, slices)
				if a != limiter.TokenBucket {
					l := limitertest.Limit(b, limiter.Spec{Algorithm: a, Limit: 20_000, Window: 10 * time.Second})
					o.rule = &limiter.Rule{Name: "shop", Limits: []*limiter.Limit{l}}
				}
				now, n, denied := limiter.Hour, 0, 0
				renew := func() {
					now += limiter.Second / limiter.Tick(slices)
					a := quota.Ask{Slice: uint32(n % slices), Demand: uint64(30 + n*7%40), Hold: 2*limiter.Second + quota.Slack}
					if n >= slices {
						a.Size = 20
					}
					if o.ask(b, now, "s", &a).Kind != quota.Tokens {
						denied++
					}
					n++
				}
				for range 5 * slices { // all rates are assigned
					renew()
				}
				denied = 0
				for b.Loop() {
					renew()
				}
				b.ReportMetric(float64(denied)/float64(b.N), "denied/op")
			})
		}
	}
}
