package transport

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/certs/certstest"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// watchdog is how long these tests wait for what must come.
const watchdog = 30 * time.Second

// What frames of HTTP/2 have, and in how many ticks a client must reach the end of one where a reset can be inserted,
// as package listen has them.
const (
	frameHead = 9

	frameData, frameHeaders, frameReset = 0, 1, 3

	flagEndStream, flagEndHeaders = 1, 4

	resetPatience = 2
)

// frameOf returns a frame of HTTP/2.
func frameOf(kind, flags byte, stream uint32, payload []byte) []byte {
	out := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(out, stream), payload...)
}

// resetOf returns a frame that resets a stream.
func resetOf(stream uint32) []byte {
	return frameOf(frameReset, 0, stream, binary.BigEndian.AppendUint32(nil, 8))
}

// messageOf returns a gRPC message, whose length field may be wrong.
func messageOf(length int, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(length)), data...)
}

// ticking is a gRPC server that watches its connections, with ticks made by the test.
type ticking struct {
	*listen.Watcher
	t       *testing.T
	service *service
	grpc    *grpc.Server
}

func newTicking(t *testing.T, change func(*Options)) *ticking {
	t.Helper()
	by := &stub{decide: func(_ *limiter.Request, d *limiter.Decision) error { d.Allowed = true; return nil }}
	o := Options{Decider: by, ClientTimeout: 5 * time.Second}
	if change != nil {
		change(&o)
	}
	o, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), "--test-addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &ticking{t: t, service: newService(o)}
	s.Watcher = watcher(l, &o, s.service)
	s.grpc = newGRPC(t.Context(), s.service, o)
	s.grpc.RegisterService(s.service.description(), s.service)
	var served sync.WaitGroup
	served.Go(func() {
		if err := s.grpc.Serve(s.Watcher); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		s.grpc.Stop()
		served.Wait()
		if n := s.Counts(); n.Half != 0 || n.Conns != 0 {
			t.Errorf("%d connections and %d bytes of half messages are still counted", n.Conns, n.Half)
		}
	})
	return s
}

// pass lets ticks pass.
func (s *ticking) pass(ticks int) {
	for range ticks {
		s.Tick()
	}
}

// rawClient speaks HTTP/2 frame by frame.
type rawClient struct {
	net.Conn
	t      *testing.T
	frames chan [2]uint32 // kind and stream of each that came, but for those of no stream
}

// dial opens a connection with a window for each stream.
func (s *ticking) dial(window uint32) *rawClient {
	s.t.Helper()
	return s.dialFrom("127.0.0.1", window)
}

// dialFrom is dial from an address of this machine.
func (s *ticking) dialFrom(address string, window uint32) *rawClient {
	s.t.Helper()
	conn, err := dialFrom(s.t.Context(), address, s.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	if s.Secured {
		conn = tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
			NextProtos: []string{"h2"}}) //nolint:gosec // the server is under test
	}
	c := &rawClient{conn, s.t, make(chan [2]uint32, 1000)}
	s.t.Cleanup(func() { conn.Close() })
	settings := binary.BigEndian.AppendUint32([]byte{0, 4}, window)
	c.send([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frameOf(4, 0, 0, settings))
	go func() {
		defer close(c.frames)
		head := make([]byte, frameHead)
		for {
			if _, err := io.ReadFull(conn, head); err != nil {
				return
			}
			size := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
			if _, err := io.CopyN(io.Discard, conn, size); err != nil {
				return
			}
			if stream := binary.BigEndian.Uint32(head[5:]); stream != 0 {
				c.frames <- [2]uint32{uint32(head[3]), stream}
			}
		}
	}()
	return c
}

func (c *rawClient) send(parts ...[]byte) {
	c.t.Helper()
	if _, err := c.Write(slices.Concat(parts...)); err != nil {
		c.t.Fatal(err)
	}
}

// wants waits for a frame of a stream. Others may come before it.
func (c *rawClient) wants(what string, kind, stream uint32) {
	c.t.Helper()
	late := time.NewTimer(watchdog)
	defer late.Stop()
	for {
		select {
		case f, open := <-c.frames:
			if !open {
				c.t.Fatalf("%s: the connection has ended", what)
			}
			if f == [2]uint32{kind, stream} {
				return
			}
			if f[0] == frameReset {
				c.t.Fatalf("%s: stream %d is reset", what, f[1])
			}
		case <-late.C:
			c.t.Fatalf("%s: it never came", what)
		}
	}
}

// ends waits for the end of the connection.
func (c *rawClient) ends(what string) {
	c.t.Helper()
	late := time.NewTimer(watchdog)
	defer late.Stop()
	for {
		select {
		case _, open := <-c.frames:
			if !open {
				return
			}
		case <-late.C:
			c.t.Fatalf("%s: the connection is still open", what)
		}
	}
}

