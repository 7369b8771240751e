package route

import (
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/peer"
)

// maxCalls is how many calls may be under way at a node, to all members together.
const maxCalls = 1 << 17

// callTable holds the calls that wait for a reply, by number. It has a bound of
// maxCalls in all, and is safe for concurrent use.
type callTable struct {
	shards [callShards]callShard
	next   atomic.Uint64
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

// tryOf returns the number of the request from an call's number; withTry adds it.
func tryOf(id uint64) uint16               { return uint16(uint32(id) >> tryShift) }
func withTry(id uint64, try uint16) uint64 { return id | uint64(try)<<tryShift }

// callShard is one shard of the table. Its lock is the last to be taken, also under a
// link's.
type callShard struct {
	mu    sync.Mutex
	calls []*Call
	gens  []uint32
	free  []uint32
	used  int
}

// add gives a call a number. It reports false at the bound. Operations that begin
// in one turn share a shard while it has room.
func (x *callTable) add(o *Call, t *Turn) bool {
	if t.shard == 0 {
		t.shard = x.next.Add(1)
	}
	for range callShards {
		if n := t.shard % callShards; x.shards[n].add(o, n) {
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
	case len(s.calls) == maxCalls/callShards:
		return false
	default:
		i = uint32(len(s.calls))
		s.calls, s.gens = append(s.calls, nil), append(s.gens, 0)
	}
	if s.gens[i]++; s.gens[i] == 0 {
		s.gens[i] = 1 // 2^32 generations later: no number is 0
	}
	s.calls[i] = o
	s.used++
	o.id = uint64(s.gens[i])<<32 | uint64(i)<<4 | n
	return true
}

func (x *callTable) get(id uint64) *Call {
	s := &x.shards[id%callShards]
	i := indexOf(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(i) >= len(s.calls) || s.gens[i] != uint32(id>>32) {
		return nil
	}
	return s.calls[i]
}

// take removes and returns a call; nil if its number is not in the table.
func (x *callTable) take(id uint64) *Call {
	s := &x.shards[id%callShards]
	i := indexOf(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(i) >= len(s.calls) || s.gens[i] != uint32(id>>32) || s.calls[i] == nil {
		return nil
	}
	o := s.calls[i]
	s.remove(i)
	return o
}

func (s *callShard) remove(i uint32) {
	s.calls[i] = nil
	s.free = append(s.free, i)
	s.used--
}

func (x *callTable) remove(id uint64) {
	s := &x.shards[id%callShards]
	i := indexOf(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(i) < len(s.calls) && s.gens[i] == uint32(id>>32) && s.calls[i] != nil {
		s.remove(i)
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
			for _, o := range s.calls {
				if o != nil {
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
	all := x.all()
	for _, o := range all {
		tick(t, o)
	}
	return len(all) > 0
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
