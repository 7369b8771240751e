package table

import (
	"math"
	"math/bits"

	"github.com/weirlimit/weir/limiter"
)

// slot is one counter. It has no pointers.
type slot struct {
	// Identity: where the first half of the key's hash stands in the order of the
	// table, and the second mixed with the limit's name.
	place, lo uint64
	state     limiter.State
	words     uint32 // its words in the slab, 0 if none
	limit     uint16 // number of its limit in the registry, 0 if the slot is free
	class     uint8  // size of its words
	_         uint8
}

// Slots lie in blocks of blockSlots, so that a partition grows by adding a
// block. A partition with fewer has one smaller block, which doubles.
const (
	blockBits  = 7
	blockSlots = 1 << blockBits
	minSlots   = 16
)

// slots is a hash table with linear probing in which the entries are ordered by
// their place, and so by the slot where their search begins (their home). The order
// makes a search for an absent key short and lets the table grow in place.
//
// How many homes there are depends on the number of entries alone. Where entries
// crowd so that they overhang the homes, slots are added behind and the homes stay: n
// entries take at most n slots more than if they were spread evenly.
//
// Invariants: every slot from an entry's home up to the entry is taken, and the
// last slot is free.
type slots struct {
	first  []slot // blocks[0], one load nearer
	homes  uint64 // slots in which a search may begin; the rest is for overhang
	blocks [][]slot
	size   int    // slots in all blocks
	used   int    // slots taken
	arena  *arena // where blocks but the first come from
}

func (t *slots) at(i int) *slot {
	if i < len(t.first) {
		return &t.first[i]
	}
	return &t.blocks[i>>blockBits][i&(blockSlots-1)]
}

func (t *slots) home(place uint64) int { return homeOf(place, t.homes) }

func homeOf(place, homes uint64) int {
	h, _ := bits.Mul64(place, homes)
	return int(h)
}

// find returns where the entry is, or where it would have to be inserted.
func (t *slots) find(place, lo uint64) (i int, found bool) {
	if t.homes == 0 {
		return 0, false
	}
	for i = t.home(place); ; i++ {
		s := t.at(i)
		if s.limit == 0 || s.place > place {
			return i, false
		}
		if s.place == place && s.lo == lo {
			return i, true
		}
	}
}

// findKey returns the first entry of a key, of whatever limit. It begins where
// entries of that home mostly are and looks to both sides, which touches less
// memory than to begin at home.
func (t *slots) findKey(place uint64) (i int, found bool) {
	if t.homes == 0 {
		return 0, false
	}
	home := t.home(place)
	i = home + 1
	s := t.at(i)
	for s.limit != 0 && s.place < place {
		i++
		s = t.at(i)
	}
	for i > home {
		if s = t.at(i - 1); s.limit != 0 && s.place < place {
			break
		}
		i--
	}
	s = t.at(i)
	return i, s.limit != 0 && s.place == place
}

// findNear returns the entry with that identity where it is at the place at which
// entries of its home mostly are, or behind it, and nil where it is before it or
// nowhere. It looks at nothing else, so what [layout.near] has fetched is mostly all
// the memory that it touches.
func (t *slots) findNear(place, lo uint64) *slot {
	if t.homes == 0 {
		return nil
	}
	for i := t.home(place) + 1; ; i++ {
		s := t.at(i)
		if s.limit == 0 || s.place > place {
			return nil
		}
		if s.place == place && s.lo == lo {
			return s
		}
	}
}

// inRun returns the entry with that identity among those of its key, of which
// the first is at first, or nil. The one that was inserted n-th is mostly the
// n-th.
func (t *slots) inRun(first, n int, place, lo uint64) *slot {
	if first+n < t.size {
		if s := t.at(first + n); s.place == place && s.lo == lo && s.limit != 0 {
			return s
		}
	}
	for i := first; ; i++ {
		s := t.at(i)
		if s.limit == 0 || s.place != place {
			return nil
		}
		if s.lo == lo {
			return s
		}
	}
}

// full tells whether one more entry should wait for more room.
func (t *slots) full() bool { return t.used >= limitFor(t.even()) }

// even returns how many slots there are for entries that are spread evenly: all, but
// for those that were added as entries overhung.
func (t *slots) even() int {
	if t.homes == 0 {
		return 0
	}
	return int(t.homes) + 1 + max(4, min(int(t.homes+1)/15, 24))
}

// limitFor returns how many entries size slots hold at most: 85 in 100.
func limitFor(size int) int { return size * 85 / 100 }

// crowded reports whether n entries have the place that an entry would be inserted
// for at i, where find said that it is absent.
func (t *slots) crowded(i, n int, place uint64) bool {
	if i < n {
		return false
	}
	s := t.at(i - n)
	return s.limit != 0 && s.place == place
}

// insert puts an entry where find said. It reports false, and changes nothing,
// where the entries behind would overhang the table.
func (t *slots) insert(i int, e slot) bool {
	if t.size == 0 {
		return false
	}
	end := i
	for t.at(end).limit != 0 {
		end++
	}
	if end == t.size-1 {
		return false
	}
	for ; end > i; end-- {
		*t.at(end) = *t.at(end - 1)
	}
	*t.at(i) = e
	t.used++
	return true
}

