package redisstore_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/redisstore"
)

// A cost above 2^32-1 fits no limit that Redis counts: it is denied for good, and counts nothing.
func TestAWideCostIsNeverAdmitted(t *testing.T) {
	s := openStore(t, redisstore.Config{Addrs: []string{startServer(t).addr()}})
	for a, name := range limiter.AlgorithmNames() {
		for _, count := range []limiter.CountRejected{limiter.CountNone, limiter.CountAll} {
			l, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.Algorithm(a), Limit: 10, Window: time.Hour, CountRejected: count})
			if err != nil {
				t.Fatal(err)
			}

			now := limiter.At(limitertest.Start())
			for _, cost := range []uint64{limiter.MaxUnits, limiter.NarrowUnits + 1, 10} {
				var c limiter.Charge
				var d limiter.Decision
				c.Add(limiter.Key{Hash: limiter.Hash{Hi: 1, Lo: uint64(a)<<8 | uint64(count)}, Rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}}, Cost: cost})
				if err := s.Decide(t.Context(), now, []*limiter.Charge{&c}, []*limiter.Decision{&d}, nil); err != nil {
					t.Fatal(err)
				}
				if d.Source != limiter.SourceRedis || d.Never != (cost > 10) || d.Allowed != (cost == 10) || d.RetryAfter != 0 {
					t.Errorf("%s, %v: cost %d: %+v", name, count, cost, d)
				}
			}
		}
	}
}
