package transport

import (
	"testing"
	"time"
)

// TestThievesOfSmallMessages: a client that sends small messages and reads no answer loses
// streams or its connection before it uses more than the room. Another is answered.
func TestThievesOfSmallMessages(t *testing.T) {
	const streams = 20
	s := newTicking(t, func(o *Options) { o.Decider, o.MaxDecodingBytes = new(counted), 2<<20 })
	thief := s.dialFrom("127.0.0.2", 0)
	for i := range uint32(streams) {
		message := columnsOf(t, 1+2*i)
		part := headersOf(1+2*i, "CheckStream")
		for range 1000 {
			part = append(part, message...)
		}
		if _, err := thief.Write(part); err != nil {
			break // the connection is closed already
		}
	}
	s.waitFor("it loses a stream", func() bool { return s.Counts().Streams < streams })
	honest := s.dialFrom("127.0.0.1", someWindow)
	honest.send(headersOf(1, "CheckStream"), columnsOf(t, 1))
	honest.wants("another client", frameData, 1)
	thief.Close()
	s.waitFor("all room is given back", func() bool { return s.service.room.InUse() == 0 })
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
	if n := s.service.room.InUse(); n > most {
		t.Errorf("%d bytes of room are used, want %d at most", n, most)
	}
	honest.send(columnsOf(t, 1))
	honest.wants("another answer", frameData, 1)
}
