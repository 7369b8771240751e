package table

import (
	"sync"
	"sync/atomic"
)

// slab keeps the words of logs and sub-windows in blocks of 4 to 2^20 words,
// each a power of two. Blocks of 8 and more begin with a cache line. Small blocks are cut from chunks, a large one is a chunk
// of its own. Taking and giving back blocks takes the slab's lock; reading one
// takes none, but that of the partition whose slot refers to it.
type slab struct {
	mu     sync.Mutex
	chunks atomic.Pointer[[][]uint64]
	free   [slabClasses][]uint32 // references
	spare  []uint32              // chunks given back
	cut    uint32                // the next unit of the last chunk for small blocks
	words  int                   // in all chunks
}

// A reference is the number of a unit of 4 words, counted through all chunks
// as if each were chunkUnits long; 0 is no block.
const (
	unitWords   = 4
	lineUnits   = 2 // a cache line of 64 bytes
	chunkBits   = 12
	chunkUnits  = 1 << chunkBits
	chunkWords  = chunkUnits * unitWords
	slabClasses = 19
)

func classWords(class uint8) int { return unitWords << class }

func classFor(words int) uint8 {
	class := uint8(0)
	for classWords(class) < words {
		class++
	}
	return class
}

// block returns the words of a reference, nil for 0.
func (s *slab) block(ref uint32, class uint8) []uint64 {
	if ref == 0 {
		return nil
	}
	from, n := int(ref&(chunkUnits-1))*unitWords, classWords(class)
	return (*s.chunks.Load())[ref>>chunkBits][from : from+n : from+n]
}

// get returns a block of at least so many words, all zero.
func (s *slab) get(words int) (ref uint32, class uint8) {
	class = classFor(words)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free[class]); n > 0 {
		ref = s.free[class][n-1]
		s.free[class] = s.free[class][:n-1]
		clear(s.block(ref, class))
		return ref, class
	}
	if classWords(class) > chunkWords/2 {
		return s.newChunk(classWords(class)) << chunkBits, class
	}
	units := uint32(1) << class
	if units >= lineUnits && s.cut%lineUnits != 0 {
		s.free[0] = append(s.free[0], s.cut) // the half of a line that is left
		s.cut++
		if s.cut&(chunkUnits-1) == 0 {
			s.cut = 0
		}
	}
	if s.cut&(chunkUnits-1)+units > chunkUnits || s.cut == 0 {
		s.cut = s.newChunk(chunkWords) << chunkBits
	}
	ref = s.cut
	if s.cut += units; s.cut&(chunkUnits-1) == 0 {
		s.cut = 0 // the chunk is used up
	}
	return ref, class
}

// put gives a block back. A large one goes to the collector.
func (s *slab) put(ref uint32, class uint8) {
	if ref == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if classWords(class) <= chunkWords/2 {
		s.free[class] = append(s.free[class], ref)
		return
	}
	chunks := *s.chunks.Load()
	s.words -= len(chunks[ref>>chunkBits])
	chunks[ref>>chunkBits] = nil
	s.spare = append(s.spare, ref>>chunkBits)
}

// newChunk returns the number of a new chunk. Chunk 0 is never used, so that no
// reference is 0.
func (s *slab) newChunk(words int) uint32 {
	s.words += words
	var have [][]uint64
	if p := s.chunks.Load(); p != nil {
		have = *p
	}
	if n := len(s.spare); n > 0 {
		i := s.spare[n-1]
		s.spare = s.spare[:n-1]
		have[i] = make([]uint64, words)
		return i
	}
	if len(have) == 0 {
		have = append(have, nil)
	}
	have = append(have, make([]uint64, words))
	s.chunks.Store(&have)
	return uint32(len(have) - 1)
}

// bytes returns the memory of all chunks.
func (s *slab) bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.words) * 8
}
