package transport_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// A check with hold_us is a reservation by every call that checks, and a check without it is
// none, also if it comes in memory that one had before.
func TestHoldsByEveryCall(t *testing.T) {
	s := newServer(t, reserved, allowRefunds)
	stream, err := s.api.CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	columns := func(id string, hold int64) {
		t.Helper()
		if err := stream.Send(&weirv1.CheckColumns{
			Keys: []byte("ada"), UserLengths: []uint32{3}, Ids: []byte(id), IdLengths: []uint32{uint32(len(id))}, HoldUs: hold,
		}); err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); err != nil || m.GetError() != nil || len(m.GetErrors()) > 0 {
			t.Fatal(m, err)
		}
	}
	holds := func(want int64) {
		t.Helper()
		if n := s.node.Stats().Holds; n != want {
			t.Fatalf("%d holds, want %d", n, want)
		}
	}
	if _, err := s.api.Check(t.Context(), &weirv1.CheckRequest{User: "ada", Id: "1", HoldUs: 5_000_000}); err != nil {
		t.Fatal(err)
	}
	holds(1)
	m, err := s.api.CheckBatch(t.Context(),
		&weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{{User: "ada", Id: "2", HoldUs: 5_000_000},
			{User: "ada", Id: "3"}}})
	if err != nil || m.GetResults()[0].GetError() != nil || m.GetResults()[1].GetError() != nil {
		t.Fatal(m, err)
	}
	holds(2)
	columns("4", 0)
	holds(2)
	columns("5", 5_000_000)
	holds(3)
	columns("6", 0)
	holds(3)
}

// What is refused over gRPC has the texts of HTTP, and a code that says what may help. Nothing
// changes by it.
func TestReservationsRefused(t *testing.T) {
	s := newServer(t, reserved, allowRefunds)
	ctx := t.Context()
	check := func(id string, hold int64) error {
		_, err := s.api.Check(ctx, &weirv1.CheckRequest{User: "ada", Cost: new(int64(600)), Id: id, HoldUs: hold})
		return err
	}
	if err := check("1", 60_000_000); err != nil {
		t.Fatal(err)
	}
	if m, err := s.api.Settle(ctx, &weirv1.SettleRequest{User: "ada", Id: "1", Actual: new(int64(5))}); err != nil ||
		m.GetEstimate() != 600 {
		t.Fatal(m, err)
	}
	if err := check("2", 60_000_000); err != nil {
		t.Fatal(err)
	}
	settle := func(m *weirv1.SettleRequest) error { _, err := s.api.Settle(ctx, m); return err }
	extend := func(m *weirv1.ExtendRequest) error { _, err := s.api.Extend(ctx, m); return err }
	for i, test := range []struct {
		err  error
		code codes.Code
		want string
	}{
		{settle(&weirv1.SettleRequest{User: "ada", Id: "1", Actual: new(int64(7))}), codes.FailedPrecondition,
			"the id stands for 5 units for good"},
		{extend(&weirv1.ExtendRequest{User: "ada", Id: "1", HoldUs: 1000}), codes.FailedPrecondition,
			"the id stands for 5 units for good"},
		{settle(&weirv1.SettleRequest{User: "ada", Actual: new(int64(7))}), codes.InvalidArgument, "the request has no id"},
		{settle(&weirv1.SettleRequest{User: "ada", Id: "2"}), codes.InvalidArgument,
			"does not say what was used: give actual"},
		{settle(&weirv1.SettleRequest{User: "ada", Id: "2", Actual: new(int64(-1))}), codes.InvalidArgument,
			"settled with -1"},
		{settle(&weirv1.SettleRequest{User: "ada", Id: "2", Actual: new(int64(1)), IfUnknown: 7}), codes.InvalidArgument,
			"there is no if_unknown number 7"},
		{settle(&weirv1.SettleRequest{User: "ada", Id: strings.Repeat("x", 65), Actual: new(int64(1))}),
			codes.InvalidArgument, "the id has 65 bytes"},
		{extend(&weirv1.ExtendRequest{User: "ada", Id: "2"}), codes.InvalidArgument, "extended by no time"},
		{extend(&weirv1.ExtendRequest{User: "ada", Id: "2", HoldUs: 1 << 62}), codes.InvalidArgument, "out of range"},
		{extend(&weirv1.ExtendRequest{User: "ada", Id: "2", HoldUs: 1}), codes.InvalidArgument, "out of range"},
		{check("", 1000), codes.InvalidArgument, "is to be held and has no id"},
		{check("3", -1), codes.InvalidArgument, "out of range"},
	} {
		if status.Code(test.err) != test.code || !strings.Contains(status.Convert(test.err).Message(), test.want) {
			t.Errorf("%d: %v, want %v: %s", i, test.err, test.code, test.want)
		}
	}
	if got := s.get(t, "/v1/check?user=ada&peek=true"); !strings.Contains(got.body, `"remaining":95`) ||
		s.node.Stats().Holds != 1 {
		t.Errorf("%+v, %d holds", got, s.node.Stats().Holds)
	}
}

