package listen

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"net"
	"os"
	"time"
)

func (c *watchedConn) RemoteAddr() net.Addr { return connAddr{c.Conn.RemoteAddr(), c} }

func (c *watchedConn) Read(p []byte) (int, error) {
	for {
		most := len(p)
		if c.resets.Load() {
			var n int
			if n, most = c.takeReset(p); n > 0 {
				return n, nil
			}
		}
		n, err := c.Conn.Read(p[:most])
		c.mu.Lock()
		c.in.read(p[:n], inbound{c})
		greedy := c.greedy
		again := n == 0 && c.woken && errors.Is(err, os.ErrDeadlineExceeded)
		if again {
			c.woken = false
			err = c.Conn.SetReadDeadline(time.Time{})
			again = err == nil
		}
		c.mu.Unlock()
		if greedy {
			_ = c.Close() // the next Read returns an error
		}
		if c.of.tooMuch() {
			c.of.relieve()
		}
		if !again {
			return n, err
		}
	}
}

// takeReset writes into p a frame that resets a stream, as if the client had sent it,
// and returns its length. If there is none to write, it returns how many bytes of p may
// be read: no more than the present frame has while a reset waits for its end.
func (c *watchedConn) takeReset(p []byte) (n, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.reset) == 0 || len(p) < resetFrame {
		return 0, len(p)
	}
	if !c.in.between() {
		return 0, min(len(p), c.in.rest())
	}
	stream := c.reset[0]
	c.reset = c.reset[1:]
	c.resets.Store(len(c.reset) > 0)
	c.forget(stream)
	c.tell = append(c.tell, stream)
	return len(appendReset(p[:0], stream)), 0
}

const (
	resetFrame = frameHead + 4
	cancelCode = 8
)

func appendReset(dst []byte, stream uint32) []byte {
	dst = append(dst, 0, 0, 4, frameReset, 0)
	dst = binary.BigEndian.AppendUint32(dst, stream)
	return binary.BigEndian.AppendUint32(dst, cancelCode)
}

func (c *watchedConn) Write(p []byte) (int, error) {
	c.outMu.Lock()
	defer c.outMu.Unlock()
	c.writing.Store(1 + c.of.now.Load())
	n, err := c.Conn.Write(p)
	c.writing.Store(0)
	c.mu.Lock()
	c.out.read(p[:n], outbound{c})
	c.mu.Unlock()
	return n, err
}

func (c *watchedConn) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		for id := range c.streams {
			c.forget(id)
		}
	}
	c.mu.Unlock()
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// look resets streams whose client has owed the next step for too long. If no stream has
// carried anything for that long, the connection counts as idle.
func (c *watchedConn) look(now, patience int64) {
	if w := c.writing.Load(); w > 0 && now-(w-1) > patience {
		_ = c.Close() // nothing is read at the other end; users of the connection get an error
		return
	}
	c.mu.Lock()
	told := c.tell
	c.tell = nil
	quiet, since := len(c.streams) > 0, int64(0)
	for id, s := range c.streams {
		if !s.ending && s.owed() && now-s.since > patience {
			c.end(id, s)
		}
		quiet, since = quiet && !s.owed(), max(since, s.since)
	}
	if quiet && now-since > patience && c.bounded != nil {
		c.bounded.rest(since) // or its streams could keep others out of the listener
	}
	stuck := len(c.reset) > 0 && now-c.asked > resetPatience
	c.wake()
	c.mu.Unlock()
	switch {
	case stuck: // no frame can be inserted before the present one ends, whatever is sent of it
		_ = c.Close()
	case len(told) > 0:
		c.tellReset(told)
	}
}

// tellReset sends resets for streams that the server has closed by now. If a write is
// under way, or a frame is not complete, the next tick tries again. It does not wait for
// the client.
func (c *watchedConn) tellReset(streams []uint32) {
	if !c.outMu.TryLock() {
		c.tellLater(streams)
		return
	}
	c.mu.Lock()
	between := c.out.between()
	c.mu.Unlock()
	if !between {
		c.outMu.Unlock()
		c.tellLater(streams)
		return
	}
	var b []byte
	for _, id := range streams {
		b = appendReset(b, id)
	}
	c.writing.Store(1 + c.of.now.Load())
	go func() { // a client that reads nothing must not hold up the ticks, which end it
		defer c.outMu.Unlock()
		_, _ = c.Conn.Write(b) // the next read or write returns the error
		c.writing.Store(0)
	}()
}

// maxTold bounds the streams of which a client is still to be told. It need not be: what it
// asks of the others is not answered.
const maxTold = 1000

// tellLater makes the next tick tell the client of streams.
func (c *watchedConn) tellLater(streams []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if room := maxTold - len(c.tell); room > 0 {
		c.tell = append(c.tell, streams[:min(len(streams), room)]...)
	}
}

// begin returns the memory for a new stream. The lock is held.
func (c *watchedConn) begin() *clientStream {
	var s *clientStream
	if n := len(c.free) - 1; n >= 0 {
		s, c.free = c.free[n], c.free[:n]
	} else {
		s = new(clientStream)
	}
	*s = clientStream{since: c.of.now.Load()}
	if c.bounded != nil {
		c.bounded.work(c.of.now.Load())
	}
	return s
}

