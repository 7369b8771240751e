package table

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// idEntry is one id that is remembered for a key. Its place and lo are those of [Table.placeOfID]. It has no
// words, and its limit is that of the ring.
type idEntry struct {
	place, lo uint64
	state     arith.State
}

// idRing has the ids of a partition in the order in which they came, which is mostly the one in
// which they end. So a full ring finds an ended id to replace without a search: the oldest. The entries need
// no room between them. They are found by an index, which takes few cache lines.
//
// An id whose time ends before that of older ones stays until it is the oldest or the ring has no room. An id
// that is forgotten stays so long too, as an entry that was taken out.
//
// An element of the index has in its lowest bits 1 and the number of an entry, and above them bits of its place;
// 0 is a free one. It has 16 bits, or 32 if the ring is wide: then the numbers would leave too few for the place.
//
// Entries are numbered from 0 to below twice the size of the ring and then from 0 again. An element of the
// index has the number of its entry. Once that has left the ring, the number lies outside those of the present
// entries, and the element is stale: nobody has to look for it. The index is made anew twice in each turn of
// the ring: before its numbers come again, and so often that a quarter of it stays free.
//
// The fields fill one cache line.
//
// Invariants: each entry that was not taken out has an element in the index, at its home or after it, and no
// element between them is free. Some elements are free, since the index has twice as many as the ring has entries.
type idRing struct {
	index  []uint16 // elements, of one each or in a wide index of two
	ring   []idEntry
	head   uint32 // number of the oldest entry
	n      uint32 // entries, with those that were taken out
	out    uint32 // entries that were taken out
	number uint16 // of the limit in the registry, if there are entries that were not taken out
	from   uint8  // who sent ids to the partition that it still has, see [sentBy]; 0: nobody
}

const (
	idBytes = 40
	// idGone is the Time of an entry that was taken out.
	idGone = -never
)

// used returns how many ids the ring has.
func (g *idRing) used() int { return int(g.n - g.out) }

// at returns the state of the id at a position.
func (g *idRing) at(pos int) *arith.State { return &g.ring[pos].state }

// slot returns an id as a slot outside the table.
func (g *idRing) slot(pos int) slot {
	e := &g.ring[pos]
	return slot{place: e.place, lo: e.lo, state: e.state, limit: g.number}
}

// numberOf returns the number of the i-th entry, from the oldest.
func (g *idRing) numberOf(i uint32) uint32 {
	if i += g.head; i >= 2*uint32(len(g.ring)) {
		i -= 2 * uint32(len(g.ring))
	}
	return i
}

// position returns where the entry with a number lies.
func (g *idRing) position(number uint32) int {
	if int(number) >= len(g.ring) {
		return int(number) - len(g.ring)
	}
	return int(number)
}

// stale reports whether the entry of an element of the index has left the ring.
func (g *idRing) stale(e uint32) bool {
	i := e&g.mask() - 1 - g.head // from the oldest
	if int32(i) < 0 {
		i += 2 * uint32(len(g.ring))
	}
	return i >= g.n
}

// find returns the position of an id, -1 if the ring does not have it.
func (g *idRing) find(place, lo uint64) int {
	if g.n == 0 {
		return -1
	}
	wide, mask := g.wide(), g.mask()
	tag := g.tag(place, wide)
	for i := g.home(place, wide); ; i = g.next(i, wide) {
		e := g.element(i, wide)
		switch {
		case e == 0:
			return -1
		case e&^mask != tag || g.stale(e):
			continue
		}
		pos := g.position(e&mask - 1)
		if r := &g.ring[pos]; r.place == place && r.lo == lo && r.state.Time != idGone {
			return pos
		}
	}
}

// all adds to at the positions of all ids at a place: of one, or of several if half of their hashes is equal.
func (g *idRing) all(place uint64, at []int) []int {
	if g.n == 0 {
		return at
	}
	wide, mask := g.wide(), g.mask()
	tag := g.tag(place, wide)
	for i := g.home(place, wide); ; i = g.next(i, wide) {
		e := g.element(i, wide)
		switch {
		case e == 0:
			return at
		case e&^mask != tag || g.stale(e):
			continue
		}
		pos := g.position(e&mask - 1)
		if e := &g.ring[pos]; e.place == place && e.state.Time != idGone {
			at = append(at, pos)
		}
	}
}

