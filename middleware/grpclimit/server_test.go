package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/grpclimit"
)

// details takes the details of a status error apart.
func details(t *testing.T, err error) (info *errdetails.ErrorInfo, quota *errdetails.QuotaFailure,
	retry *errdetails.RetryInfo) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.QuotaFailure:
			quota = d
		case *errdetails.RetryInfo:
			retry = d
		default:
			t.Errorf("an unknown detail: %v", d)
		}
	}
	return info, quota, retry
}

// E8 for gRPC: a denial has a code, details and metadata; what is allowed has
// metadata.
func TestDenial(t *testing.T) {
	at := newClock()
	at.at = at.at.Add(30*time.Second + 100*time.Microsecond)
	c := limited(t, node(t, at, `  - {name: calls, limits: [1/minute, 100/hour]}`))
	var header metadata.MD
	if _, err := c.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(header["ratelimit"], header["ratelimit-policy"], header["retry-after"]),
		`["calls/minute";r=0;t=30, "calls/hour";r=99;t=3570] `+
			`["calls/minute";q=1;w=60, "calls/hour";q=100;w=3600] []`; got != want {
		t.Errorf("allowed: got %s, want %s", got, want)
	}
	header = nil
	_, err := c.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Header(&header))
	if got, want := fmt.Sprint(header["ratelimit"], header["retry-after"]),
		`["calls/minute";r=0;t=30, "calls/hour";r=99;t=3570] [30]`; got != want {
		t.Errorf("denied: got %s, want %s", got, want)
	}
	if s := status.Convert(err); s.Code() != codes.ResourceExhausted ||
		s.Message() != "calls/minute (1/minute) is exceeded; try again in 30 s." {
		t.Errorf("got %v", s)
	}
	info, quota, retry := details(t, err)
	if info.GetReason() != "RATE_LIMITED" || info.GetDomain() != "weir" ||
		fmt.Sprint(info.GetMetadata()) != "map[limit:minute rule:calls]" {
		t.Errorf("info: %v", info)
	}
	if v := quota.GetViolations(); len(v) != 1 || v[0].GetSubject() != "calls/minute" ||
		v[0].GetDescription() != "1/minute is exceeded" {
		t.Errorf("quota: %v", quota)
	}
	// 29.9999 s, in milliseconds rounded up.
	if got := retry.GetRetryDelay().AsDuration(); got != 30*time.Second {
		t.Errorf("retry after %v", got)
	}
	at.at = at.at.Add(29*time.Second + 999900*time.Microsecond - 1)
	if _, _, retry := details(t, call(c)); retry.GetRetryDelay().AsDuration() != time.Millisecond {
		t.Errorf("a tick before the end: retry %v", retry)
	}
	at.at = at.at.Add(1)
	if err := call(c); err != nil {
		t.Errorf("after the wait: %v", err)
	}
}

func TestNeverHasNoRetry(t *testing.T) {
	c := limited(t, node(t, nil,
		`  - {name: calls, limits: [{limit: 5, window: minute}, {limit: 3, window: hour, name: slow}]}`),
		grpclimit.CostFunc(func(context.Context, *grpclimit.Call) limiter.Cost { return limiter.Units(4) }))
	err := call(c)
	info, quota, retry := details(t, err)
	if status.Code(err) != codes.ResourceExhausted || retry != nil || len(quota.GetViolations()) != 1 ||
		info.GetMetadata()["never"] != "true" {
		t.Errorf("got %v, %v, %v, %v", err, info, quota, retry)
	}
}

func TestFallbackClosed(t *testing.T) {
	if _, _, retry := details(t,
		grpclimit.Denial(&limiter.Decision{})); retry.GetRetryDelay().AsDuration() != time.Millisecond {
		t.Errorf("a wait that is not known: %v", retry)
	}
	c := limited(t, deciderFunc(func(_ context.Context, _ *limiter.Request, d *limiter.Decision) error {
		d.Clear()
		d.Allowed, d.Rule, d.Source, d.RetryAfter = false, "calls", limiter.SourceFallbackClosed, 1500*time.Microsecond
		return nil
	}))
	err := call(c)
	info, quota, retry := details(t, err)
	if status.Code(err) != codes.Unavailable || quota != nil || info.GetMetadata()["rule"] != "calls" ||
		retry.GetRetryDelay().AsDuration() != 2*time.Millisecond {
		t.Errorf("got %v, %v, %v, %v", err, info, quota, retry)
	}
}

