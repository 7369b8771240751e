package table

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// BenchmarkCopies is what the copy of a check costs, with a new id and without one: the export of its key, and of its
// id, and their import into another table. Some 500,000 ids are remembered at a time.
func BenchmarkCopies(b *testing.B) {
	for _, ids := range []bool{false, true} {
		b.Run(fmt.Sprintf("ids=%t", ids), func(b *testing.B) {
			hashes, rule := benchHashes(benchKeys), benchLimits(b, limiter.SlidingCounter, time.Hour)
			from, to := New(Config{}), New(Config{})
			source := to.Source("one")
			r := rand.New(rand.NewPCG(1, 7))
			now := limiter.Tick(1e15)
			var c arith.Charge
			var d limiter.Decision
			id := arith.Idempotency{Life: time.Second / 2}
			entries := make([]Entry, 0, 4)
			visit := func(e Entry) {
				e.From = source
				entries = append(entries, e)
			}
			send := func(part int, hi uint64) {
				entries = entries[:0]
				from.ExportKey(part, hi, now, visit)
				if err := to.ReplaceKey(part, hi, now, entries); err != nil {
					b.Fatal(err)
				}
			}
			check := func() {
				now++
				c.Clear()
				c.Add(arith.Key{Hash: hashes[r.Uint32N(benchKeys)], Rule: rule, Cost: 1})
				if ids {
					id.ID = r.Uint64()
					c.ID = &id
				}
				if err := from.Decide(now, &c, &d); err != nil || !d.Allowed {
					b.Fatal(err, d.Allowed)
				}
				k := c.Key(0)
				if ids {
					send(PartitionOf(k), IDOf(k, id.ID).Hi)
				}
				send(PartitionOf(k), k.Hash.Hi)
			}
			for range 1_500_000 {
				check()
			}
			b.ReportAllocs()
			for b.Loop() {
				check()
			}
		})
	}
}
