package transport

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// TestSlowBodiesGiveWay: an address that has all connections of the listener for HTTP, each
// with a body that does not end, gives way to another until that has half as many. Neither
// closes more of the other then, and the bodies that are left are answered when they end.
func TestSlowBodiesGiveWay(t *testing.T) {
	const most, givenUp = 8, 3 // from 8 and 0 to 5 and 3: a fourth would need 8 of the crowd
	by := &stub{decide: func(_ *limiter.Request, d *limiter.Decision) error { d.Allowed = true; return nil }}
	s, err := NewServer(Options{Decider: by, MaxConnections: most, ClientTimeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), "--test-addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		if err := s.Serve(nil, l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(served.Wait)
	t.Cleanup(s.stop)
	const body = `{"user":"ada"}`
	// begin sends the first half of a check. The node says "continue" when its handler reads the
	// body, so the connection is busy then. It reports false if the node closes the connection.
	begin := func(from string) (net.Conn, *bufio.Reader, bool) {
		c, err := dialFrom(t.Context(), from, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(watchdog)); err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Fprintf(c,
			"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: "+
				"%d\r\n\r\n", len(body))
		in := bufio.NewReader(c)
		if err == nil {
			var line string
			if line, err = in.ReadString('\n'); err == nil && !strings.Contains(line, "100 Continue") {
				t.Fatalf("from %s: %q", from, line)
			}
		}
		if err == nil {
			_, err = in.ReadString('\n') // the empty line
		}
		if err == nil {
			_, err = io.WriteString(c, body[:len(body)/2])
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("from %s: %v", from, err)
		}
		return c, in, err == nil
	}
	type slow struct {
		net.Conn
		in *bufio.Reader
	}
	var crowd, others []slow
	for range most {
		c, in, ok := begin("127.0.0.2")
		if !ok {
			t.Fatal("there is place, and a connection is refused")
		}
		crowd = append(crowd, slow{c, in})
	}
	for i := range givenUp {
		c, in, ok := begin("127.0.0.1")
		if !ok {
			t.Fatalf("connection %d of another address is refused", i+1)
		}
		others = append(others, slow{c, in})
	}
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		if _, _, ok := begin(from); ok {
			t.Errorf("one more from %s is served: whose place has it?", from)
		}
	}
	answered := func(all []slow) (n int) {
		for _, c := range all {
			if _, err := io.WriteString(c, body[len(body)/2:]); err != nil {
				continue // it was closed
			}
			got, err := http.ReadResponse(c.in, nil)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
			if err == nil {
				got.Body.Close()
				n++
			}
		}
		return n
	}
	if a, b := answered(crowd), answered(others); a != most-givenUp || b != givenUp {
		t.Errorf("of the crowd %d are answered, and %d of the others; want %d and %d", a, b, most-givenUp, givenUp)
	}
}
