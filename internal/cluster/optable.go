package cluster

import (
	"sync"

	"github.com/weirlimit/weir/internal/peer"
)

// opTable holds the operations that wait for a reply, by number. It has a bound of
// maxOps in all, and is safe for concurrent use.
type opTable struct {
	shards [opShards]opShard
	next   atomicCounter
}

const opShards = 16

// A number consists of: in the upper 32 bits the generation of its place, so that it is
// not reused soon; then the number of the request, see [inquiry]; then the index in the
// shard; and in the lowest 4 bits the shard.
const (
	indexBits = 13
	tryShift  = 4 + indexBits
	maxTry    = 1<<(32-tryShift) - 1
	_         = uint(1<<indexBits - maxOps/opShards) // a compile-time check that all indices fit
)

func indexOf(id uint64) uint32 { return uint32(id) >> 4 & (1<<indexBits - 1) }

// tryOf returns the number of the request from an operation's number; withTry adds it.
func tryOf(id uint64) uint16               { return uint16(uint32(id) >> tryShift) }
func withTry(id uint64, try uint16) uint64 { return id | uint64(try)<<tryShift }

// opShard is one shard of the table. Its lock is the last to be taken, also under a
// link's.
type opShard struct {
	mu   sync.Mutex
	ops  []*op
	gens []uint32
	free []uint32
	used int
}

// add gives an operation a number. It reports false at the bound. Operations that begin
// in one turn share a shard while it has room.
func (x *opTable) add(o *op, t *turn) bool {
	if t.shard == 0 {
		t.shard = x.next.add()
	}
	for range opShards {
		if n := t.shard % opShards; x.shards[n].add(o, n) {
			return true
		}
		t.shard++
	}
	return false
}

// add gives an operation a number in this shard, which is the n-th. It reports false at
// the bound.
func (s *opShard) add(o *op, n uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var i uint32
	switch k := len(s.free); {
	case k > 0:
		i, s.free = s.free[k-1], s.free[:k-1]
	case len(s.ops) == maxOps/opShards:
		return false
	default:
		i = uint32(len(s.ops))
		s.ops, s.gens = append(s.ops, nil), append(s.gens, 0)
	}
	if s.gens[i]++; s.gens[i] == 0 {
		s.gens[i] = 1 // 2^32 generations later: no number is 0
	}
	s.ops[i] = o
	s.used++
	o.id = uint64(s.gens[i])<<32 | uint64(i)<<4 | n
	return true
}

func (x *opTable) get(id uint64) *op {
	s := &x.shards[id%opShards]
	i := indexOf(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(i) >= len(s.ops) || s.gens[i] != uint32(id>>32) {
		return nil
	}
	return s.ops[i]
}

// take removes and returns an operation; nil if its number is not in the table.
func (x *opTable) take(id uint64) *op {
	s := &x.shards[id%opShards]
	i := indexOf(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(i) >= len(s.ops) || s.gens[i] != uint32(id>>32) || s.ops[i] == nil {
		return nil
	}
	o := s.ops[i]
	s.remove(i)
	return o
}

func (s *opShard) remove(i uint32) {
	s.ops[i] = nil
	s.free = append(s.free, i)
	s.used--
}

func (x *opTable) remove(id uint64) {
	s := &x.shards[id%opShards]
	i := indexOf(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(i) < len(s.ops) && s.gens[i] == uint32(id>>32) && s.ops[i] != nil {
		s.remove(i)
	}
}

// waiting returns the number of operations under way.
func (x *opTable) waiting() (n int) {
	for i := range x.shards {
		s := &x.shards[i]
		s.mu.Lock()
		n += s.used
		s.mu.Unlock()
	}
	return n
}

// all returns the operations under way, by shard and index.
func (x *opTable) all() []*op {
	var out []*op
	for i := range x.shards {
		s := &x.shards[i]
		s.mu.Lock()
		if s.used > 0 {
			for _, o := range s.ops {
				if o != nil {
					out = append(out, o)
				}
			}
		}
		s.mu.Unlock()
	}
	return out
}

// tick does the work that is due for the operations. It reports whether there are any at
// all.
func (x *opTable) tick(t *turn) bool {
	all := x.all()
	for _, o := range all {
		o.tickSafely(t)
	}
	return len(all) > 0
}

// lost tells the operations that wait for a member that it may not answer.
func (x *opTable) lost(t *turn, i peer.Instance) {
	for _, o := range x.all() {
		o.unreachable(t, i)
	}
}
