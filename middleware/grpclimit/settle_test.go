package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/grpclimit"
)

const budget = "  - {name: budget, cost: 40, key: [group], limits: [{limit: 100, window: 1h}]}\n"

// used is what a call has used: 10, and 5 for each message of a stream; nothing if it failed.
func used(_ context.Context, call *grpclimit.Call, out *grpclimit.Result) limiter.Cost {
	switch {
	case out.Panicked || out.Err != nil || out.Last == nil:
		return limiter.Units(0)
	case call.Kind == grpclimit.Stream:
		return limiter.Units(5 * out.Sent)
	}
	return limiter.Units(10)
}

// left returns what remains for the group that all are in.
func left(t *testing.T, n *weir.Node) uint64 {
	t.Helper()
	d, err := n.Peek(context.Background(), limiter.Request{Path: "/"})
	if err != nil {
		t.Fatal(err)
	}
	return d.Limit(0).Remaining
}

// A call costs its estimate while it is served, and then what was used, however it ends.
func TestSettle(t *testing.T) {
	n := node(t, nil, budget)
	settled := make(chan limiter.Amended, 1)
	l := limit(t, n, grpclimit.Settle(time.Minute, used),
		grpclimit.OnSettled(func(_ context.Context, _ *grpclimit.Call, a limiter.Amended, err error) {
			if err != nil {
				t.Error(err)
			}
			settled <- a
		}))
	var fails error
	during := make(chan uint64, 1)
	recovers := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (out any,
		err error) {
		defer func() {
			if e := recover(); e != nil {
				err = status.Error(codes.Internal, "panicked")
			}
		}()
		return next(ctx, req)
	}
	s := &service{call: func(context.Context) error {
		during <- left(t, n)
		if errors.Is(fails, io.ErrNoProgress) {
			panic(fails)
		}
		return fails
	}}
	c := serve(t, s, nil, nil, grpc.ChainUnaryInterceptor(recovers, l.UnaryServer()),
		grpc.StreamInterceptor(l.StreamServer()))
	for i, step := range []struct {
		err          error
		during, left uint64
	}{{nil, 60, 90}, {errors.New("it fails"), 50, 90}, {io.ErrNoProgress, 50, 90}, {nil, 50, 80}} {
		fails = step.err
		err := call(c)
		if a := <-settled; (err == nil) != (step.err == nil) || a.State != limiter.AmendDone || a.Estimate != 40 {
			t.Errorf("%d: %v, %+v", i, err, a)
		}
		if got := <-during; got != step.during || left(t, n) != step.left {
			t.Errorf("%d: %d were left meanwhile, and %d after, want %d and %d", i, got, left(t, n), step.during, step.left)
		}
	}
	ss, err := c.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := ss.Send(&testpb.StreamingOutputCallRequest{}); err != nil {
			t.Fatal(err)
		}
		if _, err := ss.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if got := left(t, n); got != 40 {
		t.Errorf("%d are left while a stream is open", got)
	}
	if err := ss.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := ss.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if <-settled; left(t, n) != 65 {
		t.Errorf("%d are left after a stream", left(t, n))
	}
	ctx, hangUp := context.WithCancel(t.Context())
	if ss, err = c.FullDuplexCall(ctx); err == nil {
		if err = ss.Send(&testpb.StreamingOutputCallRequest{}); err == nil {
			_, err = ss.Recv()
		}
	}
	if err != nil || left(t, n) != 25 {
		t.Fatal(err, left(t, n))
	}
	if err := call(c); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("with 25 left: %v", err)
	}
	hangUp()
	if <-settled; left(t, n) != 65 || n.Stats().Holds != 0 {
		t.Errorf("after the caller hung up %d are left, %d holds", left(t, n), n.Stats().Holds)
	}
}