// One number for rules that have reserved different ones is refused as a conflict with what is reserved.
func TestCostsThatDiffer(t *testing.T) {
	s := newServer(t, `version: 1
defaults: {key: [user]}
rules: [{name: requests, continue: true, limits: [100/day]}, {name: tokens, limits: [4000/day], cost: {from: "attr:tokens", default: 1}}]
`, allowRefunds)
	if got := s.post(t, "/v1/check",
		`{"user":"ada","id":"1","hold_ms":60000,"attributes":{"tokens":"2000"}}`); got.status != 200 {
		t.Fatalf("%+v", got)
	}
	got := s.post(t, "/v1/settle", `{"user":"ada","id":"1","actual":800}`)
	if got.status != 409 || !strings.Contains(got.body, "reserved 1 and 2000 units") {
		t.Errorf("%+v", got)
	}
	_, err := s.api.Settle(t.Context(), &weirv1.SettleRequest{User: "ada", Id: "1", Actual: new(int64(800))})
	if status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
	if s.node.Stats().Holds != 2 {
		t.Errorf("%d holds", s.node.Stats().Holds)
	}
}

// Reservations need the permission to refund, by every call.
func TestReservationsOverGRPCNeedRefunds(t *testing.T) {
	s := newServer(t, reserved, nil)
	ctx := t.Context()
	held := &weirv1.CheckRequest{User: "ada", Id: "1", HoldUs: 60_000_000}
	for name, call := range map[string]func() error{
		"Check": func() error { _, err := s.api.Check(ctx, held); return err },
		"CheckBatch": func() error {
			m, err := s.api.CheckBatch(ctx, &weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{held}})
			return or(err, m.GetResults()[0].GetError())
		},
		"CheckStream": func() error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := s.api.CheckStream(ctx)
			if err != nil {
				return err
			}
			if err := stream.Send(&weirv1.CheckColumns{Keys: []byte("ada"), UserLengths: []uint32{3}, Ids: []byte("1"),
				IdLengths: []uint32{1}, HoldUs: 60_000_000}); err != nil {
				return err
			}
			m, err := stream.Recv()
			return or(err, m.GetError())
		},
		"Settle": func() error {
			_, err := s.api.Settle(ctx, &weirv1.SettleRequest{User: "ada", Id: "1", Actual: new(int64(1))})
			return err
		},
		"Cancel": func() error { _, err := s.api.Cancel(ctx, &weirv1.CancelRequest{User: "ada", Id: "1"}); return err },
		"Extend": func() error {
			_, err := s.api.Extend(ctx, &weirv1.ExtendRequest{User: "ada", Id: "1", HoldUs: 1000})
			return err
		},
	} {
		if err := call(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "--allow-refunds") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := s.get(t, "/v1/check?user=ada&peek=true"); !strings.Contains(got.body, `"remaining":700`) {
		t.Errorf("%+v", got)
	}
}

// or returns the error of a call, or that of its only check.
func or(err error, of *weirv1.CheckError) error {
	if err != nil || of == nil {
		return err
	}
	return status.Error(codes.Code(of.GetCode()), of.GetMessage())
}

