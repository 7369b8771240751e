package transport_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// TestTenThousandIdleConnections: half of them over HTTP, each after one
// request, half over gRPC, each after its handshake. The node answers as before,
// and when they are gone nothing of them is left.
func TestTenThousandIdleConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("opens 10,000 connections")
	}
	n := 10_000
	if most := filesMax() - 500; most < n {
		t.Logf("this process may open %d files, so these are %d connections and not %d; raise ulimit -n", most+500, most, n)
		n = most
	}
	c := startChild(t, "weir")
	// The first call makes the goroutines that serve calls, which stay.
	first, err := idleGRPC(c.grpc)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	before := c.usage().goroutines
	var conns []net.Conn
	closeAll := func() {
		for _, c := range conns {
			c.Close()
		}
		conns = nil
	}
	defer closeAll()
	for i := range n {
		open := idleHTTP
		address := c.http
		if i%2 == 0 {
			open, address = idleGRPC, c.grpc
		}
		conn, err := open(address)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, conn)
	}
	if got := c.usage().goroutines; got < n {
		t.Errorf("with %d connections the server has %d goroutines: they are not open", n, got)
	}
	conn := dial(t, c.grpc)
	defer conn.Close()
	api := weirv1.NewLimiterClient(conn)
	begin := time.Now()
	for range 100 {
		if m, err := api.Check(t.Context(), &weirv1.CheckRequest{Path: "/towns", User: "ada"}); err != nil || !m.Allowed {
			t.Fatal(m, err)
		}
	}
	t.Logf("with %d idle connections 100 checks took %v", n, time.Since(begin))
	closeAll()
	conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	left := c.usage().goroutines
	for left > before+10 && ctx.Err() == nil {
		left = c.usage().goroutines
	}
	if left > before+10 {
		t.Errorf("%d goroutines are left, there were %d", left, before)
	}
}

// idleHTTP opens a connection that has asked once.
func idleHTTP(address string) (net.Conn, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 512), nil)
	if err != nil {
		return nil, err
	}
	return c, resp.Body.Close()
}

// idleGRPC opens a connection that has done the handshake of HTTP/2.
func idleGRPC(address string) (net.Conn, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // an empty frame of them
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings); err != nil {
		return nil, err
	}
	_, err = io.ReadFull(c, make([]byte, 9)) // those of the server
	return c, err
}
