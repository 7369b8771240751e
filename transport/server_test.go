package transport_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

func TestOptionsThatCannotBe(t *testing.T) {
	node, err := weir.Open(t.Context(), weir.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	for text, o := range map[string]transport.Options{
		"Decider is nil":        {},
		"MaxStreams -1 is":      {Decider: node, MaxStreams: -1},
		"MaxMessageBytes -5 is": {Decider: node, MaxMessageBytes: -5},
	} {
		if _, err := transport.NewServer(o); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
}

// TestPortInUse: the error names the flag to change, and the listener that has the port
// is not disturbed.
func TestPortInUse(t *testing.T) {
	l := listen(t)
	defer l.Close()
	_, err := transport.Listen(t.Context(), "--grpc-addr", l.Addr().String())
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(),
		"another program has that port; stop it, or choose another address with --grpc-addr") {
		t.Errorf("got %v", err)
	}
	for _, address := range []string{"203.0.113.1:80", "nonsense", "127.0.0.1:99999"} {
		if _, err := transport.Listen(t.Context(), "--http-addr", address); err == nil ||
			!strings.Contains(err.Error(), "with --http-addr") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestListenerThatFails: if one protocol cannot be served the other ends, too, and the
// error names the one that failed.
func TestListenerThatFails(t *testing.T) {
	node, err := weir.Open(t.Context(), weir.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	for _, c := range []struct {
		breaks string
		text   string
	}{{"grpc", "serving gRPC: "}, {"http", "serving HTTP: "}} {
		s, err := transport.NewServer(transport.Options{Decider: node})
		if err != nil {
			t.Fatal(err)
		}
		a, b := listen(t), listen(t)
		if c.breaks == "grpc" {
			a.Close()
		} else {
			b.Close()
		}
		if err := s.Serve(a, b); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("got %v, want %q", err, c.text)
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestShutdownEndsIdleStreams: waiting streams do not delay the server, and get the
// reason for their end. Streams of the other services end, too.
func TestShutdownEndsIdleStreams(t *testing.T) {
	s := newServer(t, fixed, nil)
	stream, err := s.api.CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&weirv1.CheckColumns{Id: 1, Costs: []int64{1}}); err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || m.Id != 1 {
		t.Fatal(m, err)
	}
	never, err := s.api.CheckStream(t.Context()) // nothing is ever sent
	if err != nil {
		t.Fatal(err)
	}
	watch, err := healthv1.NewHealthClient(s.conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := watch.Recv(); err != nil || m.Status != healthv1.HealthCheckResponse_SERVING {
		t.Fatal(m, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Fatalf("idle streams hold the server up: %v", err)
	}
	for _, stream := range []weirv1.Limiter_CheckStreamClient{stream, never} {
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "stopping") {
			t.Errorf("a stream ended with %v", err)
		}
		if got := stream.Trailer().Get(weirv1.TrailerUndecided); len(got) != 1 {
			t.Errorf("a stream ended without a word of what was decided: %v", stream.Trailer())
		}
	}
	for err = nil; err == nil; { // it may be told first that the server is not serving
		_, err = watch.Recv()
	}
	if _, err := s.api.Check(t.Context(), &weirv1.CheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a check of a server that has stopped: %v", err)
	}
}

// slow is a decider whose checks wait until they are released.
type slow struct {
	*weir.Node
	entered chan struct{}
	release chan struct{}
}

func (s *slow) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	s.wait()
	return s.Node.CheckInto(ctx, r, d)
}

func (s *slow) CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	s.wait()
	return s.Node.CheckBatchInto(ctx, rs, ds)
}

// wait signals that a check has come, and waits for the release. A later check does not
// wait, so that a check which should not come makes a test fail and not hang.
func (s *slow) wait() {
	select {
	case s.entered <- struct{}{}:
	case <-s.release:
	}
	<-s.release
}

func newSlow(t *testing.T) (*server, *slow) {
	d := &slow{entered: make(chan struct{}), release: make(chan struct{})}
	s := newServer(t, fixed, func(o *transport.Options) {
		d.Node = o.Decider.(*weir.Node)
		o.Decider = d
	})
	return s, d
}

// TestShutdownAnswersWhatItHasBegun: over each protocol. Of a stream the message
// that is being decided is answered; one that waits behind it is not decided.
func TestShutdownAnswersWhatItHasBegun(t *testing.T) {
	s, d := newSlow(t)
	stream, err := s.api.CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id := range uint64(2) {
		if err := stream.Send(&weirv1.CheckColumns{Id: id, Keys: []byte("ada"), UserLengths: []uint32{3}}); err != nil {
			t.Fatal(err)
		}
	}
	unary, web := make(chan error, 1), make(chan int, 1)
	go func() {
		_, err := s.api.Check(context.Background(), &weirv1.CheckRequest{User: "ada"})
		unary <- err
	}()
	go func() { web <- s.get(t, "/v1/check?user=ada").status }()
	for range 3 {
		<-d.entered
	}
	stopped := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() { stopped <- s.Shutdown(ctx) }()
	// The server reports not ready while it still answers. It cannot be asked on an
	// existing connection any more, but a refused new connection shows that it has
	// begun to stop.
	for refused := false; !refused; {
		c, err := net.Dial("tcp", s.http)
		if refused = err != nil; !refused {
			c.Close()
		}
	}
	close(d.release)
	if m, err := stream.Recv(); err != nil || m.Id != 0 || len(m.Flags) != 1 {
		t.Errorf("the message that was being decided: %v, %v", m, err)
	}
	if m, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the message behind it: %v, %v", m, err)
	}
	if err := <-unary; err != nil {
		t.Errorf("a check that was being decided: %v", err)
	}
	if got := <-web; got != 200 {
		t.Errorf("a check over HTTP that was being decided: %d", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	var left limiter.Decision
	if err := d.Node.PeekInto(t.Context(), &limiter.Request{User: "ada"}, &left); err != nil ||
		left.Limit(0).Remaining != 0 {
		t.Errorf("three were charged, and %d are left, %v", left.Limit(0).Remaining, err)
	}
}

// TestShutdownIsBounded: a call that does not end is cut off with the context.
func TestShutdownIsBounded(t *testing.T) {
	s, d := newSlow(t)
	unary := make(chan error, 1)
	go func() {
		_, err := s.api.Check(context.Background(), &weirv1.CheckRequest{})
		unary <- err
	}()
	<-d.entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(ctx) }()
	if err := <-unary; status.Code(err) != codes.Unavailable {
		t.Errorf("a call that was cut off: %v", err)
	}
	close(d.release) // Stop waits for handlers, so the decider has to return
	if err := <-stopped; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("got %v", err)
	}
}

// closedWithin reads from a connection until the other end closes it.
func closedWithin(t *testing.T, c net.Conn, most time.Duration) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(most)); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(c)
	if errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		t.Errorf("%v was not closed within %v", c.RemoteAddr(), most)
	}
	return string(text)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func connect(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestSlowLoris: connections that send nothing, or a byte now and then, are
// closed in a few seconds; others are served meanwhile.
func TestSlowLoris(t *testing.T) {
	t.Parallel()
	s := newServer(t, fixed, nil)
	silent := []net.Conn{connect(t, s.http), connect(t, s.grpc)}
	header := connect(t, s.http)
	body := connect(t, s.http)
	for c, text := range map[net.Conn]string{
		header: "GET /v1/check HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		body:   "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
	} {
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.get(t, "/v1/check?user=ada"); got.status != 200 {
		t.Errorf("another asker meanwhile: %+v", got)
	}
	for _, c := range append(silent, header) {
		closedWithin(t, c, 12*time.Second)
	}
	if text := closedWithin(t, body, 20*time.Second); !strings.Contains(text, "400 Bad Request") ||
		!strings.Contains(text, "could not be read to its end") {
		t.Errorf("a body that does not come is answered %q", text)
	}
	s.stillCounts(t, "ada", 2)
}

// TestLargeHeader: more than any request needs is refused.
func TestLargeHeader(t *testing.T) {
	s := newServer(t, fixed, nil)
	c := connect(t, s.http)
	if _, err := io.WriteString(c, "GET /v1/check?user="+strings.Repeat("u", 20<<10)+
		" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if text := closedWithin(t, c, 10*time.Second); text != "" &&
		!strings.Contains(text, "431 Request Header Fields Too Large") {
		t.Errorf("an address of 20 KiB is answered %q", text)
	}
	s.stillCounts(t, "ada", 3)
}

// TestConnectionsAreBounded: one more than the bound is closed at once, and one
// that ends makes room.
func TestConnectionsAreBounded(t *testing.T) {
	s := newServer(t, fixed, func(o *transport.Options) { o.MaxConnections = 2 })
	served := func(c net.Conn) bool {
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return false
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	}
	a, b := connect(t, s.http), connect(t, s.http)
	if !served(a) || !served(b) {
		t.Fatal("two connections are not served")
	}
	if served(connect(t, s.http)) {
		t.Error("a third connection is served, above the bound")
	}
	a.Close()
	// The server notices the end of a when it reads.
	deadline := time.Now().Add(10 * time.Second)
	for !served(connect(t, s.http)) {
		if time.Now().After(deadline) {
			t.Fatal("a connection that ended makes no room for another")
		}
	}
	if !served(b) {
		t.Error("the connection that was there is not served any more")
	}
}
