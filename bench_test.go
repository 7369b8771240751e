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

// benchParts are 1,000 paths and 100 users: together 100,000 keys of 30 bytes.
// A benchmark puts requests together from them, as a front door does that has
// just read one from the wire.
func benchParts() (paths, users []string) {
	for p := range 1000 {
		paths = append(paths, fmt.Sprintf("/api/resource/%05d", p))
	}
	for u := range 100 {
		users = append(users, fmt.Sprintf("customer%03d", u))
	}
	return paths, users
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
			paths, users := benchParts()
			var d weir.Decision
			for _, p := range paths {
				for _, u := range users {
					node.CheckInto(context.Background(), &weir.Request{Path: p, User: u}, &d)
				}
			}
			if keys := node.Stats().Keys; keys%100_000 != 0 || keys == 0 || len(paths[0]+users[0]) != 30 {
				b.Fatalf("premise: %d keys", keys)
			}
			var seed atomic.Uint64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				r := rand.New(rand.NewPCG(seed.Add(1), 7))
				ctx := context.Background()
				var d weir.Decision
				var q weir.Request
				for pb.Next() {
					n := r.Uint32N(100_000)
					q.Path, q.User = paths[n/100], users[n%100]
					if err := node.CheckInto(ctx, &q, &d); err != nil || !d.Allowed || d.Len() == 0 {
						b.Errorf("%v, %+v", err, d)
						return
					}
				}
			})
		})
	}
	for i, name := range limiter.AlgorithmNames() {
		_ = i
		run(name, fmt.Sprintf("{limit: 1000000, window: 400d, algorithm: %s}", name))
	}
	run("three_windows", "1000000/hour, 2000000/day, 10000000/year")
}

// BenchmarkCheckBatch checks uniformly random keys in batches of 1000, one after the other,
// by the node's own clock. A step is one check. Each check is admitted.
func BenchmarkCheckBatch(b *testing.B) {
	node, err := weir.Open(context.Background(), weir.Config{Rules: benchRules("{limit: 1000000, window: 400d}")})
	if err != nil {
		b.Fatal(err)
	}
	paths, users := benchParts()
	r := rand.New(rand.NewPCG(1, 7))
	const size = 1000
	requests, decisions := make([]weir.Request, size), make([]weir.Decision, size)
	batch := func() {
		for i := range requests {
			n := r.Uint32N(100_000)
			requests[i].Path, requests[i].User = paths[n/100], users[n%100]
		}
		if err := node.CheckBatchInto(context.Background(), requests, decisions); err != nil || !decisions[size-1].Allowed {
			b.Fatalf("%v, %+v", err, decisions[size-1])
		}
	}
	for range 1000 {
		batch()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += size {
		batch()
	}
}

// BenchmarkQuotas checks requests that two counters count: those of a rule with two keys,
// and those of three rules with a key each that draw on one quota. It shows what a quota
// costs beside a second key. The customers' counters are the same in both.
func BenchmarkQuotas(b *testing.B) {
	const limits = "{limit: 4000000000, window: 400d, algorithm: fixed_window}"
	file := func(rest string) []byte {
		text := "version: 1\n"
		if rest == "quotas" {
			text += "quotas: [{name: units, key: [group], limits: [" + limits + "]}]\n"
		}
		text += "rules:\n"
		for _, name := range []string{"search", "export", "towns"} {
			text += fmt.Sprintf("  - {name: %s, match: {path: \"^/%s\"}, limits: [%s], ", name, name, limits)
			if rest == "quotas" {
				text += "key: [user], quotas: [{name: units, cost: 5}]}\n"
			} else {
				text += "keys: [[user], [group]]}\n"
			}
		}
		return []byte(text)
	}
	for _, name := range []string{"two_keys", "quotas"} {
		b.Run(name, func(b *testing.B) {
			node, err := weir.Open(context.Background(), weir.Config{Rules: file(name)})
			if err != nil {
				b.Fatal(err)
			}
			defer node.Close()
			paths := []string{"/search", "/export", "/towns"}
			_, users := benchParts()
			var d weir.Decision
			ctx := context.Background()
			check := func(i int) {
				q := weir.Request{Path: paths[i%3], User: users[i%100], Group: users[i%7]}
				if err := node.CheckInto(ctx, &q, &d); err != nil || !d.Allowed || d.Len() != 2 {
					b.Fatalf("%v, %+v", err, d)
				}
			}
			for i := range 2100 {
				check(i)
			}
			want := 300 + 7
			if name == "two_keys" {
				want = 300 + 21
			}
			if keys := node.Stats().Keys; keys != want {
				b.Fatalf("premise: %d keys, want %d", keys, want)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				check(i)
				i++
			}
		})
	}
}
