package listen

import (
	"context"
	"crypto/tls"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/weirlimit/weir/internal/frontend/overgrpc"
)

// shownCall returns the context of a call, with the metadata that gRPC's clients send.
func shownCall(tb testing.TB, noted bool, more ...string) (context.Context, *tls.ConnectionState) {
	tb.Helper()
	state := new(tls.ConnectionState)
	conn := &watchedConn{of: &Watcher{WatchOptions: WatchOptions{Noted: noted}}, secured: &securedConn{state: state}}
	md := metadata.Pairs(append([]string{
		":authority", "127.0.0.1:8081", "content-type", "application/grpc", "user-agent", "grpc-go/1.85.0",
		"grpc-accept-encoding", "gzip",
	}, more...)...)
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: connAddr{conn: conn},
		AuthInfo: credentials.TLSInfo{State: *state}})
	ctx = metadata.NewIncomingContext(ctx, md)
	if noted {
		var err error
		if ctx, err = NoteShown(ctx, &tap.Info{Header: md}); err != nil {
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
		if c := overgrpc.Credentials(ctx); c.TLS == nil ||
			!slices.Equal(c.Authorization, []string{"Bearer one", "Bearer two"}) {
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

// A server that takes long header fields takes no call with many: of each field gRPC keeps far more than its bytes.
func TestNoteFew(t *testing.T) {
	for n, want := range map[int]codes.Code{2: codes.OK, mostFields - 3: codes.OK,
		mostFields - 2: codes.ResourceExhausted} {
		md := metadata.Pairs("content-type", "application/grpc", "authorization", "Bearer one", "te", "trailers")
		for range n {
			md.Append("accept-encoding", "gzip")
		}
		ctx, err := NoteFew(t.Context(), &tap.Info{Header: md})
		if status.Code(err) != want || err == nil && ctx.Value(shownKey{}) == nil {
			t.Errorf("%d more fields: %v, want %v", n, err, want)
		}
	}
}

// BenchmarkGRPCCredentials measures what it costs to find that a caller shows a certificate
// alone: with the note of it, the note itself, and to look for a token without.
func BenchmarkGRPCCredentials(b *testing.B) {
	ctx, _ := shownCall(b, true)
	md, _ := metadata.FromIncomingContext(ctx)
	note := tap.ServerInHandle(NoteShown)
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