// fetch makes the processor fetch what a search for a place reads, and where the next id comes to lie: in a
// full ring the place of the oldest.
func (g *idRing) fetch(place uint64) {
	if len(g.ring) == 0 {
		return
	}
	next := &g.ring[g.position(g.numberOf(g.n))]
	fetch(unsafe.Pointer(&next.place))
	fetch(unsafe.Pointer(&next.state))
	home := g.home(place, false)
	if g.wide() {
		home = 2 * g.home(place, true)
	}
	fetch(unsafe.Pointer(&g.index[home]))
}

// push adds an id, for which there is room.
func (g *idRing) push(place, lo uint64, state arith.State) {
	number := g.numberOf(g.n)
	pos := g.position(number)
	e := &g.ring[pos]
	e.place, e.lo, e.state = place, lo, state
	g.n++
	if pos%max(1, len(g.ring)/2) == 0 {
		g.reindex()
		return
	}
	g.link(place, number)
}

// take takes out the id at a position.
func (g *idRing) take(pos int) {
	g.ring[pos].state.Time = idGone
	g.out++
}

// full reports whether the ring has no room for another id.
func (g *idRing) full() bool { return int(g.n) == len(g.ring) }

// over reports whether the oldest id is over at now. It removes entries that were taken out before it.
func (g *idRing) over(now limiter.Tick) bool {
	for g.n > 0 {
		e := g.oldest()
		if e.state.Time != idGone {
			return e.state.Time <= now
		}
		g.out--
		g.leave()
	}
	return false
}

// leave removes the oldest entry.
func (g *idRing) leave() {
	g.head = g.numberOf(1)
	g.n--
}

// oldest returns the oldest entry, which there is.
func (g *idRing) oldest() *idEntry { return &g.ring[g.position(g.head)] }

// drop removes all ids whose time is over at now, and calls gone for each. It returns how many these were, and
// when the first of the others ends.
func (g *idRing) drop(now limiter.Tick, gone func(*idEntry)) (dropped int, first limiter.Tick) {
	had, kept := g.used(), uint32(0)
	first = never
	for g.over(now) {
		gone(g.oldest())
		g.leave()
	}
	for i := range g.n {
		e := &g.ring[g.position(g.numberOf(i))]
		if e.state.Time <= now {
			if e.state.Time != idGone {
				gone(e)
			}
			continue
		}
		first = min(first, e.state.Time)
		if kept < i {
			g.ring[g.position(g.numberOf(kept))] = *e
		}
		kept++
	}
	if kept < g.n {
		g.n, g.out = kept, 0
		g.reindex()
	}
	return had - int(kept), first
}

// resize gives the ring a size, which is enough for its ids.
func (g *idRing) resize(size int) {
	old := *g
	*g = idRing{number: old.number, from: old.from}
	if size == 0 {
		return
	}
	g.ring, g.index = make([]idEntry, size), make([]uint16, indexSize(size))
	for i := range old.n {
		if e := &old.ring[old.position(old.numberOf(i))]; e.state.Time != idGone {
			g.ring[g.n] = *e
			g.n++
		}
	}
	g.reindex()
}

// bytes returns the memory of the ring.
func (g *idRing) bytes() int64 { return bytesOfRing(len(g.ring)) }

// growth returns the memory that n more ids may need.
func (g *idRing) growth(n int) int64 {
	if int(g.n)+n <= len(g.ring) {
		return 0
	}
	return bytesOfRing(largerRing(int(g.n)+n-1)) - g.bytes()
}

func bytesOfRing(size int) int64 { return int64(size)*idBytes + int64(indexSize(size))*2 }

// largestSmallRing is the largest ring that fills a size of small objects of the runtime.
const largestSmallRing = 819

