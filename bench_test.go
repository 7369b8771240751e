package weir_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
)

// benchRules are 10 rules with regexps, of which only the last matches the
// paths of the benchmarks.
func benchRules(limits string) []byte {
	var b strings.Builder
	b.WriteString("version: 1\nrules:\n")
	for i := range 9 {
		fmt.Fprintf(&b, "  - {name: r%d, match: {path: \"^/v%d/(items|orders)/[0-9]+\"}, limits: [5/second]}\n", i, i)
	}
	fmt.Fprintf(&b, "  - {name: last, match: {path: \"^/api/.*[0-9]$\"}, limits: [%s]}\n", limits)
	return []byte(b.String())
}

// benchRequests are 100,000 keys of 30 bytes: 1,000 paths of 100 users.
func benchRequests() []weir.Request {
	rs := make([]weir.Request, 0, 100_000)
	for p := range 1000 {
		path := fmt.Sprintf("/api/resource/%05d", p)
		for u := range 100 {
			rs = append(rs, weir.Request{Path: path, User: fmt.Sprintf("customer%03d", u)})
		}
	}
	return rs
}

// BenchmarkCheck checks uniformly random keys, in parallel, by the node's own
// clock. Each check is admitted.
func BenchmarkCheck(b *testing.B) {
	run := func(name, limits string) {
		b.Run(name, func(b *testing.B) {
			node, err := weir.Open(context.Background(), weir.Config{Rules: benchRules(limits)})
			if err != nil {
				b.Fatal(err)
			}
			rs := benchRequests()
			ds := make([]weir.Decision, len(rs))
			if err := node.CheckBatch(context.Background(), rs, ds); err != nil || node.Stats().Keys%len(rs) != 0 || len(rs[0].Path+rs[0].User) != 30 {
				b.Fatalf("premise: %v, %d keys", err, node.Stats().Keys)
			}
			ds = nil
			var seed atomic.Uint64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				r := rand.New(rand.NewPCG(seed.Add(1), 7))
				ctx := context.Background()
				var d weir.Decision
				for pb.Next() {
					if err := node.Check(ctx, &rs[r.Uint32N(uint32(len(rs)))], &d); err != nil || !d.Allowed || d.Len() == 0 {
						b.Errorf("%v, %+v", err, d)
						return
					}
				}
			})
		})
	}
	for i, name := range limiter.AlgorithmNames() {
		_ = i
		run(name, fmt.Sprintf("{limit: 1000000, window: 1h, algorithm: %s}", name))
	}
	run("three_windows", "1000000/minute, 1000000/hour, 10000000/day")
}