// What reserved nothing is not settled: a call that is skipped, that no rule matches, or that
// proceeds since the decider fails. Check charges for good.
func TestSettleOnlyWhatIsReserved(t *testing.T) {
	n := node(t, nil, budget)
	none := grpclimit.Settle(time.Minute, func(context.Context, *grpclimit.Call, *grpclimit.Result) limiter.Cost {
		t.Error("settled")
		return limiter.Units(0)
	})
	skip := grpclimit.Skip(func(context.Context, *grpclimit.Call) bool { return true })
	other := node(t, nil, "  - {name: budget, match: {path: ^/budget}, limits: [{limit: 100, window: 1h}]}\n")
	for name, c := range map[string]testpb.TestServiceClient{
		"skipped": limited(t, n, none, skip), "no rule": limited(t, other, none),
		"failing": limited(t, failing{node(t, nil, budget)}, none, grpclimit.FailOpen()),
	} {
		if err := call(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := limit(t, n, none).Check(t.Context(), &grpclimit.Call{Method: unary, Kind: grpclimit.Unary}); err != nil ||
		n.Stats().Holds != 0 {
		t.Errorf("%v, %d holds", err, n.Stats().Holds)
	}
}

// failing has no answer, whatever it decides.
type failing struct{ *weir.Node }

func (f failing) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	_ = f.Node.CheckInto(ctx, r, d)
	return errors.New("it is away")
}

// hanging decides while its caller hangs up.
type hanging struct {
	*weir.Node
	hangUp func()
}

func (h hanging) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	_ = h.Node.CheckInto(ctx, r, d)
	h.hangUp()
	return ctx.Err()
}

// A caller that hangs up while its call is checked keeps no estimate.
func TestHangUpDuringTheCheck(t *testing.T) {
	n := node(t, nil, budget)
	none := grpclimit.Settle(time.Minute, func(context.Context, *grpclimit.Call, *grpclimit.Result) limiter.Cost {
		t.Error("settled")
		return limiter.Units(0)
	})
	ctx, hangUp := context.WithCancel(t.Context())
	l := limit(t, hanging{n, hangUp}, none, grpclimit.FailOpen())
	_, err := l.UnaryServer()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: unary}, func(context.Context, any) (any, error) {
		t.Error("it is served")
		return nil, nil
	})
	if got := left(t, n); status.Code(err) != codes.Canceled || got != 100 || n.Stats().Holds != 0 {
		t.Errorf("%v, %d are left, %d holds", err, got, n.Stats().Holds)
	}
}

// unanswered reserves, and its own time ends before it has the answer.
type unanswered struct{ *weir.Node }

func (s unanswered) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	_ = s.Node.CheckInto(ctx, r, d)
	return errors.New("a node did not answer")
}

// serveOne serves a unary call by the interceptor of a limiter.
func serveOne(l *grpclimit.Limiter) error {
	_, err := l.UnaryServer()(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: unary},
		func(context.Context, any) (any, error) {
			return nil, nil
		})
	return err
}

// A call whose check was reserved, and not answered in the decider's time, keeps no estimate, also if it proceeds.
func TestUnansweredCheck(t *testing.T) {
	n := node(t, nil, budget)
	none := grpclimit.Settle(time.Minute, func(context.Context, *grpclimit.Call, *grpclimit.Result) limiter.Cost {
		t.Error("settled")
		return limiter.Units(0)
	})
	for want, options := range map[codes.Code][]grpclimit.Option{codes.Unavailable: {none},
		codes.OK: {none, grpclimit.FailOpen()}} {
		synctest.Test(t, func(t *testing.T) {
			if err := serveOne(limit(t, unanswered{n}, options...)); status.Code(err) != want {
				t.Errorf("%v, want %v", err, want)
			}
			synctest.Wait()
			if got := left(t, n); got != 100 || n.Stats().Holds != 0 {
				t.Errorf("%v: %d are left, %d holds", want, got, n.Stats().Holds)
			}
		})
	}
}

