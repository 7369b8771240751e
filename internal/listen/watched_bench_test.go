package listen

import (
	"encoding/binary"
	"net"
	"slices"
	"testing"
	"time"
)

// memoryConn is a connection that has always the same to read and takes what is written.
type memoryConn struct {
	net.Conn
	in []byte
}

func (c *memoryConn) Read(p []byte) (int, error)  { return copy(p, c.in), nil }
func (c *memoryConn) Write(p []byte) (int, error) { return len(p), nil }
func (c *memoryConn) Close() error                { return nil }

// BenchmarkWatched is what it costs to watch one call with one answer: a few hundred
// nanoseconds at most, where a call takes tens of microseconds.
func BenchmarkWatched(b *testing.B) {
	s := NewWatcher(nil, WatchOptions{Patience: time.Minute, Streams: 100, Room: new(Room)})
	raw := &memoryConn{}
	c := &watchedConn{Conn: raw, of: s, streams: map[uint32]*clientStream{}}
	raw.in = slices.Concat(frameOf(frameHeaders, flagEndHeaders, 1, make([]byte, 60)),
		frameOf(frameData, flagEndStream, 1, messageOf(20, make([]byte, 20))))
	out := slices.Concat(frameOf(frameHeaders, flagEndHeaders, 1, make([]byte, 20)),
		frameOf(frameData, 0, 1, messageOf(150, make([]byte, 150))),
		frameOf(frameHeaders, flagEndHeaders|flagEndStream, 1, make([]byte, 10)))
	buf := make([]byte, 32<<10)
	id := uint32(1)
	b.ReportAllocs()
	for b.Loop() {
		id += 2
		for _, at := range []int{5, 74} {
			binary.BigEndian.PutUint32(raw.in[at:], id)
		}
		for _, at := range []int{5, 34, 198} {
			binary.BigEndian.PutUint32(out[at:], id)
		}
		if _, err := c.Read(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Write(out); err != nil {
			b.Fatal(err)
		}
	}
	if len(c.streams) != 0 {
		b.Fatalf("%d streams are left", len(c.streams))
	}
}
