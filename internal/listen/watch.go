package listen

import (
	"net"
	"time"
)

// NewWatcher returns a watcher of the connections of a listener.
func NewWatcher(l net.Listener, o WatchOptions) *Watcher {
	return &Watcher{Listener: l, WatchOptions: o, patience: max(1, int64(o.Patience/stallTick)),
		conns: make(map[*watchedConn]struct{})}
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
