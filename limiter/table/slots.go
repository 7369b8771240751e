package table

import (
	"math"
	"math/bits"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// slot is one counter. It has no pointers.
type slot struct {
	// Identity: the place of the first half of the key's hash in the table's order, and
	// the second half combined with the limit's name.
	place, lo uint64
	state     arith.State
	words     uint32 // reference to its words in the slab, 0 if none
	limit     uint16 // number of its limit in the registry, 0 for a free slot
	class     uint8  // size class of its words, and charged
	from      uint8  // who sent it, see Entry.From; 0 once a check has asked for it
}

// charged, in the class of a slot, says that a check has charged it since [ExportCharged] looked at it.
const charged uint8 = 1 << 7

func (s *slot) sizeClass() uint8 { return s.class &^ charged }

// The slots of a partition are in blocks of blockSlots, so it grows by adding a block. A partition of up
// to oneMost slots has one block of any size: it grows by smaller steps, and its slots are found
// without the list of blocks.
const (
	blockBits  = 7
	blockSlots = 1 << blockBits
	minSlots   = 16
	oneMost    = 4 * blockSlots
)

// slots is a hash table with linear probing. Its entries are ordered by their place,
// and so by the slot where their search starts (their home). This order makes the
// search for an absent key short and lets the table grow in place.
//
// The number of homes depends only on the number of entries. If entries crowd so that
// they reach beyond the homes, slots are added at the end and the homes stay. n entries
// take at most n slots more than if they were spread evenly.
//
// Invariants: every slot from an entry's home up to the entry is in use, and the last
// slot is free.
type slots struct {
	first  []slot // blocks[0], to save one load
	homes  uint64 // slots at which a search may start; the others are for entries beyond the homes
	blocks [][]slot
	size   int    // number of slots in all blocks
	used   int    // number of slots in use
	arena  *arena // allocates all blocks but the first
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

// find returns the index of the entry, or the one at which it would have to be
// inserted.
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

// findKey returns the first entry of a key, of any limit. It starts where entries of
// that home usually are and searches in both directions, which touches less memory than
// starting at the home.
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

// findNear returns the entry with an identity if it is at its home, where entries of that
// home usually are, or after that. It returns nil if the entry is elsewhere or absent. It
// touches little memory beyond what [layout.near] has prefetched.
func (t *slots) findNear(place, lo uint64) *slot {
	if t.homes == 0 {
		return nil
	}
	home := t.home(place)
	for i := home + 1; ; i++ {
		s := t.at(i)
		if s.limit == 0 || s.place > place {
			break
		}
		if s.place == place && s.lo == lo {
			return s
		}
	}
	if s := t.at(home); s.place == place && s.lo == lo && s.limit != 0 {
		return s
	}
	return nil
}

// inRun returns the entry with an identity among those of its key, which start at
// first, or nil.
func (t *slots) inRun(first int, place, lo uint64) *slot {
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

// crowded reports whether n entries have the place of an absent entry that find would
// insert at i.
func (t *slots) crowded(i, n int, place uint64) bool {
	if i < n || t.at(i-1).place != place { // the last of them lies beside i
		return false
	}
	s := t.at(i - n)
	return s.limit != 0 && s.place == place
}

// insert adds an entry at the index from find. If later entries would be pushed beyond
// the end, it changes nothing and reports false.
func (t *slots) insert(i int, e slot) bool {
	s := t.gap(i)
	if s == nil {
		return false
	}
	*s = e
	return true
}

// gap moves later entries, as insert does, and returns the slot for the new one; nil instead of
// false.
func (t *slots) gap(i int) *slot {
	if t.size == 0 {
		return nil
	}
	end := i
	for t.at(end).limit != 0 {
		end++
	}
	if end == t.size-1 {
		return nil
	}
	for ; end > i; end-- {
		*t.at(end) = *t.at(end - 1)
	}
	t.used++
	return t.at(i)
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

// rebuild drops the entries that keep rejects, and adjusts the size: it grows if few
// were dropped and shrinks if most were. If memory is short, it grows less and shrinks
// sooner.
func (t *slots) rebuild(keep func(*slot) bool, short bool) {
	t.thin(keep)
	n, size, want := t.used, t.even(), sizeFor(t.used+1)
	switch {
	case short && (want > size || want*5/4 <= size):
		size = want
	case want > size || want*4 <= size:
		size = sizeFor(n + n/8 + 1)
		if n > oneMost {
			size = sizeFor(n + n/4 + 1)
		}
	case size == t.size:
		return
	}
	t.pack()
	t.layOut(size, n)
}

// thin drops the entries that keep rejects, and closes the gaps.
func (t *slots) thin(keep func(*slot) bool) {
	if keep == nil {
		return
	}
	next := 0 // the slot after the last entry
	for i := range t.size {
		s := t.at(i)
		switch {
		case s.limit == 0:
			continue
		case !keep(s):
			*s = slot{}
			t.used--
			continue
		}
		if to := max(next, t.home(s.place)); to < i {
			*t.at(to), *s = *s, slot{}
			next = to + 1
		} else {
			next = i + 1
		}
	}
}

// growth returns the least memory that n more entries may need. It is 0 if there is
// room for them and the last slots are free, so that no entry can be pushed beyond the
// end.
func (t *slots) growth(n int) int64 {
	bound := t.growthBound(n)
	if t.used+n > limitFor(t.even()) {
		return bound
	}
	for i := t.size - 2; i >= t.size-1-n; i-- {
		if t.at(i).limit != 0 {
			return bound
		}
	}
	return 0
}

// growthBound returns growth, or more, without reading the slots.
func (t *slots) growthBound(n int) int64 {
	if t.used+n > limitFor(t.even()) {
		return int64(max(0, sizeFor(t.used+n)-t.size)) * slotBytes
	}
	return int64(min(t.size, blockSlots)) * slotBytes
}

// extend adds slots for an entry that would be pushed beyond the end.
func (t *slots) extend() {
	switch {
	case t.size == 0:
		t.resize(minSlots, 0)
	case t.size < blockSlots:
		t.layOut(2*t.size, t.pack())
	default:
		t.addBlock()
	}
}

// addBlock adds slots at the end.
func (t *slots) addBlock() {
	homes := t.homes
	switch {
	case t.size < oneMost:
		t.resize(min(roundUp(t.size+blockSlots/4), oneMost), t.size)
	default:
		t.resize(t.size+blockSlots, t.size)
	}
	t.homes = homes
}

// layOut spreads the first n slots over size slots. If they do not fit it adds slots:
// twice as many below one block, otherwise at the end.
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
func (t *slots) pack() (n int) {
	for i := range t.size {
		s := t.at(i)
		if s.limit == 0 {
			continue
		}
		if n != i {
			*t.at(n) = *s
		}
		n++
	}
	return n
}

// reach returns the index after the last of the first n entries, once they are spread
// over their homes.
func (t *slots) reach(n int) int {
	next := 0
	for i := range n {
		next = max(next, t.home(t.at(i).place)) + 1
	}
	return next
}

// spread moves the first n slots to their positions. It moves all of them to the end
// first. Then no position is behind the present one, so none is overwritten too early.
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
