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
	told *recent.Values[uint64, *told] // by the hash of a key
}

// told is the end of a window, in milliseconds since 1970, and the window's length. With another length another window
// begins.
type told struct{ end, length atomic.Int64 }

// Bounds of the ends that are remembered, and how far apart two tellings of one end are at most.
const (
	maxEnds = 8192
	endLife = 10 * time.Minute
	sameEnd = 50 * time.Millisecond
)

func newEnds(now func() time.Time) ends {
	return ends{maphash.MakeSeed(), recent.New[uint64, *told](maxEnds, endLife, now)}
}

// forget forgets the end of an item's window, which is over.
func (e *ends) forget(it *item) {
	if told, ok := e.told.Get(e.key(it)); ok {
		told.end.Store(0)
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
	t, ok := e.told.Get(k)
	if !ok {
		t = new(told)
		e.told.Keep(k, t)
	}
	length := it.limit.Window()
	same := t.length.Swap(int64(length)) == int64(length)
	if was := t.end.Load(); same && near(time.UnixMilli(was), time.UnixMilli(at), min(sameEnd, length/2)) {
		return was
	}
	t.end.Store(at)
	return at
}
