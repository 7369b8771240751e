package transport_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/transport"
)

// Silent connections keep no probe out: a new connection replaces the one that has waited
// longest.
func TestSilentConnectionsApart(t *testing.T) {
	s := serveApart(t, newServer(t, fixed, nil).Health())
	for range 3 * 64 {
		connect(t, s.http) // is silent until the test ends
	}
	c := connect(t, s.http)
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("a probe beside silent connections: %v", err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("a probe beside silent connections: %d, %v", resp.StatusCode, err)
	}
}

// Requests whose body does not come keep no probe out either, whether it is read or not.
func TestUnfinishedBodiesApart(t *testing.T) {
	s := serveApart(t, newServer(t, fixed, nil).Health())
	long := strings.Repeat("x", 2<<20) // more than is read of a body that is refused
	for _, begun := range []string{
		"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc",
		"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc",
		"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n" + long,
		"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
		"POST /healthz HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n",
	} {
		for range 12 { // more than there may be of one address
			c := connect(t, s.http)
			if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, begun) // it may be closed by then
		}
		time.Sleep(20 * time.Millisecond) // so that their requests have begun; a probe before that passes anyway
		for range 3 {
			c := connect(t, s.http)
			if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatalf("a probe beside %.60q: %v", begun, err)
			}
			if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("a probe beside %.60q: %d, %v", begun, resp.StatusCode, err)
			}
		}
	}
}

// Answers that nobody reads keep no probe out either.
func TestUnreadAnswersApart(t *testing.T) {
	s := serveApart(t, transport.NewAdmin(transport.AdminOptions{Metrics: http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})}))
	for range 8 { // as many as there may be of one address
		c := connect(t, s.http)
		if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(c).ReadString('\n'); err != nil { // so the node is writing the rest
			t.Fatal(err)
		}
	}
	c := connect(t, s.http)
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET /v1/members HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("a request beside answers that nobody reads: %v", err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("a request beside answers that nobody reads: %d, %v", resp.StatusCode, err)
	}
}

// An answer that is read is not cut off while silent connections can be replaced.
func TestAReadAnswerApart(t *testing.T) {
	const size = 24 << 20
	s := serveApart(t, transport.NewAdmin(transport.AdminOptions{Metrics: http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, _ = w.Write(make([]byte, size)) // it fails only with the test
	})}))
	c := connect(t, s.http)
	if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	got, err := c.Read(buf) // so its answer has begun, and is more than buffers hold
	if err != nil {
		t.Fatal(err)
	}
	for range 12 { // more than there may be of one address
		connect(t, s.http) // is silent until the test ends
	}
	for got < size {
		n, err := c.Read(buf)
		if got += n; err != nil {
			t.Fatalf("after %d of %d bytes: %v", got, size, err)
		}
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
