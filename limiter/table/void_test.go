package table

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// TestAResetVoidsTheReceiptsOfItsKey: the receipts of a reset key are void, and those of
// other keys of its partition are not, until more than maxResets keys were reset.
func TestAResetVoidsTheReceiptsOfItsKey(t *testing.T) {
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, limiter.Spec{Limit: 5, Window: time.Hour})}}
	key := func(i uint64) limiter.Key {
		h := hash(i)
		h.Lo = 0 // one partition
		return limiter.Key{Hash: h, Rule: rule}
	}
	table, now := New(Config{}), limiter.Tick(1e15)
	spend := func(i uint64) limiter.Receipt {
		var d limiter.Decision
		if err := table.Decide(now, charge(2, key(i)), &d); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		return d.Receipt
	}
	left := func(i uint64) uint32 {
		var d limiter.Decision
		if err := table.Decide(now, charge(0, key(i)), &d); err != nil {
			t.Fatal(err)
		}
		return d.Limit(0).Remaining
	}
	mine, other, old := spend(1), spend(2), spend(3)
	now++
	table.Reset(now, charge(1, key(1)))
	spend(1)
	for _, c := range []struct {
		key  uint64
		of   limiter.Receipt
		left uint32
	}{{1, mine, 3}, {2, other, 5}} {
		if table.Refund(now, charge(2, key(c.key)), c.of); left(c.key) != c.left {
			t.Errorf("key %d has %d left after the refund, want %d", c.key, left(c.key), c.left)
		}
	}
	for i := range uint64(maxResets) {
		spend(100 + i)
		table.Reset(now, charge(1, key(100+i)))
	}
	if table.Refund(now, charge(2, key(3)), old); left(3) != 3 {
		t.Errorf("%d left: a receipt is good beyond what is remembered", left(3))
	}
	if n := len(table.parts[PartitionOf(&limiter.Key{Hash: key(1).Hash, Rule: rule})].void.keys); n != maxResets {
		t.Errorf("%d resets are remembered, at most %d", n, maxResets)
	}
}
