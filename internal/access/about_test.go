package access

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// An administrator without a tenant asks about a tenant's counters by its name; nobody else does, and no check counts
// there.
func TestAdministratorAsksAboutATenant(t *testing.T) {
	text := strings.Replace(permissions, "may: {admin: true, ring: true}",
		"may: {admin: true, ring: true, check: true, peek: true, reset: true, explain: true}", 1)
	text = strings.Replace(text, "peek: [shop-], rule", "peek: [shop-], explain: true, reset: true, rule", 1)
	w := newWorld(t, text+"  - {name: desk, token: {subject: desk}, may: {peek: true, explain: true, reset: true}}\n"+
		"  - {name: head, token: {subject: head}, tenant: bank, may: {admin: true, explain: true, reset: true}}\n")
	shop, bank, ops, desk, head := w.token("shop"), w.token("bank"), w.token("ops"), w.token("desk"), w.token("head")
	for range 4 {
		w.ask("GET", w.http+"/v1/check?path=/cart&user=ada", shop, "")
	}
	const cart = `{"path":"/cart","user":"ada","tenant":"shop"}`
	for _, c := range []struct {
		who, token, path, body string
		code                   int
		want                   string
	}{
		{"ops, of nobody", ops, "/v1/explain", `{"path":"/cart","user":"ada"}`, 200, `"known":false`},
		{"ops", ops, "/v1/explain", cart, 200, `"key":"shop:ada:day"`},
		{"ops", ops, "/v1/check", `{"path":"/cart","user":"ada","tenant":"shop","peek":true}`, 429, `"allowed":false`},
		{"ops counts", ops, "/v1/check", cart, 400, "a check counts for the caller's own tenant"},
		{"ops counts in a batch", ops, "/v1/check/batch", `{"checks":[` + cart + `]}`, 200,
			"a check counts for the caller's own tenant"},
		{"bank", bank, "/v1/explain", cart, 403, "only an administrator without a tenant"},
		{"bank resets", bank, "/v1/reset", cart, 403, "only an administrator without a tenant"},
		{"bank peeks in a batch", bank, "/v1/check/batch",
			`{"checks":[{"path":"/cart","user":"ada","tenant":"shop","peek":true}]}`, 200,
			"only an administrator without a tenant"},
		{"no administrator", desk, "/v1/reset", cart, 403, "only an administrator without a tenant"},
		{"an administrator with a tenant", head, "/v1/explain", cart, 403, "only an administrator without a tenant"},
		{"an administrator with a tenant resets", head, "/v1/reset", cart, 403, "only an administrator without a tenant"},
		{"shop of itself", shop, "/v1/explain", cart, 200, `"known":true`},
		{"ops, another user", ops, "/v1/reset", `{"path":"/cart","user":"eve","tenant":"shop"}`, 200, `"counters":0`},
		{"ops, a long name", ops, "/v1/reset", `{"path":"/cart","user":"eve","tenant":"` + strings.Repeat("x", 65) + `"}`,
			400, "tenant has 65 bytes"},
		{"ops resets", ops, "/v1/reset", cart, 200, `"counters":1`},
		{"refunds know no tenant", bank, "/v1/refund", cart, 400, "tenant"},
	} {
		if code, got, _ := w.ask("POST", w.http+c.path, c.token, c.body); code != c.code || !strings.Contains(got, c.want) {
			t.Errorf("%s: %d %s; want %d, %s", c.who, code, got, c.code, c.want)
		}
	}
	if code, got, _ := w.ask("GET", w.http+"/v1/check?path=/cart&user=ada", shop, ""); code != 200 {
		t.Errorf("after the reset: %d %s", code, got)
	}
}

// The same over gRPC: an administrator without a tenant peeks at the counters of one, has them explained and resets
// them.
func TestAdministratorAsksAboutATenantOverGRPC(t *testing.T) {
	text := strings.Replace(permissions, "may: {admin: true, ring: true}",
		"may: {admin: true, ring: true, check: true, peek: true, reset: true, explain: true}", 1)
	w := newWorld(t, text)
	shop, bank, ops := w.bearer(w.token("shop")), w.bearer(w.token("bank")), w.bearer(w.token("ops"))
	m := func(peek bool) *weirv1.CheckRequest {
		return &weirv1.CheckRequest{Path: "/cart", User: "ada", Tenant: "shop", Peek: peek}
	}
	if _, err := w.grpc.Check(shop, &weirv1.CheckRequest{Path: "/cart", User: "ada"}); err != nil {
		t.Fatal(err)
	}
	if d, err := w.grpc.Check(ops, m(true)); err != nil || d.GetLimits()[0].GetRemaining() != 2 {
		t.Errorf("a peek: %v, %v", d, err)
	}
	if e, err := w.grpc.Explain(ops, m(false)); err != nil || !strings.HasPrefix(e.GetLimits()[0].GetKey(), "shop:ada") {
		t.Errorf("an explanation: %v, %v", e, err)
	}
	for name, c := range map[string]struct {
		as   context.Context
		peek bool
		code codes.Code
	}{
		"of another tenant": {bank, true, codes.PermissionDenied},
		"that counts":       {ops, false, codes.InvalidArgument},
	} {
		if _, err := w.grpc.Check(c.as, m(c.peek)); status.Code(err) != c.code {
			t.Errorf("a check %s: %v", name, err)
		}
		all, err := w.grpc.CheckBatch(c.as, &weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{m(c.peek)}})
		if err != nil || codes.Code(all.GetResults()[0].GetError().GetCode()) != c.code {
			t.Errorf("a check %s, in a batch: %v, %v", name, all, err)
		}
	}
	all, err := w.grpc.CheckBatch(ops, &weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{m(true),
		{Path: "/cart", User: "ada", Peek: true}}})
	if err != nil || all.GetResults()[0].GetDecision().GetLimits()[0].GetRemaining() != 2 ||
		all.GetResults()[1].GetDecision().GetLimits()[0].GetRemaining() != 3 {
		t.Errorf("a batch: %v, %v", all, err)
	}
	if _, err := w.grpc.Reset(bank, &weirv1.ResetRequest{Path: "/cart", User: "ada",
		Tenant: "shop"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a reset by another tenant: %v", err)
	}
	if out, err := w.grpc.Reset(ops, &weirv1.ResetRequest{Path: "/cart", User: "ada", Tenant: "shop"}); err != nil ||
		out.GetCounters() != 1 {
		t.Errorf("a reset: %v, %v", out, err)
	}
}
