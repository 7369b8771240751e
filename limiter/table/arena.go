package table

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	// arenaFrom is how many blocks of slots a table has before it takes further ones
	// from chunks: 64 MiB, which is more than a processor can address without walking
	// its page tables.
	arenaFrom = 64 << 20 / blockBytes
	// hugePage is the size of a huge page, chunkBytes that of a chunk.
	hugePage   = 2 << 20
	chunkBytes = 8 * hugePage

	blockBytes  = blockSlots * slotBytes
	chunkBlocks = chunkBytes / blockBytes
)

// arena allocates the blocks of slots of a large table from chunks for which the kernel
// is asked to use huge pages, so that random look-ups need fewer page-table walks. The
// blocks of a small table, and the first blocks of a large one, are ordinary memory.
//
// A chunk without used blocks is released to the garbage collector, but one such chunk
// is kept. The methods are safe for concurrent use. A nil arena uses ordinary memory
// only.
type arena struct {
	mu     sync.Mutex
	live   int // used blocks, including those in ordinary memory
	chunks []*chunk
	held   atomic.Int64 // bytes of chunks and of ordinary memory, including smaller blocks
}

// chunk is memory for blocks; it starts at a huge page.
type chunk struct {
	blocks [][blockSlots]slot
	cut    int   // number of blocks used so far
	free   []int // indexes of blocks that are free again; they are not cleared
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

// blocks adds blocks of free slots to others, until they are of so many slots in all.
func (a *arena) blocks(have [][]slot, slots int) [][]slot {
	for len(have)<<blockBits < slots {
		have = append(have, a.block())
	}
	return have
}

// room returns the oldest chunk with a free block, so that younger chunks can become
// entirely free.
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

// release takes back blocks that are no longer in use.
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

// find returns the chunk of a block and the block's index in it; at is -1 for ordinary
// memory.
func (a *arena) find(b []slot) (at, n int) {
	for i, c := range a.chunks {
		if n, ours := c.index(b); ours {
			return i, n
		}
	}
	return -1, 0
}

// ordinary counts further slots in ordinary memory.
func (a *arena) ordinary(slots int) {
	if a != nil {
		a.held.Add(int64(slots) * slotBytes)
	}
}

// drop releases chunk i, which has no used block, if another such chunk exists.
func (a *arena) drop(i int) {
	for j, c := range a.chunks {
		if j != i && c.used() == 0 {
			a.chunks = append(a.chunks[:i], a.chunks[i+1:]...)
			a.held.Add(-chunkBytes)
			return
		}
	}
}

// newChunk returns memory that starts at a huge page. The memory before that is never
// touched, so it uses no physical memory.
func newChunk() *chunk {
	memory := make([]byte, chunkBytes+hugePage)
	start := unsafe.Pointer(unsafe.SliceData(memory))
	before := -uintptr(start) & (hugePage - 1)
	start = unsafe.Add(start, before)
	preferHuge(unsafe.Slice((*byte)(start), chunkBytes))
	return &chunk{blocks: unsafe.Slice((*[blockSlots]slot)(start), chunkBlocks)}
}

// index returns the index of a block in the chunk.
func (c *chunk) index(b []slot) (n int, ours bool) {
	from := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(c.blocks)))
	if from >= uintptr(len(c.blocks))*blockBytes {
		return 0, false
	}
	return int(from / blockBytes), true
}
