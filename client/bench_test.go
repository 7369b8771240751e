package client_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
)

// BenchmarkCheck is 128 goroutines that ask one node in the same process, client and
// server together. An operation is a check; of 20,000 users each has its counter.
func BenchmarkCheck(b *testing.B) {
	const callers, users = 128, 20_000
	node := newNode(b, hour)
	c := open(b, client.Config{Addrs: []string{serve(b, node, "", nil).addr}, Timeout: long})
	names := make([]string, users)
	for i := range names {
		names[i] = fmt.Sprint("user-", i)
	}
	var next atomic.Int64
	var asking sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range callers {
		asking.Go(func() {
			r, d := limiter.Request{Path: "/towns"}, limiter.Decision{}
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				r.User = names[i%users]
				if err := c.CheckInto(b.Context(), &r, &d); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	asking.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/float64(c.Stats().Messages), "checks/message")
	if keys := node.Stats().Keys; keys != min(b.N, users) {
		b.Errorf("there are %d counters", keys)
	}
}
