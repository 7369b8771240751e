package listen

import (
	"slices"
	"sync"
)

// Buffers pools buffers of large replies, which gRPC returns after sending. It
// does not return small ones. The zero value is empty.
type Buffers struct{ pool sync.Pool }

// Get implements [mem.BufferPool]. The buffer has the given length.
func (p *Buffers) Get(length int) *[]byte {
	b := p.Empty()
	if cap(*b) < length {
		*b = make([]byte, length)
	}
	*b = (*b)[:length]
	return b
}

// Put implements [mem.BufferPool].
func (p *Buffers) Put(b *[]byte) {
	if cap(*b) <= maxKeptBuffer {
		p.pool.Put(b)
	}
}

// trim returns a buffer with the content of b that is not much larger than that, so that
// a small answer does not keep a large buffer while the client reads it.
func (p *Buffers) trim(b *[]byte) *[]byte {
	if cap(*b) <= max(smallBuffer, 2*len(*b)) {
		return b
	}
	exact := slices.Clone(*b)
	p.Put(b)
	return &exact
}

// smallBuffer is a capacity that is not worth a smaller copy.
const smallBuffer = 4 << 10

// maxKeptBuffer is the largest capacity of a pooled buffer.
const maxKeptBuffer = 1 << 20

// Empty returns a buffer of length 0.
func (p *Buffers) Empty() *[]byte {
	b, _ := p.pool.Get().(*[]byte)
	if b == nil {
		b = new([]byte)
	}
	*b = (*b)[:0]
	return b
}
