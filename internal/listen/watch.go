package listen

import (
	"math/bits"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// gRPC waits as long as the connection lives for the rest of a message, and for a
// client to read its answers. So the HTTP/2 frames of each connection are watched. If
// the client of a stream takes too long for its next step, the stream is reset, as if
// the client had cancelled it. Other streams of the connection continue; behind a proxy
// they may belong to other clients. A connection on which nothing moves is closed.

// Watcher watches the connections of a listener over which gRPC is spoken.
type Watcher struct {
	net.Listener
	WatchOptions
	patience int64 // in ticks

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

// WatchOptions configures a [Watcher].
type WatchOptions struct {
	// Room is for what clients do not read.
	Room *Room
	// Secured: connections may have TLS, see [ServerTLS].
	Secured bool
	// Noted: [NoteShown] is called for each call.
	Noted bool
	// Patience is how long a client may take for its next step.
	Patience time.Duration
	// Streams are the most open streams of a connection.
	Streams int
	// Most is how many bytes of incomplete messages there may be. Above it the largest are given up.
	Most int64
}

// NewWatcher returns a watcher of the connections of a listener.
func NewWatcher(l net.Listener, o WatchOptions) *Watcher {
	return &Watcher{Listener: l, WatchOptions: o, patience: max(1, int64(o.Patience/stallTick)), conns: make(map[*watchedConn]struct{})}
}

// Run has the connections looked at each second until stop is called.
func (s *Watcher) Run() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(stallTick)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				s.Tick()
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

// Accept implements [net.Listener].
func (s *Watcher) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w := &watchedConn{Conn: c, of: s, streams: make(map[uint32]*clientStream)}
	if s.Secured {
		w.secured = &securedConn{Conn: c}
		w.Conn = w.secured
	}
	if w.bounded = boundedOf(c); w.bounded != nil {
		w.bounded.rest(s.now.Load())
	}
	w.unsent.from = Origin(c.RemoteAddr())
	w.in.skip = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") // the client's preface
	s.mu.Lock()
	s.conns[w] = struct{}{}
	s.mu.Unlock()
	return w, nil
}

// Tick examines all connections.
func (s *Watcher) Tick() {
	now := s.now.Add(1)
	for _, c := range s.all() {
		c.look(now, s.patience)
	}
}

// all returns the open connections.
func (s *Watcher) all() []*watchedConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*watchedConn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

// Counts is what a watcher counts.
type Counts struct {
	Conns, Streams int
	// Half is how many bytes of incomplete messages there are. Ending is the part of it whose streams are to be reset.
	Half, Ending int64
}

// Counts returns what is counted now.
func (s *Watcher) Counts() (n Counts) {
	for _, c := range s.all() {
		c.mu.Lock()
		n.Conns, n.Streams = n.Conns+1, n.Streams+len(c.streams)
		c.mu.Unlock()
	}
	n.Half, n.Ending = s.half.Load(), s.ending.Load()
	return n
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