// talk opens a stream, and sends and receives up to n messages in turn. It
// returns how many came back and how the stream ended.
func talk(t *testing.T, c testpb.TestServiceClient, n int) (int, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := c.FullDuplexCall(ctx)
	if err != nil {
		return 0, err
	}
	for i := range n {
		if err := s.Send(&testpb.StreamingOutputCallRequest{}); err != nil && !errors.Is(err, io.EOF) {
			return i, err
		}
		if _, err := s.Recv(); err != nil {
			return i, err
		}
	}
	if err := s.CloseSend(); err != nil {
		return n, err
	}
	if _, err = s.Recv(); errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func TestStreams(t *testing.T) {
	c := limited(t, node(t, nil, `  - {name: calls, limits: [2/minute]}`))
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		n, err := talk(t, c, 5)
		if status.Code(err) != want || (n == 5) != (want == codes.OK) {
			t.Errorf("stream %d: %d messages, %v", i, n, err)
		}
	}
	s, err := c.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if h, err := s.Header(); err != nil || fmt.Sprint(h["ratelimit"],
		h["retry-after"]) != `["calls/minute";r=0;t=60] [60]` {
		t.Errorf("header %v, %v", h, err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
}

// A message on a stream costs what the rules or a function say, and the one that
// is denied ends the stream, even if the method does not say so.
func TestPerMessage(t *testing.T) {
	const rules = `
  - {name: messages, match: {method: [message]}, limits: [6/minute]}
  - {name: streams, match: {method: [stream]}, limits: [100/minute]}
`
	for _, swallow := range []bool{false, true} {
		l := limit(t, node(t, nil, rules), grpclimit.PerMessage(),
			grpclimit.CostFunc(func(_ context.Context, c *grpclimit.Call) limiter.Cost {
				if _, ok := c.Message.(*testpb.StreamingOutputCallRequest); ok != (c.Kind == grpclimit.Message) {
					t.Errorf("a call of kind %s has the message %T", c.Kind, c.Message)
				}
				if c.Kind == grpclimit.Message {
					return limiter.Units(2)
				}
				return limiter.Cost{}
			}))
		s := &service{swallow: swallow}
		c := serve(t, s, nil, nil, grpc.StreamInterceptor(l.StreamServer()))
		n, err := talk(t, c, 2)
		if n != 2 || err != nil {
			t.Errorf("premise: %d messages, %v", n, err)
		}
		n, err = talk(t, c, 5)
		if n != 1 || s.received != 3 || status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%d messages came back, %d were received, %v", n, s.received, err)
		}
		if _, _, retry := details(t, err); retry == nil {
			t.Error("no retry")
		}
	}
}

// received is a stream on which messages arrive without end.
type received struct {
	grpc.ServerStream
	ctx context.Context
	n   int
}

func (s *received) Context() context.Context    { return s.ctx }
func (s *received) SetHeader(metadata.MD) error { return nil }
func (s *received) RecvMsg(any) error           { s.n++; return nil }

// A stream that was denied a message receives no more, even if its method asks
// again when there is room.
func TestPerMessageEndsTheStream(t *testing.T) {
	asked := 0
	l := limit(t, deciderFunc(func(_ context.Context, _ *limiter.Request, d *limiter.Decision) error {
		d.Clear()
		asked++
		d.Allowed = asked != 3 // the stream, one message, and not the next
		return nil
	}), grpclimit.PerMessage())
	s := &received{ctx: t.Context()}
	err := l.StreamServer()(nil, s, &grpc.StreamServerInfo{FullMethod: stream}, func(_ any, ss grpc.ServerStream) error {
		for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted, codes.ResourceExhausted} {
			if err := ss.RecvMsg(nil); status.Code(err) != want {
				t.Errorf("message %d: %v", i, err)
			}
		}
		return nil
	})
	if status.Code(err) != codes.ResourceExhausted || s.n != 2 {
		t.Errorf("%v after %d messages", err, s.n)
	}
}

// A1: a plain call within a method, and a decision alone.
func TestCheckInAMethod(t *testing.T) {
	n := node(t, nil, `  - {name: exports, match: {path: "^/exports$"}, limits: [1/minute]}`)
	l := limit(t, n)
	s := &service{call: func(ctx context.Context) error {
		return l.Check(ctx, &grpclimit.Call{Method: "/exports", Kind: grpclimit.Unary})
	}}
	c := serve(t, s, nil, nil)
	var header metadata.MD
	if _, err := c.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Header(&header)); err != nil ||
		len(header["ratelimit"]) != 1 {
		t.Errorf("got %v, %v", err, header)
	}
	if err := call(c); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
	var d limiter.Decision
	for _, want := range []bool{true, false} {
		if err := l.DecideInto(t.Context(), &grpclimit.Call{Method: "/exports", Kind: "other", Client: true},
			&d); err != nil || d.Allowed != want {
			t.Errorf("got %+v, %v", d, err)
		}
	}
}

