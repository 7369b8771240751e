package access

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/frontend"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// TestAudit: each refusal, reset, refund and request of administration is told to the
// auditor, with who asked; checks that are decided are not.
func TestAudit(t *testing.T) {
	w := newWorld(t, permissions)
	shop, bank, ops := w.token("shop"), w.token("bank"), w.token("ops")
	over := func(method, address, token, body string) func() {
		return func() { w.ask(method, address, token, body) }
	}
	type event = frontend.AuditEvent
	const done, refused, failed = frontend.AuditDone, frontend.AuditRefused, frontend.AuditFailed
	for name, c := range map[string]struct {
		ask  func()
		want event // Why is a part of it; From is not compared
		none bool
	}{
		"check": {ask: over("GET", w.http+"/v1/check?path=/cart&user=a", shop, ""), none: true},
		"check without a token": {
			ask:  over("GET", w.http+"/v1/check?path=/cart&user=a", "", ""),
			want: event{Action: "check", Outcome: refused, Over: "http", Why: "not identified"},
		},
		"check with a bad token": {
			ask:  over("GET", w.http+"/v1/check?path=/cart&user=a", shop+"x", ""),
			want: event{Action: "check", Outcome: refused, Over: "http", Why: "not identified"},
		},
		"reset by one who may not": {
			ask:  over("POST", w.http+"/v1/reset", shop, `{"path":"/cart","user":"hunter2"}`),
			want: event{Action: "reset", Outcome: refused, Caller: "shop", Tenant: "shop", Over: "http", Why: "reset"},
		},
		"reset": {
			ask: over("POST", w.http+"/v1/reset", bank, `{"path":"/pay","user":"hunter2 anew"}`),
			want: event{Action: "reset", Outcome: done, Caller: "bank", Tenant: "bank", Over: "http",
				Why: "no counter to reset"},
		},
		"reset of a counter": {
			ask: func() {
				w.ask("GET", w.http+"/v1/check?path=/pay&user=eve", bank, "")
				w.ask("POST", w.http+"/v1/reset", bank, `{"path":"/pay","user":"eve"}`)
			},
			want: event{Action: "reset", Outcome: done, Caller: "bank", Tenant: "bank", Over: "http"},
		},
		"gRPC reset of a counter": {
			ask: func() {
				w.ask("GET", w.http+"/v1/check?path=/pay&user=mallory", bank, "")
				_, _ = w.grpc.Reset(w.bearer(bank), &weirv1.ResetRequest{Path: "/pay", User: "mallory"})
			},
			want: event{Action: "reset", Outcome: done, Caller: "bank", Tenant: "bank", Over: "grpc"},
		},
		"reset that is not valid": {
			ask:  over("POST", w.http+"/v1/reset", bank, `{"path":7,"user":"hunter2"}`),
			want: event{Action: "reset", Outcome: failed, Caller: "bank", Tenant: "bank", Over: "http"},
		},
		"refund that is not valid": {
			ask:  over("POST", w.http+"/v1/refund", bank, `{"path":"/pay","user":"hunter2","receipt":"hunter2"}`),
			want: event{Action: "refund", Outcome: failed, Caller: "bank", Tenant: "bank", Over: "http"},
		},
		"batch with two that are refused": {
			ask: over("POST", w.http+"/v1/check/batch", shop,
				`{"checks":[{"path":"/cart","user":"a"},{"path":"/pay","rule":"bank-pay","user":"a"},{"path":"/cart","user":"a",`+
					`"limits":[{"limit":1,"window":"1s"}]}]}`),
			want: event{Action: "check", Outcome: refused, Caller: "shop", Tenant: "shop", Over: "http", Count: 2,
				Why: "bank-pay"},
		},
		"gRPC without a token": {
			ask:  func() { _, _ = w.grpc.Check(t.Context(), &weirv1.CheckRequest{Path: "/cart"}) },
			want: event{Action: "check", Outcome: refused, Over: "grpc", Why: "not identified"},
		},
		"gRPC check": {
			ask:  func() { _, _ = w.grpc.Check(w.bearer(shop), &weirv1.CheckRequest{Path: "/cart", User: "a"}) },
			none: true,
		},
		"gRPC with another's rule": {
			ask: func() {
				_, _ = w.grpc.Check(w.bearer(shop), &weirv1.CheckRequest{Path: "/cart", Rule: "bank-pay", User: "a"})
			},
			want: event{Action: "check", Outcome: refused, Caller: "shop", Tenant: "shop", Over: "grpc", Why: "bank-pay"},
		},
		"gRPC batch": {
			ask: func() {
				_, _ = w.grpc.CheckBatch(w.bearer(shop), &weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{
					{Path: "/cart", User: "a"}, {Path: "/cart", Rule: "bank-pay", User: "a"},
				}})
			},
			want: event{Action: "check", Outcome: refused, Caller: "shop", Tenant: "shop", Over: "grpc", Count: 1,
				Why: "bank-pay"},
		},
		"another's rule, matched": {
			ask:  over("GET", w.http+"/v1/check?path=/pay&user=a", shop, ""),
			want: event{Action: "check", Outcome: refused, Caller: "shop", Tenant: "shop", Over: "http", Why: "bank-pay"},
		},
		"batch with another's rule, matched": {
			ask: over("POST", w.http+"/v1/check/batch", shop,
				`{"checks":[{"path":"/cart","user":"a"},{"path":"/pay","user":"a"},{"path":"/pay","user":"b"}]}`),
			want: event{Action: "check", Outcome: refused, Caller: "shop", Tenant: "shop", Over: "http", Count: 2,
				Why: "bank-pay"},
		},
		"gRPC with another's rule, matched": {
			ask:  func() { _, _ = w.grpc.Check(w.bearer(shop), &weirv1.CheckRequest{Path: "/pay", User: "a"}) },
			want: event{Action: "check", Outcome: refused, Caller: "shop", Tenant: "shop", Over: "grpc", Why: "bank-pay"},
		},
		"gRPC batch with another's rule, matched": {
			ask: func() {
				_, _ = w.grpc.CheckBatch(w.bearer(shop), &weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{
					{Path: "/cart", User: "a"}, {Path: "/pay", User: "a"}, {Path: "/cart", Rule: "bank-pay", User: "a"},
				}})
			},
			want: event{Action: "check", Outcome: refused, Caller: "shop", Tenant: "shop", Over: "grpc", Count: 2,
				Why: "bank-pay"},
		},
		"columns with another's rule, matched": {
			ask: func() {
				s, err := w.grpc.CheckStream(w.bearer(shop))
				if err != nil {
					return
				}
				_ = s.Send(&weirv1.CheckColumns{Keys: []byte("/cart/pay"), PathLengths: []uint32{5, 4}})
				_, _ = s.Recv()
				_ = s.CloseSend()
				_, _ = s.Recv()
			},
			want: event{Action: "check", Outcome: refused, Caller: "shop", Tenant: "shop", Over: "grpc", Count: 1,
				Why: "bank-pay"},
		},
		"settlement": { // it is traffic, as the check is that reserved
			ask:  over("POST", w.http+"/v1/settle", bank, `{"path":"/pay","user":"hunter2","id":"1","actual":1}`),
			none: true,
		},
		"settlement by one who may not": {
			ask:  over("POST", w.http+"/v1/settle", shop, `{"path":"/cart","user":"hunter2","id":"1","actual":1}`),
			want: event{Action: "refund", Outcome: refused, Caller: "shop", Tenant: "shop", Over: "http", Why: "refund"},
		},
		"gRPC settlement": {
			ask: func() {
				_, _ = w.grpc.Settle(w.bearer(bank), &weirv1.SettleRequest{Path: "/pay", User: "hunter2", Id: "2",
					Actual: new(int64(1))})
			},
			none: true,
		},
		"gRPC settlement with another number": {
			ask: func() {
				_, _ = w.grpc.Settle(w.bearer(bank), &weirv1.SettleRequest{Path: "/pay", User: "hunter2", Id: "2",
					Actual: new(int64(2))})
			},
			none: true,
		},
		"gRPC cancellation by one who may not": {
			ask: func() {
				_, _ = w.grpc.Cancel(w.bearer(shop), &weirv1.CancelRequest{Path: "/cart", User: "hunter2", Id: "2"})
			},
			want: event{Action: "refund", Outcome: refused, Caller: "shop", Tenant: "shop", Over: "grpc", Why: "refund"},
		},
		"gRPC refund that is not valid": {
			ask: func() {
				_, _ = w.grpc.Refund(w.bearer(bank), &weirv1.RefundRequest{Path: "/pay", User: "hunter2", Receipt: "hunter2"})
			},
			want: event{Action: "refund", Outcome: failed, Caller: "bank", Tenant: "bank", Over: "grpc"},
		},
		"reset with GET":          {ask: over("GET", w.http+"/v1/reset", "", ""), none: true},
		"administration with GET": {ask: over("GET", w.ops+"/v1/members/forget", shop, ""), none: true},
		"gRPC reset": {
			ask: func() { _, _ = w.grpc.Reset(w.bearer(bank), &weirv1.ResetRequest{Path: "/pay", User: "hunter2 anew"}) },
			want: event{Action: "reset", Outcome: done, Caller: "bank", Tenant: "bank", Over: "grpc",
				Why: "no counter to reset"},
		},
		"gRPC explain": {
			ask:  func() { _, _ = w.grpc.Explain(w.bearer(shop), &weirv1.CheckRequest{Path: "/cart"}) },
			want: event{Action: "explain", Outcome: refused, Caller: "shop", Tenant: "shop", Over: "grpc", Why: "explain"},
		},
		"gRPC ring": {
			ask:  func() { _, _ = w.grpc.Ring(w.bearer(shop), &weirv1.RingRequest{}) },
			want: event{Action: "ring", Outcome: refused, Caller: "shop", Tenant: "shop", Over: "grpc", Why: "ring"},
		},
		"stream without a token": {
			ask: func() {
				if s, err := w.grpc.CheckStream(t.Context()); err == nil {
					_, _ = s.Recv()
				}
			},
			want: event{Action: "check", Outcome: refused, Over: "grpc", Why: "not identified"},
		},
		"columns with another's rule": {
			ask: func() {
				s, err := w.grpc.CheckStream(w.bearer(shop))
				if err != nil {
					return
				}
				_ = s.Send(&weirv1.CheckColumns{Rule: "bank-pay", Keys: []byte("/cart"), PathLengths: []uint32{5}})
				_, _ = s.Recv()
				_ = s.CloseSend()
				_, _ = s.Recv()
			},
			want: event{Action: "check", Outcome: refused, Caller: "shop", Tenant: "shop", Over: "grpc", Why: "bank-pay"},
		},
		"administration by a client": {
			ask: over("GET", w.ops+"/v1/members", shop, ""),
			want: event{Action: "members", Outcome: refused, Caller: "shop", Tenant: "shop", Over: "administration",
				Why: "admin"},
		},
		"administration": {ask: over("GET", w.ops+"/v1/members", ops, ""), none: true},
		"reload": {
			ask:  over("POST", w.ops+"/v1/reload", ops, ""),
			want: event{Action: "reload", Outcome: done, Caller: "ops", Over: "administration", Subject: "rules abc"},
		},
		"forget without a cluster": {
			ask:  over("POST", w.ops+"/v1/members/forget", ops, `{"name":"node-3"}`),
			want: event{Action: "members forget", Outcome: failed, Caller: "ops", Over: "administration"},
		},
	} {
		c.ask()
		all := w.audited()
		if c.none {
			if len(all) > 0 {
				t.Errorf("%s: %+v", name, all)
			}
			continue
		}
		if len(all) != 1 {
			t.Errorf("%s: %d events: %+v", name, len(all), all)
			continue
		}
		got := all[0]
		text := fmt.Sprintf("%+v", got)
		if !strings.HasPrefix(got.From, "127.0.0.1:") || !strings.Contains(got.Why, c.want.Why) ||
			c.want.Why == "" && got.Why != "" {
			t.Errorf("%s: %s", name, text)
		}
		for _, secret := range []string{shop, bank, ops, "hunter2"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: it has a secret: %s", name, text)
			}
		}
		if got.From, got.Why, c.want.Why = "", "", ""; got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
