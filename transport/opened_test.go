package transport

import (
	"testing"
	"time"
)

// Calls without a message, and header fields, take room as unread messages do. A message gives back what any
// call takes before it, and the end of the call the rest.
func TestOpenCallsTakeRoom(t *testing.T) {
	const many = 12 << 10
	c, s := unreadConn(t, 64<<20)
	id := func(i int) uint32 { return uint32(2*i + 1) }
	for i := range 10 {
		c.in.read(frameOf(frameHeaders, 0, id(i), make([]byte, many-100)), inbound{c})
		c.in.read(frameOf(frameContinuation, flagEndHeaders, id(i), make([]byte, 100)), inbound{c})
	}
	if want := int64(10 * (openWeight + weightOfByte*many)); c.unsent.loose != want || s.room.inUse() != stepsOf(want-freeOfConn) {
		t.Errorf("10 open calls: %d bytes are counted, and %d of room used, want %d", c.unsent.loose, s.room.inUse(), want)
	}
	half, rest := messageOf(4, []byte("ab")), []byte("cd")
	for i := range 10 {
		c.in.read(frameOf(frameData, 0, id(i), half), inbound{c})
	}
	if want := int64(10 * (openWeight + weightOfByte*many)); c.unsent.loose != want {
		t.Errorf("with half a message each: %d bytes are counted, want %d", c.unsent.loose, want)
	}
	for i := range 10 {
		c.in.read(frameOf(frameData, 0, id(i), rest), inbound{c})
	}
	if want := int64(10 * weightOfByte * many); c.unsent.loose != want {
		t.Errorf("with a message each: %d bytes are counted, want %d", c.unsent.loose, want)
	}
	for i := range 10 {
		c.in.read(appendReset(nil, id(i)), inbound{c})
	}
	if c.unsent.loose != 0 || s.room.inUse() != 0 {
		t.Errorf("all have ended: %d bytes are counted, and %d of room used", c.unsent.loose, s.room.inUse())
	}
}

// Without room for what a caller opens, its calls are reset, and its connection is closed if that is not enough.
func TestOpenCallsHaveABound(t *testing.T) {
	const most = 256 << 10
	c, s := unreadConn(t, most)
	for i := range 10 {
		c.in.read(frameOf(frameHeaders, flagEndHeaders, uint32(2*i+1), make([]byte, 14<<10)), inbound{c})
	}
	if n := s.room.inUse(); n > most || !c.greedy || len(c.reset) == 0 {
		t.Errorf("%d bytes of room are used of %d, %d calls are to be reset, to be closed: %v", n, most, len(c.reset), c.greedy)
	}
}

// Whoever opens many calls and sends no message does not keep others out: beyond the bound its connections are
// closed.
func TestOpenCallsOfAStranger(t *testing.T) {
	const most = 1 << 20
	s := newTicking(t, func(o *Options) { o.ClientTimeout, o.MaxDecodingBytes = time.Hour, most })
	honest := s.dial(someWindow)
	honest.send(headersOf(1, "CheckStream"), columnsOf(t, 1))
	honest.wants("an answer", frameData, 1)
	var conns []*rawClient
	for range 3 { // 99 calls take more than 8 * 99 KiB
		conn := s.dial(someWindow)
		var calls [][]byte
		for i := range uint32(99) {
			calls = append(calls, headersOf(2*i+1, "Check"))
		}
		conn.send(calls...) // at once: the connection may end before the last of them is read
		conns = append(conns, conn)
	}
	conns[1].ends("the second connection")
	conns[2].ends("the third connection")
	if n := s.service.room.inUse(); n > most {
		t.Errorf("%d bytes of room are used, want %d at most", n, most)
	}
	honest.send(columnsOf(t, 1))
	honest.wants("another answer", frameData, 1)
}
