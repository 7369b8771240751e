package resp

import (
	"net/netip"
	"time"

	"github.com/weirlimit/weir/internal/listen"
)

// input is what a client has sent and is not carried out. What it takes above smallBuffer is part of the memory of all
// connections for long commands.
type input struct {
	buf   []byte
	extra int       // capacity above smallBuffer
	half  time.Time // when the incomplete command in buf was first looked at
}

// grow doubles the buffer, within the bound of all connections and the share of the client.
func (in *input) grow(large *listen.Room, from netip.Prefix) error {
	size := min(2*cap(in.buf), maxCommand+smallBuffer)
	more := size - cap(in.buf)
	if more <= 0 {
		return listen.ErrRoom
	}
	if err := large.Take(from, int64(more)); err != nil {
		return err
	}
	in.extra += more
	in.buf = append(make([]byte, 0, size), in.buf...)
	return nil
}

// shrink gives the memory of a long command back.
func (in *input) shrink(large *listen.Room, from netip.Prefix) {
	if len(in.buf) <= smallBuffer {
		in.buf = append(make([]byte, 0, smallBuffer), in.buf...)
		large.Give(from, int64(in.extra))
		in.extra = 0
	}
}
