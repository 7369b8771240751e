package resp

import (
	"sync/atomic"
	"time"
)

// input is what a client has sent and is not carried out. What it takes above smallBuffer is part of large, the
// memory of all connections for long commands.
type input struct {
	buf   []byte
	extra int       // capacity above smallBuffer
	half  time.Time // when the incomplete command in buf was first looked at
}

// grow doubles the buffer, within the bound of all connections.
func (in *input) grow(large *atomic.Int64) bool {
	size := min(2*cap(in.buf), maxCommand+smallBuffer)
	more := size - cap(in.buf)
	if more <= 0 || large.Add(int64(more)) > maxLarge {
		large.Add(-int64(max(more, 0)))
		return false
	}
	in.extra += more
	in.buf = append(make([]byte, 0, size), in.buf...)
	return true
}

// shrink gives the memory of a long command back.
func (in *input) shrink(large *atomic.Int64) {
	if in.extra > 0 && len(in.buf) <= smallBuffer {
		in.buf = append(make([]byte, 0, smallBuffer), in.buf...)
		large.Add(-int64(in.extra))
		in.extra = 0
	}
}
