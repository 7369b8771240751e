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
	from  netip.Prefix // of the client
	extra int          // capacity above smallBuffer
	half  time.Time    // when the incomplete command in buf was first looked at
}

// grow doubles the buffer, within the bound of all connections and the share of the client.
func (in *input) grow(large *listen.Room) error {
	size := min(2*cap(in.buf), maxCommand+smallBuffer)
	more := size - cap(in.buf)
	if more <= 0 {
		return listen.ErrRoom
	}
	if err := large.Take(in.from, int64(more)); err != nil {
		return err
	}
	in.extra += more
	in.buf = append(make([]byte, 0, size), in.buf...)
	return nil
}

// shrink gives the memory of a long command back.
func (in *input) shrink(large *listen.Room) {
	if in.extra > 0 && len(in.buf) <= smallBuffer {
		in.buf = append(make([]byte, 0, smallBuffer), in.buf...)
		large.Give(in.from, int64(in.extra))
		in.extra = 0
	}
}