// forget removes a stream that has ended. The lock is held.
func (c *watchedConn) forget(id uint32) {
	if s, ok := c.streams[id]; ok {
		c.count(s, 0)
		c.drop(s)
		delete(c.streams, id)
		if s.answers == 0 { // otherwise gRPC may return them yet
			c.free = append(c.free, s)
		}
		if len(c.streams) == 0 && c.bounded != nil {
			c.bounded.rest(c.of.now.Load())
		}
	}
}

// inbound receives what a client sends, outbound what is sent to it. The lock is held.
type (
	inbound  struct{ *watchedConn }
	outbound struct{ *watchedConn }
)

func (c inbound) frame(kind, flags byte, id uint32, size int) {
	switch kind {
	case frameHeaders:
		if _, known := c.streams[id]; !known && !c.closed && len(c.streams) < 2*c.of.Streams {
			c.streams[id] = c.begin()
		}
		c.open(id, size, flags)
	case frameContinuation:
		c.open(id, size, 0)
	case frameData:
		c.open(id, 0, flags)
	case frameReset:
		c.forget(id)
	}
}

func (c inbound) part(id uint32, data []byte) {
	s := c.streams[id]
	if s == nil {
		return
	}
	if !s.owed() {
		s.since = c.of.now.Load()
		if c.bounded != nil {
			c.bounded.work(c.of.now.Load())
		}
	}
	before := s.in.begun
	s.in.read(data)
	if s.in.begun != before {
		s.frames = 0
	}
	if !c.unread(s, len(data), s.in.begun-before) || !c.opening(s) {
		c.greedy = true
	}
	s.frames++
	half := 0
	if s.in.half() {
		half = s.in.got + s.frames*frameWeight
	}
	if half != s.half {
		c.count(s, half)
	}
}

// count sets the memory of the incomplete message of a stream. The lock is held.
func (c *watchedConn) count(s *clientStream, half int) {
	more := int64(half - s.half)
	s.half = half
	c.of.half.Add(more)
	if s.ending {
		c.of.ending.Add(more)
	}
}

func (c outbound) frame(kind, flags byte, id uint32, _ int) {
	if kind == frameReset || flags&flagEndStream != 0 && (kind == frameHeaders || kind == frameData) {
		c.forget(id)
	}
}

func (c outbound) part(id uint32, data []byte) {
	s := c.streams[id]
	if s == nil {
		return
	}
	s.out.read(data)
	s.sent += len(data)
	if !c.opening(s) {
		c.greedy = true
	}
	c.progress(s)
}

// progress notes how far a stream is. The lock is held.
func (c *watchedConn) progress(s *clientStream) {
	all := s.done() >= s.mark && !s.out.half() // those that were asked for at the last progress
	if all || s.sent >= leastRead {            // there is progress
		s.since, s.sent = c.of.now.Load(), 0
		if c.bounded != nil {
			c.bounded.work(s.since)
		}
	}
	if all {
		c.answered(s)
	}
}

// tooMuch reports whether incomplete messages use too much memory, or those that were
// given up do, because their streams could not be reset yet.
func (s *Watcher) tooMuch() bool {
	ending := s.ending.Load()
	return s.half.Load()-ending > s.Most || ending > s.Most
}

// relieve gives up the largest incomplete messages, to a factor of two, until the rest
// uses at most 7/8 of the bound. So it is not called again soon. If those that were
// given up use too much, their connections that are within a frame are closed, since no
// reset can be inserted there. One goroutine does this at a time; others do not wait for it.
func (s *Watcher) relieve() {
	if !s.relieving.TryLock() {
		return
	}
	defer s.relieving.Unlock()
	all := s.all()
	excess := int(s.half.Load() - s.ending.Load() - s.Most/8*7)
	var bytes [64]int // of incomplete messages by the number of bits of their size
	if excess > 0 {
		for _, c := range all {
			c.eachHalf(func(_ uint32, s *clientStream) { bytes[bits.Len(uint(s.half))] += s.half })
		}
	}
	for size := len(bytes) - 1; size > 0 && excess > 0; size-- {
		if bytes[size] == 0 {
			continue
		}
		for _, c := range all {
			c.eachHalf(func(id uint32, s *clientStream) {
				if excess > 0 && bits.Len(uint(s.half)) >= size {
					excess -= s.half
					c.end(id, s)
				}
			})
		}
	}
	if s.ending.Load() > s.Most {
		for _, c := range all {
			if c.stuck() {
				_ = c.Close()
			}
		}
	}
}

// open adds so many bytes of header fields to a stream, if it is known, and notes whether its client ends it. The lock
// is held.
func (c inbound) open(id uint32, size int, flags byte) {
	if s := c.streams[id]; s != nil {
		s.last = s.last || flags&flagEndStream != 0
		if s.headers += size; !c.opening(s) {
			c.greedy = true
		}
	}
}
