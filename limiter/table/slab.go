package table

import (
	"sync"
	"sync/atomic"
)

// slab allocates the words of logs and sub-windows in blocks of 4 to 2^20 words, each a
// power of two. Small blocks are cut from chunks, with blocks of one size in each
// chunk; a large block is a chunk of its own. A chunk without used blocks is released
// to the garbage collector, but one such chunk of each size is kept. Blocks of 8 words
// and more start at a cache line.
//
// Allocating and releasing blocks takes the slab's lock. Reading a block takes only the
// lock of the partition whose slot refers to it.
type slab struct {
	mu     sync.Mutex
	chunks atomic.Pointer[[][]uint64]
	about  []chunkInfo           // by chunk
	open   [slabClasses][]uint32 // chunks with a free block, by size
	spare  []uint32              // numbers of released chunks
	held   atomic.Int64          // bytes of all chunks
}

// chunkInfo is the state of a chunk of small blocks.
type chunkInfo struct {
	free   uint32 // 1 + the index of its first free block, whose first word has the next; 0: none
	cut    uint32 // number of blocks used at least once
	used   uint32 // number of used blocks
	opened int    // its index in the list of chunks with a free block, if it has one
}

// A reference is the index of a unit of 4 words, counted over all chunks as if each had
// chunkUnits units; 0 means no block.
const (
	unitWords   = 4
	chunkBits   = 12
	chunkUnits  = 1 << chunkBits
	chunkWords  = chunkUnits * unitWords
	slabClasses = 19
	mostChunks  = 1 << (32 - chunkBits)

	wordBytes = 8
)

func classWords(class uint8) int { return unitWords << class }

func classFor(words int) uint8 {
	class := uint8(0)
	for classWords(class) < words {
		class++
	}
	return class
}

// blockBytesFor returns the bytes of a block of at least so many words.
func blockBytesFor(words int) int64 { return int64(classWords(classFor(words))) * wordBytes }

// block returns the words of a reference, nil for 0.
func (s *slab) block(ref uint32, class uint8) []uint64 {
	if ref == 0 {
		return nil
	}
	from, n := int(ref&(chunkUnits-1))*unitWords, classWords(class)
	return (*s.chunks.Load())[ref>>chunkBits][from : from+n : from+n]
}

// numbers returns how many further chunks can be numbered, whatever their memory.
func (s *slab) numbers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := 1 // chunk 0
	if p := s.chunks.Load(); p != nil {
		have = len(*p)
	}
	return mostChunks - have + len(s.spare)
}

// fits reports whether get would succeed.
func (s *slab) fits(words int, left int64) bool {
	class := classFor(words)
	s.mu.Lock()
	defer s.mu.Unlock()
	return classWords(class) <= chunkWords/2 && len(s.open[class]) > 0 ||
		int64(max(chunkWords, classWords(class)))*wordBytes <= left
}

// get returns a zeroed block of at least so many words. If that would take more than
// left bytes of new memory, ok is false.
func (s *slab) get(words int, left int64) (ref uint32, class uint8, ok bool) {
	class = classFor(words)
	s.mu.Lock()
	defer s.mu.Unlock()
	if classWords(class) > chunkWords/2 {
		n, ok := s.newChunk(classWords(class), left)
		return n << chunkBits, class, ok
	}
	if len(s.open[class]) == 0 {
		n, ok := s.newChunk(chunkWords, left)
		if !ok {
			return 0, 0, false
		}
		s.about[n] = chunkInfo{}
		s.reopen(class, n)
	}
	n := s.open[class][0]
	c := &s.about[n]
	at := c.cut // its index in the chunk
	if c.free != 0 {
		at = c.free - 1
	} else {
		c.cut++
	}
	ref = n<<chunkBits | at<<class
	b := s.block(ref, class)
	if c.free != 0 {
		c.free = uint32(b[0])
		clear(b)
	}
	if c.used++; c.used == chunkUnits>>class {
		s.close(class, n)
	}
	return ref, class, true
}

// put releases a block. A large one is left to the garbage collector.
func (s *slab) put(ref uint32, class uint8) {
	if ref == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := ref >> chunkBits
	if classWords(class) > chunkWords/2 {
		s.drop(n)
		return
	}
	c := &s.about[n]
	if c.used == chunkUnits>>class {
		s.reopen(class, n)
	}
	s.block(ref, class)[0] = uint64(c.free)
	c.free = 1 + ref&(chunkUnits-1)>>class
	if c.used--; c.used == 0 && len(s.open[class]) > 1 {
		s.close(class, n)
		s.drop(n)
	}
}

// reopen adds a chunk to the list of those with a free block.
func (s *slab) reopen(class uint8, n uint32) {
	s.about[n].opened = len(s.open[class])
	s.open[class] = append(s.open[class], n)
}

// close removes a chunk from that list.
func (s *slab) close(class uint8, n uint32) {
	list, at := s.open[class], s.about[n].opened
	last := list[len(list)-1]
	list[at], s.about[last].opened = last, at
	s.open[class] = list[:len(list)-1]
}

// newChunk returns the number of a new chunk. Chunk 0 is never used, so no reference is
// 0.
func (s *slab) newChunk(words int, left int64) (uint32, bool) {
	bytes := int64(words) * wordBytes
	if bytes > left {
		return 0, false
	}
	var have [][]uint64
	if p := s.chunks.Load(); p != nil {
		have = *p
	}
	if n := len(s.spare); n > 0 {
		i := s.spare[n-1]
		s.spare = s.spare[:n-1]
		s.held.Add(bytes)
		have[i] = make([]uint64, words)
		return i, true
	}
	if len(have) == mostChunks {
		return 0, false
	}
	if len(have) == 0 {
		have, s.about = append(have, nil), append(s.about, chunkInfo{})
	}
	s.held.Add(bytes)
	have, s.about = append(have, make([]uint64, words)), append(s.about, chunkInfo{})
	s.chunks.Store(&have)
	return uint32(len(have) - 1), true
}

// drop releases a chunk to the garbage collector.
func (s *slab) drop(n uint32) {
	chunks := *s.chunks.Load()
	s.held.Add(-int64(len(chunks[n])) * wordBytes)
	chunks[n] = nil
	s.spare = append(s.spare, n)
}

// bytes returns the memory of all chunks.
func (s *slab) bytes() int64 { return s.held.Load() }
