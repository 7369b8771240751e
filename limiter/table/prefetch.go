package table

import (
	"slices"
	"unsafe"

	"github.com/weirlimit/weir/limiter/arith"
)

// Ahead is how many checks ahead of the present one to [Table.Prefetch]: they touch
// about as many cache lines as a core can fetch at a time.
const Ahead = 8

// Prefetch makes the processor fetch the counters of a check that will be decided soon.
// It is a hint and does not wait. In a batch, the memory of one check arrives while
// others are decided.
func (t *Table) Prefetch(c *arith.Charge) {
	for i := range c.Len() {
		k := c.Key(i)
		t.prefetch(PartitionOf(k), k.Hash.Hi)
		if c.ID != nil && k.Cost > 0 {
			t.PrefetchIDs(PartitionOf(k))
		}
	}
}

// PrefetchPartitions prefetches the locks of the partitions of a check, and where their counters lie. If it
// is called some checks earlier than [Table.Prefetch], that does not wait for what it reads itself.
func (t *Table) PrefetchPartitions(c *arith.Charge) {
	for i := range c.Len() {
		n := PartitionOf(c.Key(i))
		fetchWrite(unsafe.Pointer(&t.parts[n]))
		fetch(unsafe.Pointer(t.layouts[n].Load()))
	}
}

// PrefetchKey does the same for one key of a partition. An invalid partition is
// ignored.
func (t *Table) PrefetchKey(partition int, hi uint64) {
	if uint(partition) < uint(len(t.layouts)) {
		t.prefetch(partition, hi)
	}
}

// PrefetchIDs prefetches where the ids of a partition lie, for a check with an id. An invalid
// partition is ignored.
func (t *Table) PrefetchIDs(partition int) {
	if uint(partition) < uint(len(t.parts)) {
		fetchWrite(unsafe.Pointer(&t.parts[partition]))
		fetchWrite(unsafe.Pointer(&t.parts[partition].came))
		fetchWrite(unsafe.Pointer(&t.ids.rings[partition]))
		fetchWrite(unsafe.Pointer(&t.copies[partition].sent))
	}
}

// PrefetchID prefetches what the search for an id reads, and where it comes to lie, by the high half of its hash. It is
// called some checks after [Table.PrefetchIDs], and does nothing if it would have to wait. An invalid partition is
// ignored.
func (t *Table) PrefetchID(partition int, hi uint64) {
	if uint(partition) >= uint(len(t.parts)) {
		return
	}
	if p := &t.parts[partition]; p.mu.TryLock() {
		t.ring(p).fetch(t.order.of(hi))
		p.mu.Unlock()
	}
}

// Touch prefetches the first 64 bytes of a value that will be written, for which the processor
// does not wait. p may be nil.
func Touch[T any](p *T) { fetchWrite(unsafe.Pointer(p)) }

// prefetch is PrefetchKey for a partition that exists.
func (t *Table) prefetch(partition int, hi uint64) {
	fetchWrite(unsafe.Pointer(&t.parts[partition])) // the line of its lock
	l := t.layouts[partition].Load()
	if l == nil {
		return
	}
	block, at := l.near(t.order.of(hi))
	if block == nil {
		return
	}
	// And the slot before the home, where the search turns back.
	fetchPair(unsafe.Pointer(&block[max(at-1, 0)]))
}

// layout is the location of a partition's slots. It is immutable and read without the
// lock, so it may be out of date and is only good for hints.
type layout struct {
	homes  uint64
	first  [4]*[blockSlots]slot // the first blocks, in the same cache line; nil for what is smaller
	blocks [][]slot
}

func newLayout(s *slots) *layout {
	l := &layout{homes: s.homes, blocks: make([][]slot, 0, s.size>>blockBits+1)}
	for _, b := range s.blocks {
		l.blocks = slices.AppendSeq(l.blocks, slices.Chunk(b, blockSlots))
	}
	for i := range min(len(l.first), len(l.blocks)) {
		if len(l.blocks[i]) == blockSlots {
			l.first[i] = (*[blockSlots]slot)(l.blocks[i])
		}
	}
	return l
}

// near returns the block, and the index in it, where the search for a place starts; nil
// if there is none.
func (l *layout) near(place uint64) (block []slot, at int) {
	i := homeOf(place, l.homes) + 1
	n, at := i>>blockBits, i&(blockSlots-1)
	switch {
	case n < len(l.first) && l.first[n] != nil:
		return l.first[n][:], at
	case n < len(l.blocks) && at < len(l.blocks[n]):
		return l.blocks[n], at
	}
	return nil, 0
}

// publish updates the layout of a locked partition.
func (p *partition) publish() {
	have, now := p.table.layouts[p.number].Load(), &p.slots
	switch {
	case now.homes == 0:
		p.table.layouts[p.number].Store(nil)
	case have == nil || have.homes != now.homes || now.size > oneMost && len(have.blocks) != len(now.blocks) ||
		&have.blocks[0][0] != &now.blocks[0][0]:
		p.table.layouts[p.number].Store(newLayout(now))
	}
}