// remove frees slot i and closes the gap.
func (t *slots) remove(i int) {
	for {
		next := t.at(i + 1)
		if next.limit == 0 || t.home(next.place) == i+1 {
			break
		}
		*t.at(i) = *next
		i++
	}
	*t.at(i) = slot{}
	t.used--
}

// sizeFor returns the size that entries should have room in: a power of two up
// to one block, whole blocks above, with an eighth to spare.
func sizeFor(entries int) int {
	size := minSlots
	for size < blockSlots && limitFor(size) <= entries {
		size *= 2
	}
	if limitFor(size) > entries {
		return size
	}
	slots := entries*100/85 + 1
	return (slots + slots/8 + blockSlots - 1) &^ (blockSlots - 1)
}

// rebuild drops the entries that keep refuses, and makes room for more: it
// grows where few were dropped, and shrinks where most were. Where memory is short, it
// grows by little and shrinks sooner.
func (t *slots) rebuild(keep func(*slot) bool, short bool) {
	n := t.pack(keep)
	size, want := t.even(), sizeFor(n+1)
	switch {
	case short && (want > size || want*5/4 <= size):
		size = want
	case want > size || want*4 <= size:
		size = sizeFor(n + n/4 + 1)
	}
	t.layOut(size, n)
}

// growth returns the memory that n more entries may take at least: none, where there
// is room for them, and none of the last slots is taken, so that they cannot overhang.
func (t *slots) growth(n int) int64 {
	if t.used+n > limitFor(t.even()) {
		return int64(max(0, sizeFor(t.used+n)-t.size)) * slotBytes
	}
	for i := t.size - 2; i >= t.size-1-n; i-- {
		if t.at(i).limit != 0 {
			return int64(min(t.size, blockSlots)) * slotBytes
		}
	}
	return 0
}

// extend adds room where an entry would overhang the table.
func (t *slots) extend() {
	switch {
	case t.size == 0:
		t.resize(minSlots, 0)
	case t.size < blockSlots:
		t.layOut(2*t.size, t.pack(nil))
	default:
		t.addBlock()
	}
}

// addBlock adds slots behind those that there are.
func (t *slots) addBlock() {
	t.blocks = append(t.blocks, t.arena.block())
	t.size += blockSlots
}

// layOut spreads the first n slots over size slots, and adds to them where they do
// not fit: twice as many while they are less than a block, then slots for overhang.
func (t *slots) layOut(size, n int) {
	t.resize(size, n)
	for end := t.reach(n); end >= t.size; end = t.reach(n) {
		if t.size < blockSlots {
			t.resize(2*t.size, n)
			continue
		}
		t.addBlock()
	}
	t.spread(n)
	t.used = n
}

// pack moves the entries to the front, in order.
func (t *slots) pack(keep func(*slot) bool) (n int) {
	for i := range t.size {
		s := t.at(i)
		if s.limit == 0 || keep != nil && !keep(s) {
			continue
		}
		if n != i {
			*t.at(n) = *s
		}
		n++
	}
	return n
}

// resize changes the number of slots and homes; the first n are kept, n <= size.
func (t *slots) resize(size, n int) {
	if size != t.size {
		switch {
		case size < blockSlots || t.size < blockSlots:
			first := make([]slot, min(size, blockSlots))
			if t.size > 0 {
				copy(first, t.blocks[0][:min(n, len(t.blocks[0]))])
			}
			if len(t.blocks) == 0 {
				t.blocks = append(t.blocks, nil)
			}
			t.arena.ordinary(len(first) - len(t.blocks[0]))
			t.blocks[0] = first
			t.drop(1)
		case size < t.size:
			t.drop(size >> blockBits)
		}
		for len(t.blocks)<<blockBits < size && size >= blockSlots {
			t.blocks = append(t.blocks, t.arena.block())
		}
		t.size, t.first = size, t.blocks[0]
	}
	t.homes = uint64(size - 1 - max(4, min(size/16, 24))) // see even
}

// drop gives back all blocks but the first n, which is 1 or more.
func (t *slots) drop(n int) {
	if len(t.blocks) <= n {
		return
	}
	t.arena.release(t.blocks[n:])
	clear(t.blocks[n:])
	t.blocks = t.blocks[:n]
}

// reach returns the slot behind the last of the first n, once they are spread over
// their homes.
func (t *slots) reach(n int) int {
	next := 0
	for i := range n {
		next = max(next, t.home(t.at(i).place)) + 1
	}
	return next
}

// spread moves the first n slots to where they belong, which is nowhere before
// their present place once they stand at the end.
func (t *slots) spread(n int) {
	shift := t.size - n
	for i := n - 1; i >= 0; i-- {
		*t.at(i + shift) = *t.at(i)
	}
	next := 0
	for i := shift; i < t.size; i++ {
		e := *t.at(i)
		place := max(next, t.home(e.place))
		for ; next < place; next++ {
			*t.at(next) = slot{}
		}
		*t.at(place) = e
		next = place + 1
	}
	for ; next < t.size; next++ {
		*t.at(next) = slot{}
	}
}

// bytes returns the memory of the slots.
func (t *slots) bytes() int { return t.size * slotBytes }

const (
	slotBytes = 48
	never     = limiter.Tick(math.MaxInt64)
)
