package route

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// maxCalls is how many calls may be under way at a node, to all members together.
const maxCalls = 1 << 17

// callTable holds the calls that wait for a reply, by number. It has a bound of
// maxCalls in all, and is safe for concurrent use.
type callTable struct {
	shards [callShards]callShard
	next   atomic.Uint64
	// due is a time before which no call has anything to do in a tick.
	due atomic.Int64
	// exact is when the first call with a deadline of its own ends, or an earlier time.
	exact atomic.Int64
}

const callShards = 16

// A number consists of: in the upper 32 bits the generation of its place, so that it is
// not reused soon; then the number of the request, see [inquiry]; then the index in the
// shard; and in the lowest 4 bits the shard.
const (
	indexBits = 13
	tryShift  = 4 + indexBits
	maxTry    = 1<<(32-tryShift) - 1
	_         = uint(1<<indexBits - maxCalls/callShards) // a compile-time check that all indices fit
)

func indexOf(id uint64) uint32 { return uint32(id) >> 4 & (1<<indexBits - 1) }

// tryOf returns the number of the request from a call's number; withTry adds it.
func tryOf(id uint64) uint16               { return uint16(uint32(id) >> tryShift) }
func withTry(id uint64, try uint16) uint64 { return id | uint64(try)<<tryShift }

// callShard is one shard of the table. Its lock is the last to be taken.
type callShard struct {
	mu    sync.Mutex
	calls places // also read without the lock
	n     uint32 // how many of the places were ever taken
	gens  [][]uint32
	free  []uint32
	used  int
}

// places are the places of a shard, in blocks that are made when they are needed.
type places [callBlocks]atomic.Pointer[[blockCalls]atomic.Pointer[Call]]

const (
	blockCalls = 256
	callBlocks = maxCalls / callShards / blockCalls
)

// at returns a place; nil if there is none yet.
func (p *places) at(i uint32) *atomic.Pointer[Call] {
	if b := p[i/blockCalls].Load(); b != nil {
		return &b[i%blockCalls]
	}
	return nil
}

// add gives a call a number. It reports false at the bound. Operations that begin
// in one turn share a shard while it has room.
func (x *callTable) add(o *Call, t *Turn) bool {
	if t.shard == 0 {
		t.shard = x.next.Add(1)
	}
	at, ends := o.due(), o.exactEnd()
	for range callShards {
		if n := t.shard % callShards; x.shards[n].add(o, n) {
			x.lookAt(at)
			lower(&x.exact, ends)
			return true
		}
		t.shard++
	}
	return false
}

// add gives a call a number in this shard, which is the n-th. It reports false at
// the bound.
func (s *callShard) add(o *Call, n uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var i uint32
	switch k := len(s.free); {
	case k > 0:
		i, s.free = s.free[k-1], s.free[:k-1]
	case s.n == maxCalls/callShards:
		return false
	default:
		i = s.n
		if i%blockCalls == 0 {
			s.calls[i/blockCalls].Store(new([blockCalls]atomic.Pointer[Call]))
			s.gens = append(s.gens, make([]uint32, blockCalls))
		}
		s.n++
	}
	gen := &s.gens[i/blockCalls][i%blockCalls]
	if *gen++; *gen == 0 {
		*gen = 1 // 2^32 generations later: no number is 0
	}
	o.id = uint64(*gen)<<32 | uint64(i)<<4 | n
	s.calls.at(i).Store(o)
	s.used++
	return true
}

// get returns the call with a number, nil if there is none.
func (x *callTable) get(id uint64) *Call {
	if place := x.shards[id%callShards].calls.at(indexOf(id)); place != nil {
		if o := place.Load(); o != nil && o.id>>32 == id>>32 {
			return o
		}
	}
	return nil
}

// remove removes a call, if it is in the table.
func (x *callTable) remove(o *Call) {
	s := &x.shards[o.id%callShards]
	i := indexOf(o.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if place := s.calls.at(i); place != nil && place.CompareAndSwap(o, nil) {
		s.free = append(s.free, i)
		s.used--
	}
}

// waiting returns the number of calls under way.
func (x *callTable) waiting() (n int) {
	for i := range x.shards {
		s := &x.shards[i]
		s.mu.Lock()
		n += s.used
		s.mu.Unlock()
	}
	return n
}

// all returns the calls under way, by shard and index.
func (x *callTable) all() []*Call {
	var out []*Call
	for i := range x.shards {
		s := &x.shards[i]
		s.mu.Lock()
		if s.used > 0 {
			for i := range s.n {
				if o := s.calls.at(i).Load(); o != nil {
					out = append(out, o)
				}
			}
		}
		s.mu.Unlock()
	}
	return out
}

// tick does the work that is due for the calls. It reports whether there are any at
// all.
func (x *callTable) tick(t *Turn) bool {
	if int64(t.Now) < x.due.Load() {
		return x.waiting() > 0
	}
	x.due.Store(math.MaxInt64) // first: calls that are added meanwhile lower it
	x.exact.Store(math.MaxInt64)
	all := x.all()
	for _, o := range all {
		o.mu.Lock()
		at := o.due()
		ends := o.exactEnd()
		o.mu.Unlock()
		if t.Now >= at {
			tick(t, o)
			at = t.Now // the next tick looks at it again
		}
		if ends > t.Now {
			lower(&x.exact, ends)
		}
		x.lookAt(at)
	}
	return len(all) > 0
}

// expect has the ticks look at a call when it is due. The call is locked.
func (x *callTable) expect(o *Call) { x.lookAt(o.due()) }

// lookAt has the first tick at or after a time look at the calls.
func (x *callTable) lookAt(at limiter.Tick) { lower(&x.due, at) }

func lower(to *atomic.Int64, at limiter.Tick) {
	for {
		was := to.Load()
		if int64(at) >= was || to.CompareAndSwap(was, int64(at)) {
			return
		}
	}
}

// exactEnd returns when a tick must end a call, which is locked: its deadline, if that is its own.
func (o *Call) exactEnd() limiter.Tick {
	if !o.task.exact || o.progress.ended || o.progress.divided {
		return math.MaxInt64
	}
	return o.task.until
}

// due returns a time before which a tick has nothing to do for a call, which is locked.
func (o *Call) due() limiter.Tick {
	at := o.task.until
	switch {
	case o.progress.ended:
		return math.MaxInt64
	case o.progress.divided:
		at += limiter.Second
	}
	switch {
	case o.progress.again != 0:
		at = min(at, o.progress.again)
	case o.progress.askedAt != 0 && !o.progress.hasHeir && o.progress.owner != o.c.config.Self:
		at = min(at, o.progress.askedAt+SilentAfter) // a slow link makes it later
	}
	return at
}

// tick does the work that is due for a call. A panic ends only this.
func tick(t *Turn, o *Call) {
	defer t.Catch()
	o.tick(t)
}

// lost tells the calls that wait for a member that it may not answer.
func (x *callTable) lost(t *Turn, i peer.Instance) {
	for _, o := range x.all() {
		o.lost(t, i)
	}
}
