//go:build unix

package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/diskstore"
	"github.com/weirlimit/weir/internal/disk/disktest"
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

// BenchmarkAtARate asks a member that is alone for 200,000 checks a second, without a disk, and with one that gets what
// has changed every 5 s. -benchtime 3000000x is 15 s.
func BenchmarkAtARate(b *testing.B) {
	for _, keys := range []uint32{100_000, 1_000_000} {
		for _, disk := range []bool{false, true} {
			b.Run(fmt.Sprintf("keys=%d/disk=%t", keys, disk), func(b *testing.B) {
				c := memberConfig("alone", manyKeys)
				if disk {
					part(c).Store = diskstore.Dir{Path: b.TempDir()}
				}
				part(c).Deadline = 30 * time.Second
				n := open(b, c)
				until(b, "it is ready", func() bool { return n.Ready() == nil })
				ask(b, []*weir.Node{n}, keys, 200_000)
			})
		}
	}
}

// BenchmarkLongestWait asks a member 20,000 times a second, one check after the other, beside a disk whose fdatasync
// takes 10 s, and one without a disk. -benchtime 500000x is 25 s.
func BenchmarkLongestWait(b *testing.B) {
	for _, slow := range []bool{false, true} {
		b.Run(fmt.Sprintf("slow=%t", slow), func(b *testing.B) {
			c := memberConfig("alone", twoClasses)
			syncs := new(atomic.Int64)
			if slow {
				m := new(disktest.Memory)
				m.SetFail(func(operation string) error {
					if operation == "sync" {
						syncs.Add(1)
						time.Sleep(10 * time.Second)
					}
					return nil
				})
				part(c).Store, part(c).PersistInterval = inMemory{m}, time.Second
			}
			part(c).Deadline = 30 * time.Second
			n := open(b, c)
			until(b, "it is ready", func() bool { return n.Ready() == nil })
			longest, begun := time.Duration(0), time.Now()
			b.ResetTimer()
			for i := range b.N {
				time.Sleep(time.Until(begun.Add(time.Duration(i) * 50 * time.Microsecond)))
				asked := time.Now()
				if _, err := n.Check(b.Context(), weir.Request{Path: "/open", User: fmt.Sprint(i % 10_000)}); err != nil {
					b.Fatal(err)
				}
				longest = max(longest, time.Since(asked))
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest")
			b.ReportMetric(float64(syncs.Load()), "syncs")
		})
	}
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

func askNodes(b *testing.B, nodes []*weir.Node) { ask(b, nodes, 100_000, 0) }

// ask asks the first node for checks of so many keys, so many a second, or as fast as it answers.
func ask(b *testing.B, nodes []*weir.Node, keys uint32, rate int) {
	var paths, users []string
	for p := range keys / 100 {
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
	for range keys / batch {
		fill(func() uint32 { n++; return n - 1 })
	}
	r := rand.New(rand.NewPCG(1, 7))
	b.ReportAllocs()
	b.ResetTimer()
	before, begun := cpu(b), time.Now()
	for i := range (b.N + batch - 1) / batch {
		if rate > 0 {
			time.Sleep(time.Until(begun.Add(time.Duration(i) * batch * time.Second / time.Duration(rate))))
		}
		fill(func() uint32 { return r.Uint32N(keys) })
	}
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
}
