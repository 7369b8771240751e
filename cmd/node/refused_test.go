//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/certs/certstest"
)

const refusedRules = `version: 1
rules:
  - {name: shop-cart, match: {path: "^/cart"}, key: [user], limits: [{limit: 3, window: 1d, algorithm: fixed_window, align: first_hit}]}
  - {name: bank-pay, match: {path: "^/pay"}, key: [user], limits: [{limit: 3, window: 1d, algorithm: fixed_window, align: first_hit}]}
`

const refusedPermissions = `
tokens:
  - {issuer: "https://id.example.com", audience: weir, algorithms: [ES256], keys: keys.pem}
identities:
  - {name: shop, token: {subject: shop}, certificate: {cn: shop}, tenant: shop, may: {check: [shop-], peek: [shop-]}}
  - {name: bank, token: {subject: bank}, certificate: {uri: "spiffe://example.org/bank"}, tenant: bank, may: {check: true, rule: true}}
  - {name: half, certificate: {cn: half}, tenant: half, may: {check: true, refund: [shop-]}}
  - {name: ops, certificate: {cn: ops}, may: {admin: true}}
`

// guarded is a node with TLS, permissions and an audit file.
type guarded struct {
	*process
	http, admin, audit string
	seen               int // bytes of the audit that were read
}

// guard starts one. mode is that of clients' and of operators' certificates.
func guard(t *testing.T, dir string, ca *certstest.Authority, mode string) *guarded {
	t.Helper()
	own := ca.Write(t, t.TempDir(), certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}})
	g := &guarded{audit: filepath.Join(dir, mode+".jsonl")}
	g.process, g.http, _ = serve(t, "--rules", write(t, refusedRules), "--permissions",
		filepath.Join(dir, "permissions.yaml"), "--audit", g.audit,
		"--tls-cert", own.Cert, "--tls-key", own.Key, "--client-ca", own.CA, "--client-cert", mode, "--admin-client-cert",
		mode)
	g.admin = g.at("admin")
	return g
}

// next waits for the next line of the audit.
func (g *guarded) next() map[string]any {
	g.t.Helper()
	for deadline := time.Now().Add(soon); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		data, err := os.ReadFile(g.audit)
		if err != nil {
			g.t.Fatal(err)
		}
		line, _, whole := strings.Cut(string(data[g.seen:]), "\n")
		if !whole {
			continue
		}
		g.seen += len(line) + 1
		var out map[string]any
		if err := json.Unmarshal([]byte(line), &out); err != nil {
			g.t.Fatalf("%q: %v", line, err)
		}
		return out
	}
	g.t.Fatalf("the audit has no further line:\n%s", g.log)
	return nil
}

// shown returns a client that shows a certificate, nil for none.
func shown(t *testing.T, ca *certstest.Authority, cert *tls.Certificate) *http.Client {
	t.Helper()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(ca.PEM)
	c := &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS13}
	if cert != nil {
		// Also one that is not of an authority that the node names.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	tr := &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}
	return &http.Client{Transport: tr, Timeout: soon}
}

func issue(t *testing.T, by *certstest.Authority, l certstest.Leaf) *tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(by.Issue(t, l))
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