// A12: the handlers of denials and of errors.
func TestHandlers(t *testing.T) {
	n := node(t, nil, `  - {name: calls, limits: [{limit: 1, window: second, block: 30s}]}`)
	mode := "refuse"
	c := limited(t, n,
		grpclimit.OnDenied(func(_ context.Context, call *grpclimit.Call, d *limiter.Decision) error {
			if mode == "pass" {
				return nil
			}
			return status.Error(codes.PermissionDenied, fmt.Sprint(call.Method, " ", d.BlockedBy().Blocked, " ", d.RetryAfter))
		}),
		grpclimit.OnError(func(_ context.Context, call *grpclimit.Call, err error) error {
			if mode == "pass" {
				return nil
			}
			return status.Error(codes.DataLoss, call.Kind+": "+err.Error())
		}))
	if err := call(c); err != nil {
		t.Fatal(err)
	}
	if err := call(c); status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != unary+" true 30s" {
		t.Errorf("denied: %v", err)
	}
	n.Close()
	if err := call(c); status.Code(err) != codes.DataLoss || !strings.HasPrefix(status.Convert(err).Message(), "UNARY: ") {
		t.Errorf("failed: %v", err)
	}
	mode = "pass"
	if err := call(c); err != nil {
		t.Errorf("failed, to go on: %v", err)
	}
	c = limited(t, node(t, nil, `  - {name: calls, limits: [1/second]}`),
		grpclimit.OnDenied(func(context.Context, *grpclimit.Call, *limiter.Decision) error {
			return nil
		}))
	if got := until(t, c, same()); got != 10 {
		t.Errorf("denied, to go on: %d passed", got)
	}
}

// A call that cannot be decided does not pass, unless the limiter fails open and the
// caller did not cause the error.
func TestFailures(t *testing.T) {
	broken := deciderFunc(func(ctx context.Context, r *limiter.Request, _ *limiter.Decision) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case r.User == "long":
			return fmt.Errorf("%w: too long", limiter.ErrInvalid)
		}
		return errors.New("the secret address of the backend does not answer")
	})
	byUser := grpclimit.User(grpclimit.FromMetadata("X-User"))
	for name, c := range map[string]struct {
		opts        []grpclimit.Option
		want        codes.Code
		long, ended codes.Code
	}{
		"closed": {[]grpclimit.Option{byUser}, codes.Unavailable, codes.InvalidArgument, codes.Canceled},
		"open":   {[]grpclimit.Option{byUser, grpclimit.FailOpen()}, codes.OK, codes.InvalidArgument, codes.Canceled},
	} {
		client := limited(t, broken, c.opts...)
		err := call(client)
		if status.Code(err) != c.want || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		if err := call(client, "x-user", "long"); status.Code(err) != c.long {
			t.Errorf("%s, a user that is too long: %v", name, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = limit(t, broken, c.opts...).UnaryServer()(ctx, nil, &grpc.UnaryServerInfo{},
			func(context.Context, any) (any, error) {
				return "passed", nil
			})
		if status.Code(err) != c.ended {
			t.Errorf("%s, given up: %v", name, err)
		}
	}
}

func TestSkipAndNoMetadata(t *testing.T) {
	l := limit(t, node(t, nil, `  - {name: calls, limits: [1/minute]}`), grpclimit.NoMetadata(),
		grpclimit.Skip(func(_ context.Context, c *grpclimit.Call) bool { return c.Kind == grpclimit.Stream }))
	c := serve(t, new(service), nil, nil, grpc.UnaryInterceptor(l.UnaryServer()), grpc.StreamInterceptor(l.StreamServer()))
	for range 3 {
		if _, err := talk(t, c, 1); err != nil {
			t.Errorf("skipped: %v", err)
		}
	}
	var header metadata.MD
	for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		_, err := c.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Header(&header))
		if status.Code(err) != want || len(header["ratelimit"])+len(header["retry-after"]) != 0 {
			t.Errorf("got %v, %v", err, header)
		}
	}
}

// No rule, unlimited rules and shadow rules leave no metadata.
func TestNothingToTell(t *testing.T) {
	c := limited(t, node(t, nil, `  - {name: trial, limits: [1/minute], shadow: true}`))
	for range 2 {
		var header metadata.MD
		_, err := c.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Header(&header))
		if keys := slices.Collect(func(yield func(string) bool) {
			for k := range header {
				if strings.HasPrefix(k, "rate") && !yield(k) {
					return
				}
			}
		}); err != nil || len(keys) != 0 {
			t.Errorf("got %v, %v", err, keys)
		}
	}
}

// The client's interceptors hold back what is denied: it is not sent.
func TestClient(t *testing.T) {
	n := node(t, nil, `
  - {name: unary, match: {method: [UNARY]}, key: [user], limits: [1/minute]}
  - {name: stream, match: {method: [STREAM]}, key: [path], limits: [1/minute]}
`)
	l := limit(t, n, grpclimit.User(grpclimit.FromMetadata("X-Account")))
	sent := 0
	s := &service{call: func(context.Context) error { sent++; return nil }}
	c := serve(t, s, nil, []grpc.DialOption{grpc.WithUnaryInterceptor(l.UnaryClient()),
		grpc.WithStreamInterceptor(l.StreamClient())})
	for i, account := range []string{"a", "a", "b"} {
		err := call(c, "x-account", account)
		if want := []codes.Code{codes.OK, codes.ResourceExhausted, codes.OK}[i]; status.Code(err) != want {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if sent != 2 {
		t.Errorf("%d calls were sent, want 2", sent)
	}
	if _, err := talk(t, c, 3); err != nil || s.received != 3 {
		t.Errorf("the first stream: %v, %d messages", err, s.received)
	}
	if _, err := talk(t, c, 3); status.Code(err) != codes.ResourceExhausted || s.received != 3 {
		t.Errorf("the second: %v, %d messages", err, s.received)
	}
}
