package table

import (
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/limiter/arith"
)

// What other nodes send is not all of use: one of them may send counters of keys that do not exist. So a counter that
// was sent counts for the one who sent it, until a check asks for it. It takes no room of
// [Config.MaxKeys] and [Config.MaxBytes], nor of a tenant's share, also where this node becomes the owner of it: it
// denies no new key. And one node may send twice MaxKeys, see maxOfSource.
//
// An honest node sends what it owns: at most MaxKeys of its own and what it has got from others. Of two nodes one has
// all keys of the cluster while the other one starts anew, and sends them all: MaxKeys for each of both.

// maxSources is one more than the number of other nodes that a table tells apart.
const maxSources = 256

// maxOfSource is how much of what one node sent a table holds. It leaves a third of the room to others.
func maxOfSource(bound int64) int64 { return bound * (replicaFactor - 1) }

// sources are the nodes that have sent counters, by number. 0 is none.
type sources struct {
	mu     sync.Mutex
	number map[string]uint8
	names  [maxSources]string
	usage  [maxSources]source
}

// source is what the table has of a node: counters that it sent and that no check has asked for since, with ids, and
// the bytes of their words.
type source struct{ keys, bytes atomic.Int64 }

// Source returns the number of a node for [Entry.From], by its name. If all numbers are taken, the node gets that of
// the one of which the table has least.
func (t *Table) Source(name string) uint8 {
	s := &t.room.usages.sources
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

// sentBy is what a partition has of what was sent to it. It is guarded by the partition's lock.
type sentBy struct {
	slots int   // that no check has asked for
	words int64 // bytes of their words
	// ids is how many ids came, less those that have gone since. They are taken for those of one node.
	ids   int
	idsOf uint8
}

// sent counts n slots like s that came to a locked partition, or left it.
func (p *partition) sent(s *slot, n int) {
	if s.from != 0 {
		p.table.copies[p.number].sent.slots += n
		p.table.room.usages.sources.usage[s.from].keys.Add(int64(n))
	}
}

// sentWords counts bytes of the words of a slot, and reports whether it was sent.
func (p *partition) sentWords(s *slot, bytes int64) bool {
	if s.from != 0 {
		p.table.copies[p.number].sent.words += bytes
		p.table.room.usages.sources.usage[s.from].bytes.Add(bytes)
	}
	return s.from != 0
}

// sentIDs counts n ids that a node sent to a locked partition, or less if n is below 0.
func (p *partition) sentIDs(from uint8, n int) {
	c := &p.table.copies[p.number].sent
	all := &p.table.room.usages.sources.usage
	if n > 0 {
		all[c.idsOf].keys.Add(-int64(c.ids))
		c.idsOf, c.ids = from, c.ids+n
		all[c.idsOf].keys.Add(int64(c.ids))
	} else if n = min(-n, c.ids); n > 0 {
		c.ids -= n
		all[c.idsOf].keys.Add(-int64(n))
		p.tally()
	}
	if p.table.ring(p).from = c.idsOf; c.ids == 0 {
		p.table.ring(p).from = 0
	}
}

// asked makes a slot that was sent one of this node: a check has asked for it.
func (p *partition) asked(s *slot) {
	bytes := int64(0)
	if s.words != 0 {
		bytes = int64(classWords(s.sizeClass())) * wordBytes
	}
	p.sent(s, -1)
	p.sentWords(s, -bytes)
	s.from = 0
	p.belongsSlot(s, 1)
	p.belongsBytes(keyLo(s.lo, p.table.registry.limit(s.limit)), bytes)
	p.tally()
}

// beyondSource reports whether a node that sends something may not have so many counters and bytes more.
func (r *room) beyondSource(from uint8, keys, bytes int64) bool {
	if from == 0 || keys <= 0 && bytes <= 0 {
		return false
	}
	u := &r.usages.sources.usage[from]
	return u.keys.Load()+keys > maxOfSource(r.maxKeys) || r.maxBytes < unbounded &&
		u.bytes.Load()+bytes > maxOfSource(r.maxBytes)
}

// wordsOf returns the bytes of words that some entries take.
func wordsOf(entries []Entry) (bytes int64) {
	for i := range entries {
		if n := len(entries[i].Words); n > 0 && entries[i].Limit.Algorithm() != arith.Remembered {
			bytes += blockBytesFor(n)
		}
	}
	return bytes
}
