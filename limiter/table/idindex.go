package table

import "math/bits"

// mostNarrow is the largest ring whose index is not wide: an element has at least 6 bits of a place.
const mostNarrow = 511

// wide reports whether the elements of the index have 32 bits.
func (g *idRing) wide() bool { return len(g.ring) > mostNarrow }

// element returns an element of the index.
func (g *idRing) element(i int, wide bool) uint32 {
	if wide {
		return uint32(g.index[2*i]) | uint32(g.index[2*i+1])<<16
	}
	return uint32(g.index[i])
}

// mask returns the bits of an element of the index that have the number.
func (g *idRing) mask() uint32 { return 1<<bits.Len(2*uint(len(g.ring))) - 1 }

// tag returns the element of the index for a place, without the number.
func (g *idRing) tag(place uint64, wide bool) uint32 {
	if !wide {
		place &= 1<<16 - 1
	}
	return uint32(place) &^ g.mask()
}

// elements returns how many elements the index has.
func (g *idRing) elements(wide bool) int {
	if wide {
		return len(g.index) / 2
	}
	return len(g.index)
}

// home returns where the search for a place starts in the index.
func (g *idRing) home(place uint64, wide bool) int {
	return int(place >> 32 * uint64(g.elements(wide)) >> 32)
}

func (g *idRing) next(i int, wide bool) int {
	if i++; i < g.elements(wide) {
		return i
	}
	return 0
}

// link adds an entry to the index.
func (g *idRing) link(place uint64, number uint32) {
	wide := g.wide()
	i := g.home(place, wide)
	for e := g.element(i, wide); e != 0 && !g.stale(e); e = g.element(i, wide) {
		i = g.next(i, wide)
	}
	e := g.tag(place, wide) | number + 1
	if !wide {
		g.index[i] = uint16(e)
		return
	}
	g.index[2*i], g.index[2*i+1] = uint16(e), uint16(e>>16)
}

// reindex makes the index anew.
func (g *idRing) reindex() {
	clear(g.index)
	for i := range g.n {
		number := g.numberOf(i)
		if e := &g.ring[g.position(number)]; e.state.Time != idGone {
			g.link(e.place, number)
		}
	}
}

// indexSize returns the length of the index of a ring: two elements for each entry. Its memory fills what the
// runtime allocates, or else whole cache lines.
func indexSize(ring int) int {
	switch n := 2 * ring; {
	case n <= 128:
		return (n + 7) &^ 7
	case ring <= mostNarrow:
		return (n + 31) &^ 31
	default:
		return (2*n + 31) &^ 31
	}
}