// TestRefusals: callers that may not do what they ask are refused by real nodes, each with
// a clear text and a line of the audit. Nothing is counted for them, and nothing of what was
// counted for others is lost.
func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	clients, foreign, peers := certstest.New(t, "clients"), certstest.New(t, "foreign"), certstest.New(t, "peers")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"keys.pem":         string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		"permissions.yaml": refusedPermissions,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	token := func(method jwt.SigningMethod, key any, change func(jwt.MapClaims)) string {
		c := jwt.MapClaims{"iss": "https://id.example.com", "aud": "weir", "sub": "shop",
			"exp": time.Now().Add(time.Hour).Unix()}
		if change != nil {
			change(c)
		}
		text, err := jwt.NewWithClaims(method, c).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	good := token(jwt.SigningMethodES256, key, nil)
	required, optional := guard(t, dir, clients, "required"), guard(t, dir, clients, "optional")
	shop, ops := issue(t, clients, certstest.Leaf{Name: "shop"}), issue(t, clients, certstest.Leaf{Name: "ops"})
	bank := issue(t, clients, certstest.Leaf{Name: "x", URI: "spiffe://example.org/bank"})
	half := issue(t, clients, certstest.Leaf{Name: "half"})
	stranger := issue(t, clients, certstest.Leaf{Name: "stranger"})
	old := issue(t, clients, certstest.Leaf{Name: "shop", Begins: time.Now().Add(-2 * time.Hour),
		Ends: time.Now().Add(-time.Hour)})
	other, peer := issue(t, foreign, certstest.Leaf{Name: "shop"}),
		issue(t, peers, certstest.Leaf{Name: "node-1", URI: certs.MemberURI("weir", "node-1")})

	// remains counts for the shop, and returns what is left then.
	remains := func(g *guarded, peek string) string {
		t.Helper()
		status, body := get(t, shown(t, clients, shop), "https://"+g.http+"/v1/check?path=/cart&user=ada"+peek)
		if status != http.StatusOK {
			t.Fatalf("the shop is answered with %d %s", status, body)
		}
		return body
	}
	keys := func(g *guarded) string {
		t.Helper()
		_, body := get(t, shown(t, clients, ops), "https://"+g.admin+"/metrics")
		for _, line := range strings.Split(body, "\n") {
			if n, ok := strings.CutPrefix(line, "weir_table_keys "); ok {
				return n
			}
		}
		t.Fatalf("no metric of keys: %s", body)
		return ""
	}
	for _, g := range []*guarded{required, optional} {
		if body := remains(g, ""); !strings.Contains(body, `"remaining":2`) {
			t.Fatal(body)
		}
	}

	const check, limits = "/v1/check?path=/cart&user=eve",
		`{"path":"/cart","user":"eve","limits":[{"limit":1,"window":"1s"}]}`
	for _, c := range []struct {
		name   string
		at     *guarded
		cert   *tls.Certificate
		token  string
		path   string // at the administration if it is not one of checks
		body   string
		status int    // 0: the handshake fails
		want   string // a part of the answer, or of why the handshake failed
		line   map[string]any
	}{
		{"no certificate", required, nil, "", check, "", 0, "certificate required",
			map[string]any{"action": "connect", "why": "didn't provide a certificate"}},
		{"a foreign certificate", required, other, "", check, "", 0, "certificate",
			map[string]any{"action": "connect", "why": "unknown authority"}},
		{"an expired certificate", required, old, "", check, "", 0, "certificate",
			map[string]any{"action": "connect", "why": "expired"}},
		{"a peer's certificate", required, peer, "", check, "", 0, "certificate",
			map[string]any{"action": "connect", "why": "unknown authority"}},
		{"a peer's certificate, where none is needed", optional, peer, "", check, "", 0, "certificate",
			map[string]any{"action": "connect", "why": "unknown authority"}},
		{"a peer's certificate at the administration", required, peer, "", "/v1/members", "", 0, "certificate",
			map[string]any{"action": "connect", "over": "administration"}},
		{"nothing", optional, nil, "", check, "", 401, "send a client certificate, or a token",
			map[string]any{"action": "check", "why": "not identified"}},
		{"a certificate of nobody", required, stranger, "", check, "", 403,
			`the certificate of \"stranger\" is not one of an identity`, map[string]any{"action": "check", "why": "stranger"}},
		{"a token with alg none", optional, nil, token(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil), check,
			"", 401, "the caller is not identified", map[string]any{"action": "check"}},
		{"a token with a secret", optional, nil, token(jwt.SigningMethodHS256, der, nil), check, "", 401,
			"the caller is not identified", map[string]any{"action": "check"}},
		{"a token for another audience", optional, nil, token(jwt.SigningMethodES256, key, func(c jwt.MapClaims) {
			c["aud"] = "others"
		}), check, "", 401, "audience", map[string]any{"action": "check", "why": "audience"}},
		{"an expired token", optional, nil, token(jwt.SigningMethodES256, key, func(c jwt.MapClaims) {
			c["exp"] = time.Now().Add(-time.Hour).Unix()
		}), check, "", 401, "expired", map[string]any{"action": "check", "why": "expired"}},
		{"a bad token with a good certificate", required, shop, good + "x", check, "", 401, "the caller is not identified",
			map[string]any{"action": "check"}},
		{"another's rule, named", required, shop, "", "/v1/check?path=/cart&user=eve&rule=bank-pay", "", 403,
			`must allow \"rule\"`, map[string]any{"action": "check", "caller": "shop", "tenant": "shop"}},
		{"another's rule, matched", optional, nil, good, "/v1/check?path=/pay&user=eve", "", 403,
			"a rule that matches the request is not one", map[string]any{"action": "check", "caller": "shop",
				"why": "bank-pay"}},
		{"limits", required, shop, "", "/v1/check", limits, 403, `must allow \"limits\"`,
			map[string]any{"action": "check", "caller": "shop"}},
		{"limits of one who names rules", required, bank, "", "/v1/check", limits, 403, `must allow \"limits\"`,
			map[string]any{"action": "check", "caller": "bank", "tenant": "bank"}},
		{"a reset", required, shop, "", "/v1/reset", `{"path":"/cart","user":"ada"}`, 403, `must allow \"reset\"`,
			map[string]any{"action": "reset", "caller": "shop"}},
		{"a refund", required, shop, "", "/v1/refund", `{"path":"/cart","user":"ada","receipt":"x"}`, 403,
			`must allow \"refund\"`, map[string]any{"action": "refund", "caller": "shop"}},
		{"a reservation", required, shop, "", "/v1/check", `{"path":"/cart","user":"eve","id":"1","hold_ms":1000}`, 403,
			`must allow \"refund\"`, map[string]any{"action": "check", "caller": "shop"}},
		{"a reservation of a rule that may be checked only", required, half, "", "/v1/check",
			`{"path":"/pay","user":"eve","id":"1","hold_ms":1000}`, 403, "a rule that matches the request is not one",
			map[string]any{"action": "check", "caller": "half", "why": "bank-pay"}},
		{"a settlement", required, shop, "", "/v1/settle", `{"path":"/cart","user":"ada","id":"1","actual":9}`, 403,
			`must allow \"refund\"`, map[string]any{"action": "refund", "caller": "shop"}},
		{"administration", required, shop, "", "/v1/top", "", 403, `must allow \"admin\"`,
			map[string]any{"action": "top", "caller": "shop", "over": "administration"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.at.t = t
			before := keys(c.at)
			address := "https://" + c.at.http + c.path
			if !strings.HasPrefix(c.path, "/v1/check") && !strings.HasPrefix(c.path, "/v1/re") && c.path != "/v1/settle" {
				address = "https://" + c.at.admin + c.path
			}
			method := http.MethodGet
			if c.body != "" {
				method = http.MethodPost
			}
			r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if c.token != "" {
				r.Header.Set("Authorization", "Bearer "+c.token)
			}
			if c.body != "" {
				r.Header.Set("Content-Type", "application/json")
			}
			resp, err := shown(t, clients, c.cert).Do(r)
			status := 0
			var text string
			if err != nil {
				text = err.Error()
			} else {
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				status, text = resp.StatusCode, string(body)
			}
			if status != c.status || !strings.Contains(text, c.want) {
				t.Errorf("status %d, want %d with %q: %s", status, c.status, c.want, text)
			}
			if strings.Contains(text, "bank-pay") && !strings.Contains(c.path, "bank-pay") {
				t.Errorf("the caller learns the name of another's rule: %s", text)
			}
			line := c.at.next()
			if line["outcome"] != "refused" || !strings.HasPrefix(line["from"].(string), "127.0.0.1:") {
				t.Errorf("audit: %v", line)
			}
			for field, want := range c.line {
				if got, _ := line[field].(string); got != want && !(field == "why" && strings.Contains(got, want.(string))) {
					t.Errorf("audit: %s is %q, want %q: %v", field, got, want, line)
				}
			}
			if after := keys(c.at); after != before {
				t.Errorf("there are %s counters, and were %s", after, before)
			}
		})
		c.at.t = t
	}
	for _, g := range []*guarded{required, optional} {
		if body := remains(g, "&peek=true"); !strings.Contains(body, `"remaining":2`) {
			t.Errorf("what was counted is lost: %s", body)
		}
		all, err := os.ReadFile(g.audit)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(all), strings.Split(good, ".")[2]) || strings.Contains(string(all), "eve") {
			t.Errorf("the audit has a token or a user: %s", all)
		}
	}
}

