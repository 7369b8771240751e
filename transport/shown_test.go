package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/frontend/overhttp"
)

// shownCall returns the context of a call, with the metadata that gRPC's clients send.
func shownCall(tb testing.TB, noted bool, more ...string) (context.Context, *tls.ConnectionState) {
	tb.Helper()
	state := new(tls.ConnectionState)
	conn := &watchedConn{of: &stalls{noted: noted}, secured: &securedConn{state: state}}
	md := metadata.Pairs(append([]string{
		":authority", "127.0.0.1:8081", "content-type", "application/grpc", "user-agent", "grpc-go/1.85.0",
		"grpc-accept-encoding", "gzip",
	}, more...)...)
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: connAddr{conn: conn}, AuthInfo: credentials.TLSInfo{State: *state}})
	ctx = metadata.NewIncomingContext(ctx, md)
	if noted {
		var err error
		if ctx, err = noteShown(ctx, &tap.Info{Header: md}); err != nil {
			tb.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	tb.Cleanup(cancel)
	return context.WithValue(ctx, benchKey{}, 1), state
}

type benchKey struct{}

// What a caller shows is found, with and without a note of it, and nothing is copied for a
// caller with a certificate.
func TestShown(t *testing.T) {
	for _, noted := range []bool{true, false} {
		ctx, state := shownCall(t, noted)
		if c := overgrpc.Credentials(ctx); c.TLS == nil || len(c.Authorization) != 0 || noted && c.TLS != state {
			t.Errorf("noted %t, a certificate alone: %+v", noted, c)
		}
		ctx, _ = shownCall(t, noted, "Authorization", "Bearer one", "authorization", "Bearer two")
		if c := overgrpc.Credentials(ctx); c.TLS == nil || !slices.Equal(c.Authorization, []string{"Bearer one", "Bearer two"}) {
			t.Errorf("noted %t, two tokens: %+v", noted, c)
		}
	}
	ctx, _ := shownCall(t, true)
	if k := overgrpc.Credentials(ctx).Known; k == nil || k != overgrpc.Credentials(ctx).Known {
		t.Errorf("an Access can keep nothing for a connection: %v", k)
	}
	if n := testing.AllocsPerRun(100, func() { _ = overgrpc.Credentials(ctx) }); n > 0 {
		t.Errorf("a caller with a certificate costs %v allocations", n)
	}
}

// The requests of a connection of HTTP have one place for who its certificate proves, and
// those of another have another.
func TestConnectionsOfHTTPAreKnown(t *testing.T) {
	request := func(conn context.Context) *Known {
		return overhttp.Credentials(httptest.NewRequestWithContext(conn, http.MethodGet, "/", nil)).Known
	}
	one, other := overhttp.WithKnown(t.Context(), nil), overhttp.WithKnown(t.Context(), nil)
	if k := request(one); k == nil || k != request(one) || k == request(other) {
		t.Errorf("%p, %p and %p", k, request(one), request(other))
	}
	if s, err := NewServer(Options{Decider: noDecider{}}); err != nil || s.http.ConnContext == nil {
		t.Errorf("%v: a server's connections are not known", err)
	}
}

// noDecider decides nothing.
type noDecider struct{ Decider }

// accessAt is an Access that notes the time it is given, and refuses.
type accessAt struct{ at time.Time }

func (a *accessAt) Identify(c Credentials) (Caller, error) {
	a.at = c.At
	return nil, ErrUnauthenticated
}

// A unary check reads the clock once for its duration and for its caller. A server that
// does not measure the duration leaves the clock to the Access.
func TestCallersAreIdentifiedAtTheTimeOfTheCall(t *testing.T) {
	ctx, _ := shownCall(t, true)
	access := new(accessAt)
	s := newService(Options{Decider: noDecider{}, Access: access})
	for _, begin := range []time.Time{time.Unix(1000, 0), {}} {
		if err := s.check(ctx, new(check), begin); !errors.Is(err, ErrUnauthenticated) || !access.at.Equal(begin) {
			t.Errorf("a check of %v is identified at %v: %v", begin, access.at, err)
		}
	}
}

// BenchmarkGRPCCredentials measures what it costs to find that a caller shows a certificate
// alone: with the note of it, the note itself, and to look for a token without.
func BenchmarkGRPCCredentials(b *testing.B) {
	ctx, _ := shownCall(b, true)
	md, _ := metadata.FromIncomingContext(ctx)
	note := tap.ServerInHandle(noteShown)
	for _, part := range []struct {
		name string
		run  func()
	}{
		{"noted", func() { _ = overgrpc.Credentials(ctx) }},
		{"note", func() { _, _ = note(ctx, &tap.Info{FullMethodName: "/weir.v1.Limiter/Check", Header: md}) }},
		{"look", func() { _ = metadata.ValueFromIncomingContext(ctx, overgrpc.Authorization) }},
	} {
		b.Run(part.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				part.run()
			}
		})
	}
}
