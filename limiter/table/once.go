package table

import (
	"sync"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// maxOnce bounds the numbers of receipts in each of the two sets that a table remembers.
// They take up to 9 MB each. Beyond it receipts with numbers are void: a lost refund denies
// a little too much, one that is made twice admits too much.
const maxOnce = 1 << 18

// once remembers the numbers of receipts that were used, each for at least as long as the
// receipt is good. Its clock never goes back: a receipt that was too old at any instant
// stays void, since its number may be forgotten. It is safe for concurrent use.
type once struct {
	mu     sync.Mutex
	clock  limiter.Tick        // the latest instant seen
	since  limiter.Tick        // when latest was begun
	latest map[uint64]struct{} // used since then
	before map[uint64]struct{} // used in the time before that
}

// take reports whether a receipt may be used at now, and remembers its number. One
// without a number may always.
func (o *once) take(r limiter.Receipt, now limiter.Tick) bool {
	f := arith.Fields(&r)
	if f.Once == 0 {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clock = max(o.clock, now)
	if now = o.clock; now-f.Time >= limiter.ReceiptLife {
		return false
	}
	if now-o.since >= limiter.ReceiptLife || o.latest == nil {
		o.before = o.latest
		if now-o.since >= 2*limiter.ReceiptLife {
			o.before = nil
		}
		o.since, o.latest = now, make(map[uint64]struct{})
	}
	_, used := o.latest[f.Once]
	_, usedBefore := o.before[f.Once]
	if used || usedBefore || len(o.latest) >= maxOnce {
		return false
	}
	o.latest[f.Once] = struct{}{}
	return true
}