// A decider without reservations says so over gRPC too.
func TestNoReservationsOverGRPC(t *testing.T) {
	s := newServer(t, reserved, func(o *transport.Options) { o.Decider = struct{ transport.Decider }{o.Decider} })
	_, err := s.api.Cancel(t.Context(), &weirv1.CancelRequest{User: "ada", Id: "1"})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "there are no reservations here") {
		t.Error(err)
	}
}

// How long an id stays settled is up to the settlement, over gRPC too.
func TestSettledFor(t *testing.T) {
	s := newServer(t, reserved, allowRefunds)
	settle := &weirv1.SettleRequest{User: "ada", Id: "1", IdTtlUs: 2_000_000, Actual: new(int64(9))}
	for i, want := range []weirv1.ReservationState{
		weirv1.ReservationState_RESERVATION_STATE_CHARGED, weirv1.ReservationState_RESERVATION_STATE_REPEATED,
		weirv1.ReservationState_RESERVATION_STATE_CHARGED,
	} {
		if m, err := s.api.Settle(t.Context(), settle); err != nil || m.GetState() != want {
			t.Errorf("%d: %v, %v", i, m, err)
		}
		s.clock.set(limiter.TickOf(s.clock.read()) + limiter.Second)
	}
}

// spender is a caller that may do all, and counts what its budget is charged.
type spender struct {
	checks, bytes, keys int
	over                error // why the next message is beyond the budget
	unknown             error // why it is nobody
}

func (s *spender) Identify(transport.Credentials) (transport.Caller, error) { return s, s.unknown }
func (*spender) Name() string                                               { return "spender" }
func (*spender) Tenant() string                                             { return "" }
func (*spender) May(transport.Action) (limiter.Scope, error)                { return nil, nil }
func (*spender) OpenStream() error                                          { return nil }
func (*spender) CloseStream()                                               {}
func (*spender) CountsKeys() bool                                           { return true }
func (s *spender) SpendKeys(n int)                                          { s.keys += n }
func (s *spender) Spend(checks, bytes int) error {
	s.checks, s.bytes = s.checks+checks, s.bytes+bytes
	return s.over
}

// What is asked about reservations is charged to the caller's budget as a check is, and to that of
// new keys if it may have made one.
func TestReservationsSpend(t *testing.T) {
	by := new(spender)
	s := newServer(t, reserved, func(o *transport.Options) { o.Access = by })
	ctx := t.Context()
	for i, ask := range []func() error{
		func() error {
			_, err := s.api.Settle(ctx, &weirv1.SettleRequest{User: "ada", Id: "1", Actual: new(int64(1))})
			return err
		},
		func() error { _, err := s.api.Cancel(ctx, &weirv1.CancelRequest{User: "ada", Id: "2"}); return err },
		func() error {
			_, err := s.api.Extend(ctx, &weirv1.ExtendRequest{User: "ada", Id: "2", HoldUs: 5000})
			return err
		},
	} {
		if err := ask(); err != nil || by.checks != i+1 || by.keys != 1 {
			t.Errorf("%d: %v, the budget has %+v", i, err, by)
		}
	}
}

// A settlement that makes several keys is charged as all of them.
func TestASettlementSpendsForEachKey(t *testing.T) {
	by := new(spender)
	s := newServer(t, "rules: [{name: both, keys: [[user], [path]], limits: [7/minute, 700/hour]}]",
		func(o *transport.Options) {
			o.Access = by
		})
	settle := &weirv1.SettleRequest{User: "ada", Path: "/cart", Id: "1", Actual: new(int64(1))}
	if m, err := s.api.Settle(t.Context(), settle); err != nil ||
		m.GetState() != weirv1.ReservationState_RESERVATION_STATE_CHARGED || by.keys != 2 {
		t.Errorf("%v, %v, and the budget has %d new keys", m, err, by.keys)
	}
	if resp, err := http.Post(s.url+"/v1/settle", "application/json",
		strings.NewReader(`{"user":"bob","path":"/pay","id":"2","actual":1}`)); err != nil {
		t.Fatal(err)
	} else if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK || by.keys != 4 {
		t.Errorf("status %d, %v, and the budget has %d new keys", resp.StatusCode, err, by.keys)
	}
}
