package table

import (
	"sync"
	"sync/atomic"
)

// maxSources is one more than the number of other nodes that a table tells apart.
const maxSources = 256

// sources are the nodes that have sent counters, by number. 0 is none.
type sources struct {
	mu     sync.Mutex
	number map[string]uint8
	names  [maxSources]string
	usage  [maxSources]source
}

// source is what the table has of a node: counters that it sent and that no check has asked for since.
type source struct{ keys, bytes atomic.Int64 }

// Source returns the number of a node for [Entry.From], by its name. If all numbers are taken, the node gets that of
// one of which the table has nothing, or else the least.
func (t *Table) Source(name string) uint8 {
	s := &t.usages.sources
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.number[name]; ok {
		return n
	}
	n := len(s.number) + 1
	if n == maxSources {
		n = 1
		for i := 2; i < maxSources; i++ {
			if s.usage[i].keys.Load() < s.usage[n].keys.Load() {
				n = i
			}
		}
		delete(s.number, s.names[n])
	}
	if s.number == nil {
		s.number = make(map[string]uint8)
	}
	s.number[name], s.names[n] = uint8(n), name
	return uint8(n)
}
