package cluster

import (
	"errors"

	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// decided decides a check in the table. It reports false if the table cannot. A check whose id is
// that of a reservation that is over, and that would hold units of a limit on concurrency, is
// denied for good, see [engine.Spent].
func (d *decider) decided(t *turn, k *arith.Charge, answer *limiter.Decision) bool {
	err := engine.Decide(d.table, &d.slices, t.At, k, answer)
	if !errors.Is(err, limiter.ErrSettled) {
		return err == nil
	}
	return denySpent(d.table, t.At, k, answer)
}

// denySpent denies a check whose id is that of a reservation that is over for good. The answer is a repeated one: so it
// is told from that to a new id. It reports false if the table cannot decide it.
func denySpent(tbl *table.Table, now limiter.Tick, k *arith.Charge, answer *limiter.Decision) bool {
	id, peek := k.ID, k.Peek
	k.ID, k.Peek = nil, true
	err := tbl.Decide(now, k, answer)
	k.ID, k.Peek = id, peek
	if err != nil {
		return false
	}
	for i := range answer.Len() {
		if l := answer.Limit(i); l.Limit.Algorithm() == limiter.Concurrency {
			l.Allowed, l.Never, l.RetryAfter = false, true, 0
		}
	}
	arith.Combine(answer, true)
	arith.Conclude(answer)
	answer.Repeated = true
	return true
}
