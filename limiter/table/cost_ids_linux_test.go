package table

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// BenchmarkCostOfIDs is of checks of random keys of 100,000, without an id, with a new one each, and with one
// that is held and settled. 100,000 ids are remembered at a time.
func BenchmarkCostOfIDs(b *testing.B) {
	const life = 100 * time.Millisecond
	for _, name := range []string{"without", "with", "repeated", "held"} {
		b.Run(name, func(b *testing.B) {
			tab, hashes, rule := New(Config{}), benchHashes(benchKeys), benchLimits(b, limiter.SlidingCounter, time.Hour)
			var c arith.Charge
			var d limiter.Decision
			id := arith.Idempotency{Life: life}
			if name == "held" {
				id.Hold = life
			}
			r, now := rand.New(rand.NewPCG(1, 7)), limiter.Tick(1e15)
			check := func(h arith.Hash) {
				now++
				c.Clear()
				c.Add(arith.Key{Hash: h, Rule: rule, Cost: 1})
				if name != "without" {
					if name != "repeated" || now%2 == 0 {
						id.ID = r.Uint64() | 1
					}
					c.ID = &id
				}
				if tab.Decide(now, &c, &d) != nil || !d.Allowed {
					b.Fatal("denied")
				}
				if name == "held" {
					tab.Amend(now, &c, limiter.Amend{})
				}
			}
			for _, h := range hashes {
				check(h)
			}
			n := r.Uint32N(benchKeys)
			costs(b, tab, benchKeys, func(i int) {
				if name != "repeated" || i%2 == 0 {
					n = r.Uint32N(benchKeys)
				}
				check(hashes[n])
			})
			b.ReportMetric(float64(tab.Stats().IDs), "ids")
		})
	}
}
