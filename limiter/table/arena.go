package table

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	// arenaFrom is how many blocks of slots a table has before it takes more from
	// chunks: 64 MiB, which is more than a processor reaches without walking its
	// page tables.
	arenaFrom = 64 << 20 / blockBytes
	// hugePage is the size of a large page, and chunkBytes that of a chunk.
	hugePage   = 2 << 20
	chunkBytes = 8 * hugePage

	blockBytes  = blockSlots * slotBytes
	chunkBlocks = chunkBytes / blockBytes
)

// arena is where a large table has its blocks of slots: in chunks for which the
// kernel is asked to use large pages, so that a look-up at random does not have to
// find its page first. The blocks of a small table are memory like any other, and so
// are the first ones of a large table.
//
// A chunk of which no block is used is given to the collector, but for one. Its
// methods are safe for concurrent use; a nil arena has ordinary memory only.
type arena struct {
	mu     sync.Mutex
	live   int // blocks in use, those of ordinary memory included
	chunks []*chunk
	held   atomic.Int64 // bytes of chunks and of ordinary memory, also of blocks that are no whole ones
}

// chunk is memory for blocks, which begins with a large page.
type chunk struct {
	blocks [][blockSlots]slot
	cut    int   // how many have been used
	free   []int // which of them are free again; they are not cleared
}

func (c *chunk) used() int { return c.cut - len(c.free) }

// block returns a block of free slots.
func (a *arena) block() []slot {
	if a == nil {
		return make([]slot, blockSlots)
	}
	a.mu.Lock()
	a.live++
	if a.live <= arenaFrom {
		a.mu.Unlock()
		a.ordinary(blockSlots)
		return make([]slot, blockSlots)
	}
	c := a.room()
	if last := len(c.free) - 1; last >= 0 {
		b := c.blocks[c.free[last]][:]
		c.free = c.free[:last]
		a.mu.Unlock()
		clear(b)
		return b
	}
	b := c.blocks[c.cut][:]
	c.cut++
	a.mu.Unlock()
	return b
}

// room returns the oldest chunk that has a free block, so that the youngest may
// become free altogether.
func (a *arena) room() *chunk {
	for _, c := range a.chunks {
		if c.used() < len(c.blocks) {
			return c
		}
	}
	c := newChunk()
	a.held.Add(chunkBytes)
	a.chunks = append(a.chunks, c)
	return c
}

// release takes blocks back that nobody uses any more.
func (a *arena) release(blocks [][]slot) {
	if a == nil || len(blocks) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range blocks {
		a.live--
		at, n := a.find(b)
		if at < 0 {
			a.ordinary(-len(b))
			continue
		}
		c := a.chunks[at]
		c.free = append(c.free, n)
		if c.used() == 0 {
			a.drop(at)
		}
	}
}

// find returns which chunk a block is of, and its number there; -1 for one of ordinary
// memory.
func (a *arena) find(b []slot) (at, n int) {
	for i, c := range a.chunks {
		if n, ours := c.index(b); ours {
			return i, n
		}
	}
	return -1, 0
}

// ordinary counts so many slots more of ordinary memory.
func (a *arena) ordinary(slots int) {
	if a != nil {
		a.held.Add(int64(slots) * slotBytes)
	}
}

// drop lets go of chunk i, which is free, if there is another.
func (a *arena) drop(i int) {
	for j, c := range a.chunks {
		if j != i && c.used() == 0 {
			a.chunks = append(a.chunks[:i], a.chunks[i+1:]...)
			a.held.Add(-chunkBytes)
			return
		}
	}
}

// newChunk returns memory that begins with a large page. What lies before it is
// never touched, and so never in use.
func newChunk() *chunk {
	memory := make([]byte, chunkBytes+hugePage)
	start := unsafe.Pointer(unsafe.SliceData(memory))
	before := -uintptr(start) & (hugePage - 1)
	start = unsafe.Add(start, before)
	preferHuge(unsafe.Slice((*byte)(start), chunkBytes))
	return &chunk{blocks: unsafe.Slice((*[blockSlots]slot)(start), chunkBlocks)}
}

// index returns which of its blocks a block is.
func (c *chunk) index(b []slot) (n int, ours bool) {
	from := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(c.blocks)))
	if from >= uintptr(len(c.blocks))*blockBytes {
		return 0, false
	}
	return int(from / blockBytes), true
}
