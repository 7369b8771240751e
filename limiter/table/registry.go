package table

import (
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/limiter"
)

// registry numbers the limits that slots refer to. Limits that decide alike
// share a number. A number is read without a lock.
type registry struct {
	mu       sync.Mutex
	byParams map[any]uint16
	free     []uint16
	limits   atomic.Pointer[[]atomic.Pointer[limiter.Limit]]
	// recent spares most look-ups the lock.
	recent [256]atomic.Pointer[numbered]
}

type numbered struct {
	limit *limiter.Limit
	id    uint16
}

// maxLimits bounds the limits that are in use at one time, over all rules and
// requests.
const maxLimits = 1<<16 - 1

func newRegistry() *registry {
	r := &registry{byParams: make(map[any]uint16)}
	first := make([]atomic.Pointer[limiter.Limit], 64)
	r.limits.Store(&first)
	return r
}

// limit returns the limit of a number that is in use.
func (r *registry) limit(id uint16) *limiter.Limit { return (*r.limits.Load())[id].Load() }

// prefer makes l the representative of its equals, so that a slot is known by a
// pointer compare.
func (r *registry) prefer(id uint16, l *limiter.Limit) { (*r.limits.Load())[id].Store(l) }

// id returns the number of l, a new one if need be, and 0 when none is left.
func (r *registry) id(l *limiter.Limit) uint16 {
	at := &r.recent[uint8(l.NameID()^uint64(l.Window())^uint64(l.Limit()))]
	if n := at.Load(); n != nil && n.limit == l {
		return n.id
	}
	id := r.lookup(l)
	if id != 0 {
		at.Store(&numbered{l, id})
	}
	return id
}

func (r *registry) lookup(l *limiter.Limit) uint16 {
	params := l.Params()
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, ok := r.byParams[params]; ok {
		return id
	}
	var id uint16
	switch n := len(r.free); {
	case n > 0:
		id, r.free = r.free[n-1], r.free[:n-1]
	case len(r.byParams) == maxLimits:
		return 0
	default:
		id = uint16(len(r.byParams) + 1) // none is free: all up to here are taken
	}
	r.grow(int(id))
	r.byParams[params] = id
	r.prefer(id, l)
	return id
}

// grow makes room for number id. A prefer that runs at the same time may be
// lost, which costs the next check a comparison.
func (r *registry) grow(id int) {
	have := *r.limits.Load()
	if id < len(have) {
		return
	}
	more := make([]atomic.Pointer[limiter.Limit], 2*len(have))
	for i := range have {
		more[i].Store(have[i].Load())
	}
	r.limits.Store(&more)
}

// retain forgets all limits but those whose number is in used. No slot may
// refer to any other, and no limit may be numbered meanwhile.
func (r *registry) retain(used map[uint16]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.recent {
		r.recent[i].Store(nil)
	}
	for params, id := range r.byParams {
		if !used[id] {
			delete(r.byParams, params)
			r.free = append(r.free, id)
		}
	}
}
