package transport

import (
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

// stalls watches the connections of a listener.
type stalls struct {
	net.Listener
	patience int64 // in ticks
	streams  int   // the most open streams of a connection
	most     int64 // bytes of incomplete messages above which patience is short

	now    atomic.Int64 // ticks that have passed
	half   atomic.Int64 // bytes of incomplete messages
	ending atomic.Int64 // the part of half whose streams are to be reset

	mu    sync.Mutex
	conns map[*watchedConn]struct{}
}

const (
	// stallTick is the interval at which connections are examined.
	stallTick = time.Second
	// shortPatience is the patience, in ticks, while incomplete messages use too much
	// memory.
	shortPatience = 2
	// resetPatience is how long, in ticks, a client may take to reach the end of a frame,
	// where a reset can be inserted. Until then the server keeps the stream's memory.
	resetPatience = 2
	// leastRead is how many bytes of an answer, or all of it, a client must read within
	// its patience.
	leastRead = 16 << 10
	// frameWeight is the memory of a frame in bytes, besides its data.
	frameWeight = 64
)

// watch watches the connections of a listener until stop is called.
func watch(l net.Listener, o *Options) (watched net.Listener, stop func()) {
	s := newStalls(l, o)
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

func newStalls(l net.Listener, o *Options) *stalls {
	return &stalls{
		Listener: l, patience: max(1, int64(o.ClientTimeout/stallTick)), streams: o.MaxStreams, most: o.MaxDecodingBytes,
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
	w.in.skip = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") // the client's preface
	s.mu.Lock()
	s.conns[w] = struct{}{}
	s.mu.Unlock()
	return w, nil
}

// tick examines all connections.
func (s *stalls) tick() {
	now := s.now.Add(1)
	patience := s.patience
	if s.half.Load()-s.ending.Load() > s.most {
		patience = min(patience, shortPatience)
	}
	s.mu.Lock()
	all := make([]*watchedConn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		c.look(now, patience)
	}
}
