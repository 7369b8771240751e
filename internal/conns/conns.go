// Package conns serves the connections of a listener, each in a goroutine of its own, until
// they are told to end.
package conns

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Server serves connections. The zero value is ready. It is safe for concurrent use.
type Server struct {
	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	listener net.Listener
	stopping bool
	served   sync.WaitGroup
}

// Serve calls serve for each connection, in a goroutine, and closes the connection when serve
// returns. It returns nil after [Server.Shutdown], or the error with which the listener failed.
// It closes the listener, and may be called once. The context of serve ends with Serve.
func (s *Server) Serve(l net.Listener, serve func(ctx context.Context, c net.Conn)) error {
	s.mu.Lock()
	s.listener = l
	stopped := s.stopping
	s.mu.Unlock()
	if stopped {
		return l.Close()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const least = 5 * time.Millisecond
	pause := least
	for {
		c, err := l.Accept()
		if err == nil {
			pause = least
			s.start(ctx, c, serve)
			continue
		}
		if s.Stopping() {
			s.served.Wait()
			return nil
		}
		if t, ok := err.(interface{ Temporary() bool }); !ok || !t.Temporary() {
			return errors.Join(err, l.Close())
		}
		time.Sleep(pause) // such as too many open files
		pause = min(2*pause, time.Second)
	}
}

func (s *Server) start(ctx context.Context, c net.Conn, serve func(context.Context, net.Conn)) {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		_ = c.Close()
		return
	}
	if s.conns == nil {
		s.conns = make(map[net.Conn]struct{})
	}
	s.conns[c] = struct{}{}
	s.served.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.served.Done()
		defer func() {
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
			_ = c.Close()
		}()
		serve(ctx, c)
	}()
}

// Open returns how many connections are open.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Stopping reports whether [Server.Shutdown] was called. Whoever is about to read from a
// connection asks after it has set the deadline of the read: Shutdown ends a read by another
// one, which could be overwritten otherwise.
func (s *Server) Stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// Shutdown closes the listener, ends the reads of all connections, and waits until these are
// served. When the context ends it closes the rest.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	l := s.listener
	for c := range s.conns {
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
	s.mu.Unlock()
	var err error
	if l != nil {
		if err = l.Close(); errors.Is(err, net.ErrClosed) {
			err = nil // by an earlier call
		}
	}
	done := make(chan struct{})
	go func() { s.served.Wait(); close(done) }()
	select {
	case <-done:
		return err
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	return errors.Join(err, ctx.Err())
}
