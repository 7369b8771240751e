//go:build linux

package load

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/internal/loadgen"
)

const (
	// pairs is how many pairs of keys are asked about, of each rule with several keys
	// that never recovers: those of most have two owners.
	pairs = 16
	// pairsAtOnce is how many of them are asked about at a time.
	pairsAtOnce = 4
	// pairsRest is how long nobody asks about them then, so that no reservation of
	// theirs is open any more, also where the machine has stood still.
	pairsRest = 4 * time.Second
)

// Pairs has keys asked about together with others that are used up, so that all these
// checks are denied and none of them is to be charged; and then, when no reservation is
// open any more, together with keys that are new, so that all are to be admitted.
func (l *Load) Pairs(ctx context.Context, nodes []*fleet.Node) {
	for i := range l.plan.rules {
		r := &l.plan.rules[i]
		if !r.Once || !r.Several {
			continue
		}
		name := func(what string, k int) string { return fmt.Sprintf("%s-%s-%s-%d", l.plan.prefix, what, r.Name, k) }
		times := (r.Limit + hotBatch - 1) / hotBatch
		l.pairs(ctx, nodes, r.Name, 2*times, func(k, nth int) (ip, user string) {
			if nth < times {
				return name("spent", k), name("first", k)
			}
			return name("spent", k), name("idle", k)
		})
		if fleet.Wait(ctx, pairsRest) != nil {
			return
		}
		l.pairs(ctx, nodes, r.Name, times, func(k, _ int) (ip, user string) { return name("new", k), name("idle", k) })
	}
}

// pairs asks nodes about each pair, in batches.
func (l *Load) pairs(ctx context.Context, nodes []*fleet.Node, rule string, times int,
	pair func(k, nth int) (ip, user string)) {
	_ = loadgen.Each(pairs, pairsAtOnce, func(k int) error {
		for nth := range times {
			if ctx.Err() == nil {
				q := question{}
				q.IP, q.User = pair(k, nth)
				q.IP = address(q.IP)
				l.many(ctx, nodes[(k+nth)%len(nodes)], rule, []string{"ip " + q.IP, "user " + q.User}, q)
			}
		}
		return nil // each check ends by itself
	})
}
