package table

import (
	"sync/atomic"

	"github.com/weirlimit/weir/limiter"
)

// room is how much a table may hold, and what of it is taken: counters, their memory and numbers of limits, by whom,
// and who has met a bound. It knows no key: what is to be taken is asked of it, and counted in it, before anything
// lies anywhere.
type room struct {
	registry *registry // the table's
	overflow Overflow
	maxKeys  int64
	maxBytes int64
	slab     slab
	arena    arena
	usages   usages

	copied      atomic.Int64 // used slots in partitions that are copies, and what was sent to others
	copiedBytes atomic.Int64 // their bytes
	keys        atomic.Int64 // used slots, including recovered ones until they are swept
	expiry      atomic.Int64 // no counter recovers before this instant: see reclaim
	full        fullness
}

// left returns how many bytes of new memory checks may take.
func (r *room) left() int64 { return r.maxBytes - r.memory() + r.copiedBytes.Load() }

// memory returns the memory of counters and their words.
func (r *room) memory() int64 { return r.slab.bytes() + r.arena.held.Load() }

// wait returns how soon there may be room at the earliest.
func (r *room) wait(now limiter.Tick) limiter.Tick {
	wait := limiter.Tick(r.expiry.Load()) - now
	return min(max(wait, 1), limiter.Tick(limiter.MaxWindow/limiter.TickDuration))
}

// lowerExpiry records that a counter recovers at an instant.
func (r *room) lowerExpiry(at limiter.Tick) {
	for {
		have := r.expiry.Load()
		if int64(at) >= have || r.expiry.CompareAndSwap(have, int64(at)) {
			return
		}
	}
}

// shareFull reports whether a rule's counters, with some more, would exceed its share.
func (r *room) shareFull(rule *limiter.Rule, more int64) bool {
	if rule.MaxShare == 0 {
		return false
	}
	have, _ := r.registry.taken(rule.Name)
	return have+more > shareOf(rule, r.maxKeys)
}

// unreserveIDs takes back what reserveIDs counted.
func (r *room) unreserveIDs(number uint16, n int64) {
	if n > 0 {
		r.registry.release(number, n)
		r.keys.Add(-n)
	}
}

// unreserveOnce takes back what reserveOnce counted.
func (r *room) unreserveOnce(of reserved) {
	r.unreserveIDs(of.id, of.ids)
	r.unreserveIDs(of.hold, of.holds)
}