// A caller that shows nothing is told what the address takes: where it asks for no certificates, a client
// that sends one elsewhere learns which flag is missing, at the administration and at the address of checks.
func TestARefusalNamesWhatTheAddressTakes(t *testing.T) {
	dir, clients := t.TempDir(), certstest.New(t, "clients")
	permissions := filepath.Join(dir, "permissions.yaml")
	if err := os.WriteFile(permissions,
		[]byte("identities:\n  - {name: ops, certificate: {cn: ops}, may: {admin: true, check: true}}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	own := clients.Write(t, t.TempDir(), certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}})
	ops := issue(t, clients, certstest.Leaf{Name: "ops"})
	const certificate = `send a client certificate, or a token as \"Authorization: Bearer TOKEN\"`
	unasked := func(flag string) string {
		return `send a token as \"Authorization: Bearer TOKEN\"; this address asks for no client certificate: a node with ` +
			flag + " optional does"
	}
	for _, c := range []struct {
		client, admin         string // modes
		atChecks, atOperators string // what a caller without a certificate is told
	}{
		{"optional", "none", certificate, unasked("--admin-client-cert")},
		{"none", "optional", unasked("--client-cert"), certificate},
	} {
		p, address, _ := serve(t, "--rules", write(t, refusedRules), "--permissions", permissions, "--tls-cert", own.Cert,
			"--tls-key", own.Key,
			"--client-ca", own.CA, "--client-cert", c.client, "--admin-client-cert", c.admin)
		for url, want := range map[string]string{
			"https://" + address + "/v1/check?path=/cart&user=ada": c.atChecks,
			"https://" + p.at("admin") + "/v1/top":                 c.atOperators,
		} {
			if status, body := get(t, shown(t, clients, nil), url); status != http.StatusUnauthorized ||
				!strings.Contains(body, want) {
				t.Errorf("%s, --client-cert %s, --admin-client-cert %s, nothing is shown: %d %s", url, c.client, c.admin, status,
					body)
			}
			if want == certificate {
				want = "" // the certificate is taken
			}
			if status, body := get(t, shown(t, clients, ops), url); (status == http.StatusUnauthorized) != (want != "") ||
				!strings.Contains(body, want) {
				t.Errorf("%s, --client-cert %s, --admin-client-cert %s, with a certificate: %d %s", url, c.client, c.admin, status,
					body)
			}
		}
	}
}
