package client_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// counting counts the connections of a listener.
type counting struct {
	net.Listener
	n atomic.Int64
}

func (c *counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}

// TestIdleStreamEnds: a node ends an idle stream. A check that comes before the next
// stream is open waits for it.
func TestIdleStreamEnds(t *testing.T) {
	var streams atomic.Int64
	second, let := make(chan struct{}), make(chan struct{})
	begun, late := make(chan struct{}), new(atomic.Int64)
	begin, start := sync.OnceFunc(func() { close(begun) }), time.Now()
	now := func() time.Time {
		defer begin()
		return start.Add(time.Duration(late.Load()))
	}
	l := play(t, func(stream weirv1.Limiter_CheckStreamServer) error {
		n := streams.Add(1)
		if n == 2 {
			close(second)
			<-let
		}
		for {
			m, err := stream.Recv()
			if err == nil {
				err = stream.Send(allow(m))
			}
			if err != nil {
				return err
			}
			if n == 1 {
				<-begun                                 // the client has the time at which the stream began
				late.Add(int64(600 * time.Millisecond)) // it is to have lived as long
				stream.SetTrailer(metadata.Pairs(weirv1.TrailerUndecided, "1"))
				return status.Error(codes.Unavailable, "it is old")
			}
		}
	})
	c := open(t, client.WithClock(client.Config{Addrs: []string{l.Addr().String()}, Timeout: long}, now))
	<-second
	answer := make(chan error, 1)
	go func() {
		var d limiter.Decision
		answer <- c.CheckInto(t.Context(), request("ada"), &d)
	}()
	eventually(t, "the check waits, or has failed", func() bool { return c.Stats().Pending == 1 || len(answer) == 1 })
	close(let)
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// TestConnectionsOfAnAge: a node ends streams and connections when they have reached their
// age. A client of that one node asks on, without pause and with pauses, and no check
// fails or is counted twice.
func TestConnectionsOfAnAge(t *testing.T) {
	const age, connections, askers = 300 * time.Millisecond, 4, 8
	node := newNode(t, strings.Replace(hour, "limit: 100", "limit: 4294967295", 1))
	s, err := transport.NewServer(transport.Options{Decider: node, MaxConnectionAge: age})
	if err != nil {
		t.Fatal(err)
	}
	l := &counting{Listener: listen(t, "")}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l, nil) }()
	// By its clock each stream has lived longer than the client's longest pause, as streams of a
	// node's real age have: a busy machine may keep a stream of this one without a reply.
	var looks atomic.Int64
	now := func() time.Time { return time.Unix(looks.Add(1), 0) }
	c := open(t, client.WithClock(client.Config{Addrs: []string{l.Addr().String()}, Timeout: long}, now))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	var asked atomic.Int64
	for i := range askers {
		all.Go(func() {
			var d limiter.Decision
			for l.n.Load() < connections && ctx.Err() == nil {
				if err := c.CheckInto(ctx, request("ada"), &d); err != nil {
					t.Errorf("asker %d, after %d connections: %v", i, l.n.Load(), err)
					return
				}
				asked.Add(1)
			}
		})
	}
	all.Wait()
	// A single caller, with pauses in which idle streams end.
	idle := l.n.Load() + connections
	var d limiter.Decision
	for l.n.Load() < idle && ctx.Err() == nil {
		if err := c.CheckInto(ctx, request("ada"), &d); err != nil {
			t.Fatalf("after a pause, with %d connections: %v", l.n.Load(), err)
		}
		asked.Add(1)
		time.Sleep(age / 3) // not for something to happen: so that nothing does
	}
	if ctx.Err() != nil {
		t.Fatalf("only %d connections were made", l.n.Load())
	}
	if err := c.PeekInto(ctx, request("ada"), &d); err != nil ||
		int64(d.Limit(0).Limit.Limit()-d.Limit(0).Remaining) != asked.Load() {
		t.Errorf("%d checks were made, and %d are left of %d, %v", asked.Load(), d.Limit(0).Remaining,
			d.Limit(0).Limit.Limit(), err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