// ringSize returns the size of a ring for n ids. Its memory fills what the runtime allocates.
func ringSize(n int) int {
	if n > largestSmallRing {
		const page = 8192
		return (n*idBytes + page - 1) / page * page / idBytes
	}
	sizes := [...]uint16{
		0, 8, 12, 16, 19, 22, 25, 28, 32, 35, 38, 44, 51, 57, 67, 76, 80, 86, 102, 121, 134, 153, 163, 172, 204,
		236, 256, 272, 307, 339, 358, 409, 460, 476, 512, 544, 614, 681, 716, largestSmallRing,
	}
	i, _ := slices.BinarySearch(sizes[:], uint16(n))
	return int(sizes[i])
}

// largerRing returns the size of a ring that n ids fill, with one more. Small rings grow by the least step, and
// larger ones by an eighth.
func largerRing(n int) int {
	if n < largestSmallRing {
		return ringSize(n + max(1, n/20))
	}
	return ringSize(n + n/8)
}

// byPlace returns the positions of all ids in the order of their places.
func (g *idRing) byPlace() []int {
	if g.used() == 0 {
		return nil
	}
	at := make([]int, 0, g.used())
	for i := range g.n {
		if pos := g.position(g.numberOf(i)); g.ring[pos].state.Time != idGone {
			at = append(at, pos)
		}
	}
	slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(g.ring[a].place, g.ring[b].place) })
	return at
}

// addID adds an id to a partition. It has been counted, and its limit has the number.
func (p *partition) addID(place, lo uint64, state arith.State, number uint16, now limiter.Tick) {
	g := p.table.ring(p)
	p.roomForIDs(1, now)
	g.number = number
	g.push(place, lo, state)
	p.came++
	p.belongsID(lo, 1)
	p.expiresAt(state.Time)
}

// replaceOldest adds an id in place of the oldest, if that is over at now and nothing changes that is counted: one
// tenant has both, and the same node has sent them, if any has. In any other case it reports false.
func (p *partition) replaceOldest(place, lo uint64, state arith.State, from uint8, now limiter.Tick) bool {
	g, of := p.table.ring(p), arith.NameID(p.table.ids.limit)
	if !g.full() || g.from != from || !g.over(now) || arith.LabelOf(g.oldest().lo^of) != arith.LabelOf(lo^of) {
		return false
	}
	g.leave()
	g.push(place, lo, state)
	p.came++
	p.expiresAt(state.Time)
	return true
}

// roomForIDs makes room for n more ids: it drops those that are over, and the ring grows if they are few.
func (p *partition) roomForIDs(n int, now limiter.Tick) {
	g := p.table.ring(p)
	if g.growth(n) == 0 {
		return
	}
	gone, _ := g.drop(now, func(e *idEntry) { p.belongsID(e.lo, -1) })
	p.table.room.unreserveIDs(g.number, int64(gone))
	if free := len(g.ring) - int(g.n); free < n || free <= len(g.ring)/8 {
		p.resizeIDs(largerRing(max(len(g.ring), int(g.n)+n-1)))
	}
}

// popID removes the oldest id of a partition if it is over at now, and reports whether it did.
func (p *partition) popID(now limiter.Tick) bool {
	g := p.table.ring(p)
	if !g.over(now) {
		return false
	}
	p.belongsID(g.oldest().lo, -1)
	g.leave()
	return true
}

func (p *partition) resizeIDs(size int) {
	before := p.table.ring(p).bytes()
	p.table.ring(p).resize(size)
	p.table.room.arena.held.Add(p.table.ring(p).bytes() - before)
}

// sweepIDs drops the ids of a partition that are over, and returns how many and when the first of the
// others ends. A ring that is mostly free shrinks.
func (p *partition) sweepIDs(now limiter.Tick) (dropped int, first limiter.Tick) {
	g := p.table.ring(p)
	dropped, first = g.drop(now, func(e *idEntry) { p.belongsID(e.lo, -1) })
	if size := ringSize(int(g.n + g.n/8)); size*4 <= len(g.ring) || size < len(g.ring) && p.table.room.left() < g.bytes() {
		p.resizeIDs(size)
	}
	p.table.room.unreserveIDs(g.number, int64(dropped))
	return dropped, first
}

// removeID forgets the id at a position.
func (p *partition) removeID(pos int) {
	p.belongsID(p.table.ring(p).ring[pos].lo, -1)
	p.table.ring(p).take(pos)
	p.table.room.unreserveIDs(p.table.ring(p).number, 1)
}
