package table

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A charge that an owner takes back gives back all its units, also where it began a window of the first hit in which
// others were charged since: a check that another owner denied costs nothing. The window stays begun.
func TestUndoOfAFirstHit(t *testing.T) {
	l, err := limiter.NewLimit(limiter.Spec{Name: "hour", Algorithm: limiter.FixedWindow, Align: limiter.AlignFirstHit,
		Limit: 1000, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	tbl, rule := New(Config{}), &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}}
	now := limiter.Day
	charge := func(cost uint64) (*arith.Charge, *limiter.Decision) {
		c, d := &arith.Charge{}, new(limiter.Decision)
		c.Add(arith.Key{Hash: arith.Hash{Hi: 1, Lo: 2}, Rule: rule, Cost: cost})
		if err := tbl.Decide(now, c, d); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		now += limiter.Millisecond
		return c, d
	}
	first, of := charge(100)
	second, other := charge(100)
	charge(1)
	for c, d := range map[*arith.Charge]*limiter.Decision{first: of, second: other} {
		tbl.UndoIn(EveryPartition, now, c, d.Receipt)
	}
	_, d := charge(1)
	if got := d.Limit(0); got.Remaining != 998 || limiter.Span(got.ResetAfter) != limiter.Hour-3*limiter.Millisecond {
		t.Errorf("%d are left for %v", got.Remaining, got.ResetAfter)
	}
}
