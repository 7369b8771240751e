package transport

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// TestFewAddressesKeepNobodyOut: four addresses that have all connections of both public
// listeners keep no client of another address out. A connection with a call stays.
func TestFewAddressesKeepNobodyOut(t *testing.T) {
	by := &stub{decide: func(_ *limiter.Request, d *limiter.Decision) error { d.Allowed = true; return nil }}
	s, err := NewServer(Options{Decider: by, MaxConnections: 8, MaxConnectionsPerAddress: 2})
	if err != nil {
		t.Fatal(err)
	}
	var at [2]net.Listener
	for i := range at {
		if at[i], err = Listen(t.Context(), "--test-addr", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	var served sync.WaitGroup
	served.Go(func() {
		if err := s.Serve(at[0], at[1]); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(served.Wait)
	t.Cleanup(s.stop)
	api := func(from string) weirv1.LimiterClient {
		conn, err := grpc.NewClient("passthrough:///"+at[0].Addr().String(),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return dialFrom(ctx, from, to) }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return weirv1.NewLimiterClient(conn)
	}
	stream, err := api("127.0.0.2").CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(when string) {
		t.Helper()
		if err := stream.Send(&weirv1.CheckColumns{Costs: []int64{1}}); err != nil {
			t.Fatal(err)
		}
		if got, err := stream.Recv(); err != nil || len(got.GetFlags()) != 1 {
			t.Errorf("the stream %s: %v, %v", when, got, err)
		}
	}
	ask("before")
	for i, from := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.4", "127.0.0.4", "127.0.0.5",
		"127.0.0.5", "127.0.0.2"} {
		for j, l := range at {
			if i == 7 && j == 0 {
				continue // the stream has the place
			}
			c, err := dialFrom(t.Context(), from, l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			hello := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
			if j == 0 {
				hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + string(frameOf(4, 0, 0, nil))
			}
			if _, err := io.WriteString(c, hello); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); err != nil { // it is served
				t.Fatal(err)
			}
		}
	}
	if got, err := api("127.0.0.1").Check(t.Context(), &weirv1.CheckRequest{User: "ada"}); err != nil || !got.Allowed {
		t.Errorf("gRPC: %v, %v", got, err)
	}
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at[1].Addr().String()+"/healthz",
		http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	got, err := web.Do(r)
	if err != nil {
		t.Fatalf("HTTP: %v", err)
	}
	got.Body.Close()
	ask("afterwards")
}

// dialFrom dials from an address of this machine.
func dialFrom(ctx context.Context, from, to string) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(ctx, "tcp", to)
}

// TestHalfHeadersApart: a header that does not end takes a place of a probe for a shorter
// time than one of a client may take.
func TestHalfHeadersApart(t *testing.T) {
	s, err := NewServer(Options{Decider: new(stub)})
	if err != nil {
		t.Fatal(err)
	}
	if got, client := s.Health().http.ReadHeaderTimeout, s.http.ReadHeaderTimeout; got <= 0 || got > client/2 {
		t.Errorf("a probe has %v for its header, a client %v", got, client)
	}
}