// headersOf begins a call.
func headersOf(stream uint32, method string) []byte {
	var block []byte
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/weir.v1.Limiter/" + method}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		block = append(block, 0, byte(len(h[0])))
		block = append(block, h[0]...)
		block = append(block, byte(len(h[1])))
		block = append(block, h[1]...)
	}
	return frameOf(frameHeaders, flagEndHeaders, stream, block)
}

// columnsOf asks about one check on a stream.
func columnsOf(t *testing.T, stream uint32) []byte {
	raw, err := proto.Marshal(&weirv1.CheckColumns{Costs: []int64{1}})
	if err != nil {
		t.Fatal(err)
	}
	return frameOf(frameData, 0, stream, messageOf(len(raw), raw))
}

// opened opens the window of a stream.
func opened(stream uint32) []byte {
	return frameOf(8, 0, stream, binary.BigEndian.AppendUint32(nil, someWindow))
}

const someWindow = 1 << 16

// stalled begins something on stream 3 that the client does not finish.
type stalled struct {
	window uint32
	begin  func(t *testing.T, c *rawClient)
}

func allStalled() map[string]stalled {
	half := frameOf(frameData, 0, 3, messageOf(100, []byte("ten bytes.")))
	return map[string]stalled{
		"half a message": {someWindow, func(_ *testing.T, c *rawClient) { c.send(headersOf(3, "Check"), half) }},
		"half a head": {someWindow, func(_ *testing.T, c *rawClient) {
			c.send(headersOf(3, "CheckBatch"), frameOf(frameData, 0, 3, []byte{0, 0}))
		}},
		"no message": {someWindow, func(_ *testing.T, c *rawClient) { c.send(headersOf(3, "CheckStream")) }},
		"an answer that is not read": {0, func(t *testing.T, c *rawClient) {
			c.send(headersOf(3, "Check"), frameOf(frameData, flagEndStream, 3, messageOf(0, nil)))
			c.wants("what needs no window", frameHeaders, 3)
		}},
		"an answer of a stream that is not read": {0, func(t *testing.T, c *rawClient) {
			c.send(headersOf(3, "CheckStream"), columnsOf(t, 3))
			c.wants("what needs no window", frameHeaders, 3)
		}},
		"half a second message of a stream": {someWindow, func(t *testing.T, c *rawClient) {
			c.send(headersOf(3, "CheckStream"), columnsOf(t, 3))
			c.wants("the first answer", frameData, 3)
			c.send(half)
		}},
	}
}

// TestStalledStreams: a stream whose client owes the next step is reset in time, and
// both ends know it. A stream on the same connection that has been idle for as long
// continues, and so do those of another connection.
func TestStalledStreams(t *testing.T) {
	p := certstest.New(t, "clients").Write(t, t.TempDir(), certstest.Leaf{Name: "node"})
	pair, err := tls.LoadX509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	for name, c := range allStalled() {
		t.Run(name, func(t *testing.T) { stalledStream(t, c, nil) })
		t.Run(name+" with TLS", func(t *testing.T) { stalledStream(t, c, &TLS{Config: secure}) })
		t.Run(name+" with TLS that is optional", func(t *testing.T) {
			stalledStream(t, c, &TLS{Config: secure, Optional: true})
		})
	}
}

// stalledStream is TestStalledStreams for one way to stall.
func stalledStream(t *testing.T, c stalled, config *TLS) {
	t.Helper()
	s := newTicking(t, func(o *Options) { o.MaxStreams, o.TLS = 2, config })
	conn := s.dial(c.window)
	conn.send(headersOf(1, "CheckStream"), opened(1), columnsOf(t, 1))
	conn.wants("the honest stream's first answer", frameData, 1)
	c.begin(t, conn)
	conn.send(columnsOf(t, 1)) // what was sent before is read when it is answered
	conn.wants("the honest stream's second answer", frameData, 1)
	s.pass(5)
	conn.send(columnsOf(t, 1))
	conn.wants("within the time", frameData, 1)
	s.pass(1)
	s.resets(conn, 3)
	// The server has forgotten it: there is room for another one.
	conn.send(headersOf(5, "CheckStream"), opened(5), columnsOf(t, 5))
	conn.wants("another stream", frameData, 5)
	conn.send(columnsOf(t, 1))
	conn.wants("the honest stream at the end", frameData, 1)
}

// resets makes ticks until the client receives the reset of a stream, which the server
// gets first.
func (s *ticking) resets(c *rawClient, stream uint32) {
	s.t.Helper()
	for begun := time.Now(); time.Since(begun) < watchdog; {
		s.pass(1)
		switch f, ok := c.next(); {
		case !ok:
		case f == [2]uint32{frameReset, stream}:
			return
		default:
			s.t.Fatalf("got frame %v", f)
		}
	}
	s.t.Fatalf("the client was not told that stream %d is reset", stream)
}

// next returns the next frame if one comes soon.
func (c *rawClient) next() (f [2]uint32, ok bool) {
	select {
	case f, ok = <-c.frames:
		if !ok {
			c.t.Fatal("the connection has ended")
		}
		return f, true
	case <-time.After(10 * time.Millisecond):
		return f, false
	}
}

