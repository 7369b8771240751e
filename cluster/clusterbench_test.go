//go:build unix

package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/diskstore"
	"github.com/weirlimit/weir/limiter"
)

// cpu returns the CPU time that this process has used.
func cpu(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkThreeNodes asks one of three members for batches of 1,000 checks of 100,000
// keys. cpu-ns/op is the CPU time of all three, and of the caller, for one check.
func BenchmarkThreeNodes(b *testing.B) { askNodes(b, three(b, manyKeys)) }

// BenchmarkOneNode asks a member that is alone for the same.
func BenchmarkOneNode(b *testing.B) { askOne(b, memberConfig("alone", manyKeys)) }

// BenchmarkOneNodeOnDisk asks one that saves what has changed every 5 s.
func BenchmarkOneNodeOnDisk(b *testing.B) {
	c := memberConfig("alone", manyKeys)
	part(c).Store = diskstore.Dir{Path: b.TempDir()}
	askOne(b, c)
}

func askOne(b *testing.B, c weir.Config) {
	part(c).Deadline = 30 * time.Second
	n := open(b, c)
	until(b, "it is ready", func() bool { return n.Ready() == nil })
	askNodes(b, []*weir.Node{n})
}

const manyKeys = `
rules:
  - {name: last, match: {path: "^/api/.*[0-9]$"}, key: [path, user], limits: [{limit: 1000000, window: 400d, algorithm: sliding_counter}]}
`

func askNodes(b *testing.B, nodes []*weir.Node) {
	var paths, users []string
	for p := range 1000 {
		paths = append(paths, fmt.Sprintf("/api/resource/%05d", p))
	}
	for u := range 100 {
		users = append(users, fmt.Sprintf("customer%03d", u))
	}
	const batch = 1000
	ctx := context.Background()
	rs, ds := make([]weir.Request, batch), make([]weir.Decision, batch)
	fill := func(next func() uint32) {
		for i := range rs {
			n := next()
			rs[i] = weir.Request{Path: paths[n/100], User: users[n%100], Rule: "last"}
		}
		if err := nodes[0].CheckBatchInto(ctx, rs, ds); err != nil {
			b.Fatal(err)
		}
		for i := range ds {
			if !ds[i].Allowed || ds[i].Source != limiter.SourceOwner {
				b.Fatalf("%+v", ds[i])
			}
		}
	}
	var n uint32
	for range 100_000 / batch {
		fill(func() uint32 { n++; return n - 1 })
	}
	r := rand.New(rand.NewPCG(1, 7))
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu(b)
	for range (b.N + batch - 1) / batch {
		fill(func() uint32 { return r.Uint32N(100_000) })
	}
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
}
