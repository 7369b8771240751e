package transport_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

func TestMain(m *testing.M) {
	runChild() // and does not return, if this process is to be a server
	goleak.VerifyTestMain(m)
}

// clock is a clock that a test moves while servers read it.
type clock struct{ now atomic.Int64 }

func (c *clock) set(t limiter.Tick) { c.now.Store(int64(t)) }

func (c *clock) read() time.Time { return limiter.Tick(c.now.Load()).Time() }

// server is a node behind a server on loopback listeners.
type server struct {
	*transport.Server
	node  *weir.Node
	clock *clock
	conn  *grpc.ClientConn
	api   weirv1.LimiterClient
	grpc  string // addresses
	http  string
	url   string
}

// newServer starts a node with these rules and a server before it; change may
// change the server's options. Both end with the test.
func newServer(tb testing.TB, rules string, change func(*transport.Options)) *server {
	tb.Helper()
	s := &server{clock: new(clock)}
	s.clock.set(limitertest.Start())
	var err error
	s.node, err = weir.Open(context.Background(), weir.Config{Rules: []byte(rules), Now: s.clock.read})
	if err != nil {
		tb.Fatalf("%v in\n%s", err, rules)
	}
	o := transport.Options{Decider: s.node, AllowReset: true, AllowRequestLimits: true}
	if change != nil {
		change(&o)
	}
	if s.Server, err = transport.NewServer(o); err != nil {
		tb.Fatal(err)
	}
	grpcListener, httpListener := listen(tb), listen(tb)
	s.grpc, s.http = grpcListener.Addr().String(), httpListener.Addr().String()
	s.url = "http://" + s.http
	served := make(chan error, 1)
	go func() { served <- s.Serve(grpcListener, httpListener) }()
	s.conn = dial(tb, s.grpc)
	s.api = weirv1.NewLimiterClient(s.conn)
	tb.Cleanup(func() {
		if err := s.conn.Close(); err != nil {
			tb.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			tb.Error(err)
		}
		if err := <-served; err != nil {
			tb.Error(err)
		}
		if err := s.node.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// serveApart serves what is served apart from a server, until the test ends. Only its
// addresses are set.
func serveApart(tb testing.TB, a *transport.Apart) *server {
	tb.Helper()
	l := listen(tb)
	served := make(chan error, 1)
	go func() { served <- a.Serve(l) }()
	tb.Cleanup(func() {
		if err := errors.Join(a.Close(), <-served); err != nil {
			tb.Error(err)
		}
	})
	return &server{http: l.Addr().String(), url: "http://" + l.Addr().String()}
}

func listen(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := transport.Listen(context.Background(), "--test-addr", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func dial(tb testing.TB, address string) *grpc.ClientConn {
	tb.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	return conn
}

// fixed is one rule for everything: three a minute for each user.
const fixed = `
version: 1
rules:
  - {name: all, key: [rule, user], limits: [3/minute], algorithm: fixed_window}
`
