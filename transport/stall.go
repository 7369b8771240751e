package transport

import (
	"math/bits"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/listen"
)

// gRPC waits as long as the connection lives for the rest of a message, and for a
// client to read its answers. So the HTTP/2 frames of each connection are watched. If
// the client of a stream takes too long for its next step, the stream is reset, as if
// the client had cancelled it. Other streams of the connection continue; behind a proxy
// they may belong to other clients. A connection on which nothing moves is closed.

// stalls watches the connections of a listener.
type stalls struct {
	net.Listener
	patience int64 // in ticks
	room     *room // for what clients do not read
	secured  bool  // connections may have TLS
	noted    bool  // noteShown is called for each call
	streams  int   // the most open streams of a connection
	most     int64 // bytes of incomplete messages above which the largest are given up

	now    atomic.Int64 // ticks that have passed
	half   atomic.Int64 // bytes of incomplete messages
	ending atomic.Int64 // the part of half whose streams are to be reset

	relieving sync.Mutex // held while streams are chosen to be given up

	mu    sync.Mutex
	conns map[*watchedConn]struct{}
}

const (
	// stallTick is the interval at which connections are examined.
	stallTick = time.Second
	// resetPatience is how long, in ticks, a client may take to reach the end of a frame,
	// where a reset can be inserted. Until then the server keeps the stream's memory.
	resetPatience = 2
	// leastRead is how many bytes of answers a client must read within its patience, or
	// all that it had asked for.
	leastRead = 16 << 10
	// frameWeight is the memory of a frame in bytes, besides its data.
	frameWeight = 64
)

// watch watches the connections of a listener until stop is called.
func watch(l net.Listener, o *Options, r *room) (watched net.Listener, stop func()) {
	s := newStalls(l, o, r)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(stallTick)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				s.tick()
			case <-done:
				return
			}
		}
	}()
	return s, func() { close(done); <-ended }
}

func newStalls(l net.Listener, o *Options, r *room) *stalls {
	return &stalls{
		Listener: l, room: r, secured: o.TLS != nil, noted: o.notesShown(), patience: max(1, int64(o.ClientTimeout/stallTick)), streams: o.MaxStreams, most: o.MaxDecodingBytes,
		conns: make(map[*watchedConn]struct{}),
	}
}

// Accept implements [net.Listener].
func (s *stalls) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w := &watchedConn{Conn: c, of: s, streams: make(map[uint32]*clientStream)}
	if s.secured {
		w.secured = &securedConn{Conn: c}
		w.Conn = w.secured
	}
	if w.bounded = listen.Of(c); w.bounded != nil {
		w.bounded.Rest(s.now.Load())
	}
	w.unsent.from = listen.Origin(c.RemoteAddr())
	w.in.skip = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") // the client's preface
	s.mu.Lock()
	s.conns[w] = struct{}{}
	s.mu.Unlock()
	return w, nil
}

// tick examines all connections.
func (s *stalls) tick() {
	now := s.now.Add(1)
	for _, c := range s.all() {
		c.look(now, s.patience)
	}
}

// all returns the open connections.
func (s *stalls) all() []*watchedConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*watchedConn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

// tooMuch reports whether incomplete messages use too much memory, or those that were
// given up do, because their streams could not be reset yet.
func (s *stalls) tooMuch() bool {
	ending := s.ending.Load()
	return s.half.Load()-ending > s.most || ending > s.most
}

// relieve gives up the largest incomplete messages, to a factor of two, until the rest
// uses at most 7/8 of the bound. So it is not called again soon. If those that were
// given up use too much, their connections that are within a frame are closed, since no
// reset can be inserted there. One goroutine does this at a time; others do not wait for it.
func (s *stalls) relieve() {
	if !s.relieving.TryLock() {
		return
	}
	defer s.relieving.Unlock()
	all := s.all()
	excess := int(s.half.Load() - s.ending.Load() - s.most/8*7)
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
	if s.ending.Load() > s.most {
		for _, c := range all {
			if c.stuck() {
				_ = c.Close()
			}
		}
	}
}
