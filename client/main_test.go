package client_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hour is a rule for everything: a hundred an hour for each user.
const hour = `
version: 1
rules:
  - {name: all, key: [rule, user], limits: [{limit: 100, window: 1h, algorithm: fixed_window, align: first_hit}]}
`

// newNode opens a node, which ends with the test.
func newNode(tb testing.TB, rules string) *weir.Node {
	tb.Helper()
	n, err := weir.Open(context.Background(), weir.Config{Rules: []byte(rules)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := n.Close(); err != nil {
			tb.Error(err)
		}
	})
	return n
}

// endpoint is a listener whose connections can be cut.
type endpoint struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (e *endpoint) Accept() (net.Conn, error) {
	c, err := e.Listener.Accept()
	if err == nil {
		e.mu.Lock()
		e.conns = append(e.conns, c)
		e.mu.Unlock()
	}
	return c, err
}

// cut ends all connections without a word.
func (e *endpoint) cut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	e.conns = nil
}

// open returns how many connections there are since the last cut.
func (e *endpoint) open() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

// listen listens at an address, of loopback and with a free port if it is empty.
func listen(tb testing.TB, addr string) *endpoint {
	tb.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	return &endpoint{Listener: l}
}

// server is a decider that is served.
type server struct {
	*endpoint
	addr string
	stop func() // ends it in good order; a second call does nothing
}

// serve serves a decider, at an address if it is not empty, until the test ends.
func serve(tb testing.TB, d transport.Decider, addr string, change func(*transport.Options)) *server {
	tb.Helper()
	o := transport.Options{Decider: d, AllowReset: true, AllowRequestLimits: true}
	if change != nil {
		change(&o)
	}
	s, err := transport.NewServer(o)
	if err != nil {
		tb.Fatal(err)
	}
	out := &server{endpoint: listen(tb, addr)}
	out.addr = out.Addr().String()
	served := make(chan error, 1)
	go func() { served <- s.Serve(out.endpoint, nil) }()
	out.stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(s.Shutdown(ctx), <-served); err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(out.stop)
	return out
}

// script is a server whose streams a test writes itself.
type script struct {
	weirv1.UnimplementedLimiterServer
	stream func(stream weirv1.Limiter_CheckStreamServer) error
	settle *weirv1.ReservationResponse // the reply to each settlement
	ring   *weirv1.RingResponse
	lease  func(m *weirv1.LeaseRequest) (*weirv1.LeaseResponse, error)
}

func (s *script) Ring(context.Context, *weirv1.RingRequest) (*weirv1.RingResponse, error) {
	return s.ring, nil
}

func (s *script) Lease(_ context.Context, m *weirv1.LeaseRequest) (*weirv1.LeaseResponse, error) {
	return s.lease(m)
}

func (s *script) Settle(context.Context, *weirv1.SettleRequest) (*weirv1.ReservationResponse, error) {
	return s.settle, nil
}

func (s *script) CheckStream(stream weirv1.Limiter_CheckStreamServer) error { return s.stream(stream) }

// play serves a script of streams until the test ends. They must end with their context.
func play(tb testing.TB, stream func(stream weirv1.Limiter_CheckStreamServer) error) *endpoint {
	return playAll(tb, &script{stream: stream})
}

// playAll serves a script until the test ends.
func playAll(tb testing.TB, all *script) *endpoint {
	tb.Helper()
	l := listen(tb, "")
	s := grpc.NewServer()
	weirv1.RegisterLimiterServer(s, all)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	tb.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			tb.Error(err)
		}
	})
	return l
}

// allow is the reply to a message that allows all that is in it.
func allow(m *weirv1.CheckColumns) *weirv1.DecisionColumns {
	n := len(m.PathLengths)
	out := &weirv1.DecisionColumns{
		Id: m.Id, Flags: make([]byte, n), Remaining: make([]uint64, n), LimitRefs: make([]uint32, n),
		ResetAfterUs: make([]int64, n),
	}
	for i := range out.Flags {
		out.Flags[i] = byte(weirv1.DecisionFlag_DECISION_FLAG_ALLOWED)
	}
	return out
}

// open opens a client, which ends with the test.
func open(tb testing.TB, c client.Config) *client.Client {
	tb.Helper()
	out, err := client.Open(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := out.Close(); err != nil {
			tb.Error(err)
		}
	})
	return out
}

type options = transport.Options

// long is a timeout that no test reaches.
const long = time.Minute

// request is the check of a user.
func request(user string) *limiter.Request { return &limiter.Request{Path: "/towns", User: user} }

// eventually waits until something is so, which is certain to come.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	tick, deadline := time.NewTicker(time.Millisecond), time.NewTimer(long)
	defer tick.Stop()
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			tb.Fatalf("it never came that %s", what)
		}
	}
}
