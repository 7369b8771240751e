package listen

import (
	"net"
	"slices"
	"testing"
	"time"
)

// watchdog is how long these tests wait for what must come.
const watchdog = 30 * time.Second

// headersOf begins a call.
func headersOf(stream uint32) []byte {
	return frameOf(frameHeaders, flagEndHeaders, stream, make([]byte, 120))
}

// A client that reads an answer byte by byte has its time for 16 KiB of it, not for each
// byte.
func TestReadByteByByte(t *testing.T) {
	s := NewWatcher(nil, WatchOptions{Patience: 5 * time.Second, Streams: 10, Most: 1 << 20, Room: new(Room)})
	c := &watchedConn{of: s, streams: map[uint32]*clientStream{}}
	in, out := inbound{c}, outbound{c}
	in.frame(frameHeaders, flagEndHeaders, 1, 0)
	in.part(1, messageOf(0, nil))
	out.part(1, messageOf(3*leastRead, nil))
	stream := c.streams[1]
	for range 5 {
		s.now.Add(1)
		out.part(1, []byte{0})
	}
	if stream.since != 0 {
		t.Errorf("a byte in each tick is taken for progress at tick %d", stream.since)
	}
	out.part(1, make([]byte, leastRead))
	if stream.since != 5 {
		t.Errorf("16 KiB are no progress: the client owes since tick %d", stream.since)
	}
	s.now.Add(1)
	out.part(1, make([]byte, 2*leastRead-5))
	if stream.since != 6 || stream.owed() {
		t.Errorf("the end of the answer is no progress: %+v", stream)
	}
}

// A client that sends without a pause, so that no read ends with a frame, cannot keep a
// reset away either.
func TestResetBetweenFrames(t *testing.T) {
	s := NewWatcher(nil, WatchOptions{Patience: 5 * time.Second, Streams: 10, Most: 1 << 20, Room: new(Room)})
	raw := &memoryConn{in: slices.Concat(headersOf(1), frameOf(frameData, 0, 1, messageOf(100, nil)))}
	c := &watchedConn{Conn: raw, of: s, streams: map[uint32]*clientStream{}}
	s.conns[c] = struct{}{}
	buf := make([]byte, 1<<10)
	if _, err := c.Read(buf); err != nil {
		t.Fatal(err)
	}
	frame := frameOf(6, 0, 0, make([]byte, 128-frameHead)) // which no stream owes
	raw.in = frame[:100]
	if _, err := c.Read(buf); err != nil {
		t.Fatal(err)
	}
	raw.in = slices.Concat(frame[100:], frame[:100])
	for range 6 {
		s.Tick()
	}
	for reads := 0; ; reads++ {
		n, err := c.Read(buf)
		if err != nil || reads > 1 {
			t.Fatalf("after %d reads no reset has come: %v", reads, err)
		}
		if slices.Equal(buf[:n], appendReset(nil, 1)) {
			break
		}
	}
	if n := s.half.Load(); n != 0 || len(c.streams) != 0 {
		t.Errorf("%d streams and %d bytes are left", len(c.streams), n)
	}
}

// TestQuietStreamsAreIdle: a connection whose streams carry nothing may be replaced, so
// open streams do not keep other clients out. With the next message it may not.
func TestQuietStreamsAreIdle(t *testing.T) {
	s := NewWatcher(nil, WatchOptions{Patience: 2 * time.Second, Streams: 4, Most: 1 << 20, Room: new(Room)})
	b := bound(&queue{}, 2, -1, nil)
	inner := &boundedConn{of: b, Conn: &remote{}}
	c := &watchedConn{Conn: inner, of: s, bounded: inner, streams: map[uint32]*clientStream{}}
	s.conns[c] = struct{}{}
	asks := frameOf(frameData, 0, 1, messageOf(3, []byte("abc")))
	c.in.read(append(frameOf(frameHeaders, flagEndHeaders, 1, nil), asks...), inbound{c})
	answer := func() {
		c.out.read(frameOf(frameData, 0, 1, messageOf(2, []byte("ok"))), outbound{c})
	}
	is := func(want bool, when string) {
		t.Helper()
		if got := inner.idle.Load() > 0; got != want {
			t.Errorf("%s: idle is %v", when, got)
		}
	}
	s.Tick()
	is(false, "a message is not answered")
	answer()
	s.Tick()
	s.Tick()
	is(false, "answered two ticks ago")
	s.Tick()
	is(true, "answered three ticks ago")
	if at := inner.idle.Load(); at != 1+1 {
		t.Errorf("idle since tick %d, want 1", at-1)
	}
	c.in.read(asks, inbound{c})
	is(false, "the next message")
	answer()
	for range 3 {
		s.Tick()
	}
	is(true, "answered three ticks ago, again")
	c.in.read(frameOf(frameHeaders, flagEndHeaders, 3, nil), inbound{c})
	is(false, "another stream")
}

// deafConn is a connection whose other end reads nothing.
type deafConn struct {
	net.Conn
	began  chan struct{} // nil: nobody asks
	closed chan struct{}
}

func (c *deafConn) Write([]byte) (int, error) {
	if c.began != nil {
		close(c.began)
	}
	<-c.closed
	return 0, net.ErrClosed
}

func (c *deafConn) Close() error { close(c.closed); return nil }

// A connection on which nothing can be written is closed in time.
func TestDeafConnection(t *testing.T) {
	s := NewWatcher(nil, WatchOptions{Patience: 5 * time.Second, Room: new(Room)})
	began := make(chan struct{})
	c := &watchedConn{Conn: &deafConn{began: began, closed: make(chan struct{})}, of: s,
		streams: map[uint32]*clientStream{}}
	s.conns[c] = struct{}{}
	ended := make(chan error, 1)
	go func() {
		_, err := c.Write([]byte("x"))
		ended <- err
	}()
	<-began
	for range 5 {
		s.Tick()
	}
	if len(s.conns) != 1 {
		t.Fatal("it is closed too soon")
	}
	s.Tick()
	select {
	case <-ended:
	case <-time.After(watchdog):
		t.Fatal("it is still open")
	}
	if len(s.conns) != 0 {
		t.Error("it is still looked at")
	}
}

// A client that reads nothing holds up no tick, though the reset of its stream cannot be
// written. It is closed in time.
func TestDeafToResets(t *testing.T) {
	s := NewWatcher(nil, WatchOptions{Patience: time.Second, Room: new(Room)})
	deaf := &deafConn{closed: make(chan struct{})}
	c := &watchedConn{Conn: deaf, of: s, streams: map[uint32]*clientStream{}, tell: []uint32{1}}
	s.conns[c] = struct{}{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 {
			s.Tick()
		}
	}()
	select {
	case <-done:
	case <-time.After(watchdog):
		t.Fatal("a tick waits for the client")
	}
	select {
	case <-deaf.closed:
	default:
		t.Error("it is still open")
	}
}
