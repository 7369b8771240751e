package table

import (
	"slices"
	"unsafe"

	"github.com/weirlimit/weir/limiter"
)

// Ahead is how many checks ahead of the one that is decided it is worth to
// [Table.Prefetch]: they touch about as many lines of memory as a core fetches at a
// time.
const Ahead = 8

// Prefetch has the processor fetch the counters of a check that is going to be
// decided soon, and waits for nothing: it is a hint. Where a batch is decided,
// the memory of one check arrives while others are worked at.
func (t *Table) Prefetch(c *limiter.Charge) {
	for i := range c.Len() {
		k := c.Key(i)
		t.prefetch(PartitionOf(k), k.Hash.Hi)
	}
}

// PrefetchKey does the same for a key of a partition; nothing, if there is no such
// partition.
func (t *Table) PrefetchKey(partition int, hi uint64) {
	if uint(partition) < uint(len(t.layouts)) {
		t.prefetch(partition, hi)
	}
}

func (t *Table) prefetch(partition int, hi uint64) {
	fetch(unsafe.Pointer(&t.parts[partition])) // its lock
	l := t.layouts[partition].Load()
	if l == nil {
		return
	}
	block, at := l.near(t.order.of(hi))
	if block == nil {
		return
	}
	s := unsafe.Pointer(&block[at])
	fetch(s)
	fetch(unsafe.Add(s, slotBytes-1)) // a slot may lie in two lines
	if at > 0 {
		fetch(unsafe.Pointer(&block[at-1])) // the home itself, where the search turns back
	}
}

// layout is where the slots of a partition lie. It is immutable and read without
// the lock, so what it says may be out of date: it is good for hints.
type layout struct {
	homes  uint64
	first  [4]*[blockSlots]slot // the first blocks, in the same line of memory; nil for a smaller one
	blocks [][]slot
}

func newLayout(s *slots) *layout {
	l := &layout{homes: s.homes, blocks: slices.Clone(s.blocks)}
	for i := range min(len(l.first), len(l.blocks)) {
		if len(l.blocks[i]) == blockSlots {
			l.first[i] = (*[blockSlots]slot)(l.blocks[i])
		}
	}
	return l
}

// near returns the block and the place in it where the search for a key begins, nil
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

// publish tells where the slots of a locked partition lie now.
func (t *Table) publish(p *partition) {
	have, now := t.layouts[p.number].Load(), &p.slots
	switch {
	case now.homes == 0:
		t.layouts[p.number].Store(nil)
	case have == nil || have.homes != now.homes || len(have.blocks) != len(now.blocks) || &have.blocks[0][0] != &now.blocks[0][0]:
		t.layouts[p.number].Store(newLayout(now))
	}
}