// A byte now and then does not count: it is the message that must come in time.
func TestTrickle(t *testing.T) {
	s := newTicking(t, nil)
	conn := s.dial(someWindow)
	conn.send(headersOf(1, "Check"), frameOf(frameData, 0, 1, messageOf(100, nil)))
	for i := range 6 {
		seen := s.Counts().Half
		conn.send(frameOf(frameData, 0, 1, []byte{0}))
		for begun := time.Now(); s.Counts().Half == seen && time.Since(begun) < watchdog; { // until it has come
			time.Sleep(time.Millisecond)
		}
		if i < 5 {
			s.pass(1)
		}
	}
	s.pass(1)
	s.resets(conn, 1)
}

// A client that stops in the middle of a frame holds up all streams of its connection,
// which is closed.
func TestStallInAFrame(t *testing.T) {
	s := newTicking(t, nil)
	conn := s.dial(someWindow)
	conn.send(headersOf(1, "Check"), frameOf(frameData, 0, 1, messageOf(100, make([]byte, 50)))[:30])
	for begun := time.Now(); s.Counts().Half == 0 && time.Since(begun) < watchdog; {
		time.Sleep(time.Millisecond)
	}
	s.pass(6 + resetPatience + 1)
	conn.ends("in the middle of a frame")
}

// A client that sends a frame byte by byte leaves no place for a reset. The message stays
// counted as long as the server keeps it, and the connection is closed in time.
func TestTrickleInAFrame(t *testing.T) {
	s := newTicking(t, nil)
	conn := s.dial(someWindow)
	conn.send(headersOf(1, "Check"), frameOf(frameData, 0, 1, messageOf(100, make([]byte, 50)))[:30])
	s.waitHalf(21)
	for range 5 + 1 + resetPatience {
		s.pass(1)
		want := s.Counts().Half + 1
		conn.send([]byte{0})
		s.waitHalf(want)
	}
	if n := s.Counts().Half; n != s.Counts().Ending {
		t.Errorf("%d of %d bytes are to be given up", s.Counts().Ending, n)
	}
	s.pass(1)
	conn.ends("byte by byte")
	for begun := time.Now(); s.Counts().Half > 0 && time.Since(begun) < watchdog; {
		time.Sleep(time.Millisecond)
	}
	if n := s.Counts().Ending; n != 0 {
		t.Errorf("%d bytes are still to be given up", n)
	}
}

// waitHalf waits until at least so many bytes of half messages have come.
func (s *ticking) waitHalf(want int64) {
	s.t.Helper()
	for begun := time.Now(); s.Counts().Half < want; {
		if time.Since(begun) > watchdog {
			s.t.Fatalf("%d bytes of half messages have come, want %d", s.Counts().Half, want)
		}
		time.Sleep(time.Millisecond)
	}
}

// When incomplete messages use too much memory, the largest is given up at once. Others
// continue.
func TestTooManyHalfMessages(t *testing.T) {
	s := newTicking(t, func(o *Options) { o.ClientTimeout, o.MaxDecodingBytes = time.Hour, 10_000 })
	honest := s.dial(someWindow)
	honest.send(headersOf(1, "CheckStream"), columnsOf(t, 1))
	honest.wants("an answer", frameData, 1)
	var conns []*rawClient
	for i, size := range []int{2000, 6000, 3000} {
		conn := s.dial(someWindow)
		conn.send(headersOf(1, "Check"), frameOf(frameData, 0, 1, messageOf(9000, make([]byte, size))))
		conns = append(conns, conn)
		if i < 2 {
			s.waitHalf(int64(size))
		}
	}
	// No tick has passed.
	s.waitFor("the largest is given up", func() bool {
		n := s.Counts().Half
		return n > 5000 && n < 6000 && s.Counts().Ending == 0
	})
	s.resets(conns[1], 1)
	for _, i := range []int{0, 2} {
		if f, ok := conns[i].next(); ok {
			t.Errorf("client %d got frame %v", i, f)
		}
	}
	honest.send(columnsOf(t, 1))
	honest.wants("another answer", frameData, 1)
}

// Messages that were given up and use too much memory, since their clients stay in the
// middle of a frame, end with their connections at once.
func TestTooManyHalfFrames(t *testing.T) {
	s := newTicking(t, func(o *Options) { o.ClientTimeout, o.MaxDecodingBytes = time.Hour, 10_000 })
	frame := slices.Concat(headersOf(1, "Check"), frameOf(frameData, 0, 1, messageOf(15_000, make([]byte, 12_000))))
	first, second := s.dial(someWindow), s.dial(someWindow)
	first.send(frame[:len(frame)-4000])
	s.waitHalf(8000)
	second.send(frame[:len(frame)-4000])
	s.waitFor("one is given up", func() bool { return s.Counts().Ending >= 8000 && s.Counts().Half >= 16_000 })
	third := s.dial(someWindow)
	third.send(frame[:len(frame)-4000])
	s.waitFor("it ends with another one", func() bool { return s.Counts().Ending == 0 && s.Counts().Half < 9000 })
}
