package cluster

import (
	"sync"

	"github.com/weirlimit/weir/peer"
)

// opTable numbers the operations that wait for others.
type opTable struct {
	shards [16]struct {
		mu   sync.Mutex
		ops  []*op
		gens []uint32
		free []uint32
		used int
	}
	next atomicCounter
}

const opShards = 16

// add numbers an operation; it reports false at the bound.
func (x *opTable) add(o *op) bool {
	n := x.next.add()
	s := &x.shards[n%opShards]
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
	s.gens[i]++
	s.ops[i] = o
	s.used++
	o.id = uint64(s.gens[i])<<32 | uint64(i)<<4 | n%opShards
	return true
}

func (x *opTable) get(id uint64) *op {
	s := &x.shards[id%opShards]
	i := uint32(id) >> 4
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(i) >= len(s.ops) || s.gens[i] != uint32(id>>32) {
		return nil
	}
	return s.ops[i]
}

func (x *opTable) remove(id uint64) {
	s := &x.shards[id%opShards]
	i := uint32(id) >> 4
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(i) < len(s.ops) && s.gens[i] == uint32(id>>32) && s.ops[i] != nil {
		s.ops[i] = nil
		s.free = append(s.free, i)
		s.used--
	}
}

// all returns the operations under way, in the order of their numbers.
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

// tick looks for operations for which it is time to do something; it reports
// whether there are any at all.
func (x *opTable) tick(t *turn) bool {
	all := x.all()
	for _, o := range all {
		o.tick(t)
	}
	return len(all) > 0
}

// lost tells the operations that wait for a member that it may not answer.
func (x *opTable) lost(t *turn, i peer.Instance) {
	for _, o := range x.all() {
		o.unreachable(t, i)
	}
}
