package gubernator

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/recent"
)

// ends remembers when the windows of keys end, as it was told first. What is told is a little late, by the time that an
// answer takes from the member that decides, and would vary from call to call.
type ends struct {
	seed maphash.Seed
	told *recent.Values[uint64, *atomic.Int64] // in milliseconds since 1970, by the hash of a key
}

// Bounds of the ends that are remembered, and how far apart two tellings of one end are at most.
const (
	maxEnds = 8192
	endLife = 10 * time.Minute
	sameEnd = 50 * time.Millisecond
)

func newEnds(now func() time.Time) ends {
	return ends{maphash.MakeSeed(), recent.New[uint64, *atomic.Int64](maxEnds, endLife, now)}
}

// forget forgets the end of an item's window, which is over.
func (e *ends) forget(it *item) {
	if told, ok := e.told.Get(e.key(it)); ok {
		told.Store(0)
	}
}

// key returns the hash of an item's key.
func (e *ends) key(it *item) uint64 {
	var h maphash.Hash
	h.SetSeed(e.seed)
	for _, part := range []string{it.request.Tenant, it.request.Path, it.request.User} {
		maphash.WriteComparable(&h, part)
	}
	return h.Sum64()
}

// of returns the end to tell for an item whose window would be told to end at an instant.
func (e *ends) of(it *item, at int64) int64 {
	k := e.key(it)
	told, ok := e.told.Get(k)
	if !ok {
		told = new(atomic.Int64)
		e.told.Keep(k, told)
	}
	if was := told.Load(); near(time.UnixMilli(was), time.UnixMilli(at), min(sameEnd, it.limit.Window()/2)) {
		return was
	}
	told.Store(at)
	return at
}
