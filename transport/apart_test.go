package transport_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/weirlimit/weir/transport"
)

// A site served apart has a connection bound of its own: one connection above it is
// closed.
func TestApartIsBounded(t *testing.T) {
	s := serveApart(t, transport.NewAdmin(transport.AdminOptions{}))
	answered := func(c net.Conn) bool {
		if _, err := io.WriteString(c, "GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			return false
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	}
	for i := range 64 {
		if !answered(connect(t, s.http)) {
			t.Fatalf("connection %d is not served", i+1)
		}
	}
	if answered(connect(t, s.http)) {
		t.Error("a connection above the bound is served")
	}
}

// A probe does not keep its place.
func TestProbesDoNotStay(t *testing.T) {
	s := serveApart(t, newServer(t, fixed, nil).Health())
	for i := range 2 * 64 {
		c := connect(t, s.http) // is open until the test ends
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatalf("probe %d: %v", i+1, err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || !resp.Close {
			t.Fatalf("probe %d: %+v, %v", i+1, resp, err)
		}
		_ = resp.Body.Close()
	}
}

// Where few files may be open, few connections are taken.
func TestConnectionsWithinFiles(t *testing.T) {
	for files, want := range map[int]int{1<<31 - 1: 16384, 1 << 20: 16384, 4096: 1920, 1024: 384, 100: 16} {
		if got := transport.ConnectionsWithin(files); got != want {
			t.Errorf("with %d files: %d connections, want %d", files, got, want)
		}
	}
}
