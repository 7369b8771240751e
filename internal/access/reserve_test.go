package access

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Who may check and not refund reserves, settles, cancels and extends nothing, however it asks.
func TestReservationsNeedThePermission(t *testing.T) {
	w := newWorld(t, permissions)
	shop := w.token("shop")
	for path, body := range map[string]string{
		"/v1/check":  `{"path":"/cart","user":"ada","id":"7","hold_ms":60000}`,
		"/v1/settle": `{"path":"/cart","user":"ada","id":"7","actual":1}`,
		"/v1/cancel": `{"path":"/cart","user":"ada","id":"7"}`,
		"/v1/extend": `{"path":"/cart","user":"ada","id":"7","hold_ms":60000}`,
	} {
		if code, text, _ := w.ask("POST", w.http+path, shop, body); code != http.StatusForbidden ||
			!strings.Contains(text, "refund") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	ctx := w.bearer(shop)
	held := &weirv1.CheckRequest{Path: "/cart", User: "ada", Id: "7", HoldUs: 60_000_000}
	for what, ask := range map[string]func() error{
		"Check": func() error { _, err := w.grpc.Check(ctx, held); return err },
		"CheckBatch": func() error {
			m, err := w.grpc.CheckBatch(ctx, &weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{held}})
			if err != nil || m.GetResults()[0].GetError() == nil {
				return fmt.Errorf("%v, %w", m, err)
			}
			return status.Error(codes.Code(m.GetResults()[0].GetError().GetCode()), "")
		},
		"CheckStream": func() error {
			stream, err := w.grpc.CheckStream(ctx)
			if err == nil {
				err = stream.Send(&weirv1.CheckColumns{Keys: []byte("/cart"), PathLengths: []uint32{5}, Ids: []byte("7"),
					IdLengths: []uint32{1}, HoldUs: 60_000_000})
			}
			if err == nil {
				err = stream.CloseSend()
			}
			if err != nil {
				return err
			}
			m, err := stream.Recv()
			if err != nil || m.GetError() == nil {
				return fmt.Errorf("%v, %w", m, err)
			}
			return status.Error(codes.Code(m.GetError().GetCode()), "")
		},
		"Settle": func() error {
			_, err := w.grpc.Settle(ctx, &weirv1.SettleRequest{Path: "/cart", User: "ada", Id: "7", Actual: new(int64(1))})
			return err
		},
		"Cancel": func() error {
			_, err := w.grpc.Cancel(ctx, &weirv1.CancelRequest{Path: "/cart", User: "ada", Id: "7"})
			return err
		},
		"Extend": func() error {
			_, err := w.grpc.Extend(ctx, &weirv1.ExtendRequest{Path: "/cart", User: "ada", Id: "7", HoldUs: 60_000_000})
			return err
		},
	} {
		if err := ask(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.nothingCounted()
}

// A tenant does not reach a reservation of another one, although it names the same keys and the
// same id.
func TestTenantsShareNoReservation(t *testing.T) {
	text := strings.ReplaceAll(permissions, "[shop-]", "true")
	w := newWorld(t, strings.Replace(text, "tenant: shop\n    may: {", "tenant: shop\n    may: {refund: true, ", 1))
	shop, bank := w.bearer(w.token("shop")), w.bearer(w.token("bank"))
	if m, err := w.grpc.Check(shop, &weirv1.CheckRequest{Path: "/pay", User: "ada", Cost: new(int64(2)), Id: "7",
		HoldUs: 60_000_000}); err != nil || !m.GetAllowed() {
		t.Fatal(m, err)
	}
	cancel := &weirv1.CancelRequest{Path: "/pay", User: "ada", Id: "7"}
	extend := &weirv1.ExtendRequest{Path: "/pay", User: "ada", Id: "7", HoldUs: 1_000_000}
	unknown := weirv1.ReservationState_RESERVATION_STATE_UNKNOWN
	if m, err := w.grpc.Cancel(bank, cancel); err != nil || m.GetState() != unknown {
		t.Errorf("cancelled by another: %v, %v", m, err)
	}
	if m, err := w.grpc.Extend(bank, extend); err != nil || m.GetState() != unknown {
		t.Errorf("extended by another: %v, %v", m, err)
	}
	if m, err := w.grpc.Settle(shop, &weirv1.SettleRequest{Path: "/pay", User: "ada", Id: "7",
		Actual: new(int64(1))}); err != nil || m.GetEstimate() != 2 {
		t.Errorf("settled by its own: %v, %v", m, err)
	}
}

// Nor does another identity of the same tenant, which has the same counters: ids belong to who gives them.
func TestIdentitiesShareNoReservation(t *testing.T) {
	text := strings.Replace(permissions, "tenant: shop\n    may: {check: [shop-]",
		"tenant: bank\n    may: {refund: true, check: true", 1)
	w := newWorld(t, text)
	shop, bank := w.bearer(w.token("shop")), w.bearer(w.token("bank"))
	reserve := &weirv1.CheckRequest{Path: "/pay", User: "ada", Cost: new(int64(2)), Id: "7", HoldUs: 60_000_000}
	if m, err := w.grpc.Check(bank, reserve); err != nil || !m.GetAllowed() {
		t.Fatal(m, err)
	}
	unknown := weirv1.ReservationState_RESERVATION_STATE_UNKNOWN
	if m, err := w.grpc.Cancel(shop, &weirv1.CancelRequest{Path: "/pay", User: "ada", Id: "7"}); err != nil ||
		m.GetState() != unknown {
		t.Errorf("cancelled by another: %v, %v", m, err)
	}
	if m, err := w.grpc.Settle(shop, &weirv1.SettleRequest{Path: "/pay", User: "ada", Id: "7", Actual: new(int64(0)),
		IfUnknown: weirv1.IfUnknown_IF_UNKNOWN_IGNORE}); err != nil || m.GetState() != unknown {
		t.Errorf("settled by another: %v, %v", m, err)
	}
	// 1 is left of 3: they have the same counters
	if m, err := w.grpc.Check(shop, reserve); err != nil || m.GetAllowed() || m.GetRepeated() {
		t.Errorf("repeated by another: %v, %v", m, err)
	}
	if m, err := w.grpc.Settle(bank, &weirv1.SettleRequest{Path: "/pay", User: "ada", Id: "7",
		Actual: new(int64(1))}); err != nil || m.GetEstimate() != 2 {
		t.Errorf("settled by its own: %v, %v", m, err)
	}
}
