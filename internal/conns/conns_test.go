package conns

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
)

// listener hands out prepared connections and errors, and then waits to be closed.
type listener struct {
	net.Listener
	next   chan func() (net.Conn, error)
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case f := <-l.next:
		return f()
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error { close(l.closed); return nil }

func newListener() *listener {
	return &listener{next: make(chan func() (net.Conn, error), 8), closed: make(chan struct{})}
}

// Shutdown ends reads and waits; what does not end is closed when its context ends. A listener
// that is out of files for a moment goes on.
func TestShutdown(t *testing.T) {
	var s Server
	l := newListener()
	quiet, client := net.Pipe()
	stuck, other := net.Pipe()
	defer client.Close()
	defer other.Close()
	l.next <- func() (net.Conn, error) { return nil, syscall.EMFILE }
	l.next <- func() (net.Conn, error) { return quiet, nil }
	l.next <- func() (net.Conn, error) { return stuck, nil }
	reads, ended := make(chan struct{}, 2), make(chan error, 2)
	served := make(chan error, 1)
	go func() {
		served <- s.Serve(l, func(_ context.Context, c net.Conn) {
			reads <- struct{}{}
			if c == quiet {
				_, err := c.Read(make([]byte, 1))
				ended <- err
				return
			}
			_, err := c.Write(make([]byte, 1)) // nobody takes it
			ended <- err
		})
	}()
	<-reads
	<-reads
	if s.Open() != 2 || s.Stopping() {
		t.Errorf("%d are open, stopping: %v", s.Open(), s.Stopping())
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(ctx) }()
	if err := <-ended; err == nil {
		t.Error("a read that was to end has an answer")
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was cut off", err)
	}
	if err := <-ended; err == nil {
		t.Error("a write that nobody took has succeeded")
	}
	if err := <-served; err != nil || s.Open() != 0 || !s.Stopping() {
		t.Errorf("%v, %d are open", err, s.Open())
	}
}

// A listener that fails ends Serve with its error, and after Shutdown nothing is served.
func TestFailure(t *testing.T) {
	var s Server
	l := newListener()
	broken := errors.New("broken")
	l.next <- func() (net.Conn, error) { return nil, broken }
	if err := s.Serve(l, nil); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	var stopped Server
	if err := errors.Join(stopped.Shutdown(t.Context()), stopped.Serve(newListener(), nil)); err != nil {
		t.Error(err)
	}
}