// Numbers by attribute settle each rule with its own; an empty map cancels, nil leaves what is reserved, and so does
// a panic.
func TestSettleBy(t *testing.T) {
	const both = "  - {name: money, continue: true, key: [group], limits: [{limit: 1000, window: 1h}], " +
		"cost: {from: \"attr:udollars\"}}\n" +
		"  - {name: tokens, key: [group], limits: [{limit: 100, window: 1h}], cost: {from: \"attr:tokens\"}}\n"
	for _, test := range []struct {
		named  map[string]int64
		panics bool
		left   uint64 // of the money
		holds  int64
	}{
		{map[string]int64{"tokens": 7, "udollars": 30}, false, 970, 0},
		{map[string]int64{"tokens": 7}, false, 100, 2}, // refused
		{map[string]int64{}, false, 1000, 0},
		{nil, false, 100, 2},
		{nil, true, 100, 2},
	} {
		n := node(t, newClock(), both)
		var failed error
		l := limit(t, n, grpclimit.Attribute("tokens", func(context.Context, *grpclimit.Call) string { return "40" }),
			grpclimit.Attribute("udollars", func(context.Context, *grpclimit.Call) string { return "900" }),
			grpclimit.SettleBy(time.Minute, func(context.Context, *grpclimit.Call, *grpclimit.Result) map[string]int64 {
				if test.panics {
					panic("a test")
				}
				return test.named
			}), grpclimit.OnSettled(func(_ context.Context, _ *grpclimit.Call, a limiter.Amended, err error) {
				if failed = err; err == nil && a.State != limiter.AmendDone {
					t.Errorf("%+v", a)
				}
			}))
		func() {
			defer func() { _ = recover() }()
			_ = serveOne(l)
		}()
		if got := left(t, n); got != test.left || n.Stats().Holds != test.holds ||
			(failed != nil) != (len(test.named) == 1) {
			t.Errorf("%v: %d are left, %d holds, %v", test.named, got, n.Stats().Holds, failed)
		}
	}
}

// A function that panics instead of saying what was used leaves the estimate for good, and its panic
// goes on.
func TestUsedPanics(t *testing.T) {
	c := newClock()
	n := node(t, c, "  - {name: budget, cost: 40, key: [group], on_expiry: release, limits: [{limit: 100, window: 1h}]}\n")
	told := 0
	l := limit(t, n, grpclimit.Settle(time.Minute, func(context.Context, *grpclimit.Call, *grpclimit.Result) limiter.Cost {
		panic("a test")
	}),
		grpclimit.OnSettled(func(_ context.Context, _ *grpclimit.Call, a limiter.Amended, err error) {
			if told++; err != nil || a.State != limiter.AmendDone {
				t.Errorf("%+v, %v", a, err)
			}
		}))
	func() {
		defer func() {
			if e := recover(); e != "a test" {
				t.Errorf("panicked with %v", e)
			}
		}()
		_ = serveOne(l)
	}()
	if n.Stats().Holds != 0 || told != 1 {
		t.Errorf("%d holds, %d settlements", n.Stats().Holds, told)
	}
	c.at = c.at.Add(2 * time.Minute)
	if got := left(t, n); got != 60 {
		t.Errorf("%d are left", got)
	}
}

// bare is a decider without reservations.
type bare struct{ grpclimit.Decider }

func TestBadSettle(t *testing.T) {
	n := node(t, nil, budget)
	good := grpclimit.Settle(time.Minute, used)
	for want, options := range map[string][]grpclimit.Option{
		"Settle needs a function":    {grpclimit.Settle(time.Minute, nil)},
		"SettleBy needs a function":  {grpclimit.SettleBy(time.Minute, nil)},
		"OnSettled needs a function": {good, grpclimit.OnSettled(nil)},
		"OnSettled needs Settle": {grpclimit.OnSettled(func(context.Context, *grpclimit.Call,
			limiter.Amended, error) {
		})},
		"Settle with a hold of 0s is out of range": {grpclimit.Settle(0, used)},
	} {
		if _, err := grpclimit.New(n, options...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := grpclimit.New(bare{n}, good); err == nil ||
		!strings.Contains(err.Error(), "needs a decider with reservations") {
		t.Error(err)
	}
}
