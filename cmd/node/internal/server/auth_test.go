package server

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/forward"
)

// At /v1/auth the proxy is the caller. What it may not ask is refused, with the reason in the
// audit, and lets nothing pass. A denial is no refusal, whatever status the proxy wants for it.
func TestAuthIdentities(t *testing.T) {
	c, _ := plain()
	c.Rules = []byte(`version: 1
rules:
  - {name: shop-cart, match: {path: "^/cart$"}, key: [rule], limits: [{limit: 1, window: 1h}]}
  - {name: bank-pay, match: {path: "^/pay$"}, key: [rule], limits: [{limit: 1, window: 1h}]}
`)
	c.Permissions = file(t, `
tokens:
  - {issuer: "https://id.example.com", audience: weir, algorithms: [ES256], keys: keys.pem}
identities:
  - {name: proxy, token: {subject: proxy}, tenant: shop, may: {check: [shop-]}}
  - {name: looks, token: {subject: looks}, may: {peek: true}}
`)
	audit, tokens := newAuditFile(t), newIssuer(t, c.Permissions)
	c.Audit, c.Auth = audit.name, &forward.Options{Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	s := start(t, c)
	ask := func(target, path, token string) (int, string) {
		t.Helper()
		return answerTo(t, http.MethodGet, "http://"+s.Addresses().HTTP+target, "", append(bearer(token),
			"X-Original-URI", path, "X-Original-Method", "GET")...)
	}
	proxy := tokens.token("proxy")
	for i, x := range []struct {
		target, path, token string
		status              int
		why                 string // in the audit; "" if there is no line
	}{
		{"/v1/auth", "/cart", "", 401, "not identified"},
		{"/v1/auth", "/cart", tokens.token("looks"), 403, `allow "check"`},
		{"/v1/auth", "/cart", proxy, 200, ""},
		{"/v1/auth", "/cart", proxy, 429, ""},
		{"/v1/auth?deny=403", "/cart", proxy, 403, ""},
		{"/v1/auth?deny=401", "/cart", proxy, 401, ""},
		{"/v1/auth", "/pay", proxy, 403, "bank-pay"},
	} {
		code, text := ask(x.target, x.path, x.token)
		if code != x.status {
			t.Errorf("case %d: %d %s", i, code, text)
			continue
		}
		if x.why == "" {
			continue
		}
		if line := audit.line(); line["action"] != "check" || line["outcome"] != "refused" || line["over"] != "http" ||
			!strings.Contains(fmt.Sprint(line["why"]), x.why) {
			t.Errorf("case %d: audited as %v", i, line)
		}
	}
}
