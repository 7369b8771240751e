package grpclimit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/grpclimit"
	"github.com/weirlimit/weir/middleware/identity"
)

// A cancellation may wait a second for its repetition, see [middle.Cancels], whose tests bound them.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/weirlimit/weir/internal/middle.(*Cancels).Begin.func1"))
}

// The methods that the tests call.
const (
	unary  = "/grpc.testing.TestService/UnaryCall"
	stream = "/grpc.testing.TestService/FullDuplexCall"
)

// clock is a clock that the test moves.
type clock struct{ at time.Time }

func newClock() *clock { return &clock{time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time { return c.at }

// node opens a node with rules, at the time of a clock (nil: one that stands).
func node(tb testing.TB, c *clock, rules string) *weir.Node {
	tb.Helper()
	if c == nil {
		c = newClock()
	}
	n, err := weir.Open(context.Background(), weir.Config{Now: c.now,
		Rules: []byte("version: 1\ndefaults: {algorithm: fixed_window}\nrules:\n" + rules)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { n.Close() })
	return n
}

func limit(tb testing.TB, d grpclimit.Decider, opts ...grpclimit.Option) *grpclimit.Limiter {
	tb.Helper()
	l, err := grpclimit.New(d, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// service echoes; in its streams it counts the messages that it received.
type service struct {
	testpb.UnimplementedTestServiceServer
	call     func(context.Context) error // in unary calls, may be nil
	swallow  bool                        // a stream ends well, whatever it received
	received int
}

func (s *service) UnaryCall(ctx context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	if s.call != nil {
		if err := s.call(ctx); err != nil {
			return nil, err
		}
	}
	return &testpb.SimpleResponse{Payload: r.GetPayload()}, nil
}

func (s *service) FullDuplexCall(ss testpb.TestService_FullDuplexCallServer) error {
	for {
		_, err := ss.Recv()
		if errors.Is(err, io.EOF) || err != nil && s.swallow {
			return nil
		}
		if err != nil {
			return err
		}
		s.received++
		if err := ss.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// serve serves s over TCP and returns a client of it.
func serve(tb testing.TB, s *service, creds credentials.TransportCredentials, client []grpc.DialOption,
	server ...grpc.ServerOption) testpb.TestServiceClient {
	tb.Helper()
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	g := grpc.NewServer(server...)
	testpb.RegisterTestServiceServer(g, s)
	done := make(chan struct{})
	go func() { defer close(done); g.Serve(ln) }()
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(ln.Addr().String(), append(client, grpc.WithTransportCredentials(creds))...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		conn.Close()
		g.Stop()
		<-done
	})
	return testpb.NewTestServiceClient(conn)
}

// limited serves with the interceptors of a limiter.
func limited(tb testing.TB, d grpclimit.Decider, opts ...grpclimit.Option) testpb.TestServiceClient {
	tb.Helper()
	l := limit(tb, d, opts...)
	return serve(tb, new(service), nil, nil, grpc.UnaryInterceptor(l.UnaryServer()),
		grpc.StreamInterceptor(l.StreamServer()))
}

// call makes a unary call with metadata, pairs of keys and values.
func call(c testpb.TestServiceClient, pairs ...string) error {
	_, err := c.UnaryCall(metadata.AppendToOutgoingContext(context.Background(), pairs...), &testpb.SimpleRequest{})
	return err
}

// until returns how many calls pass before the first that is denied, at most
// ten. Each has metadata of its own.
func until(tb testing.TB, c testpb.TestServiceClient, pairs func(i int) []string) int {
	tb.Helper()
	for i := range 10 {
		switch err := call(c, pairs(i)...); status.Code(err) {
		case codes.OK:
		case codes.ResourceExhausted:
			return i
		default:
			tb.Fatalf("call %d: %v", i, err)
		}
	}
	return 10
}

func same(pairs ...string) func(int) []string { return func(int) []string { return pairs } }

func secret(b byte) []byte { return bytes.Repeat([]byte{b}, identity.MinKeyBytes) }

func tokens(tb testing.TB, c *clock) *identity.Tokens {
	tb.Helper()
	t, err := identity.NewTokens(identity.TokenConfig{Algorithms: []string{"HS256"}, Key: secret(1), Now: c.now})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func signed(tb testing.TB, m jwt.SigningMethod, key any, user, group string, end time.Time) string {
	tb.Helper()
	s, err := jwt.NewWithClaims(m, jwt.MapClaims{"sub": user, "plan": group, "exp": end.Unix()}).SignedString(key)
	if err != nil {
		tb.Fatal(err)
	}
	return "Bearer " + s
}

type deciderFunc func(context.Context, *limiter.Request, *limiter.Decision) error

func (f deciderFunc) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return f(ctx, r, d)
}
