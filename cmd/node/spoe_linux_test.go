package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/certs/certstest"
)

// spoeTenants is HAProxy with three ports, each with agents of its own: it shows a certificate
// of the shop, of the bank, and none.
const spoeTenants = `
defaults
  mode http
  timeout connect 5s
  timeout client 10s
  timeout server 10s
SECTIONS
`

const spoeTenant = `
frontend NAME
  bind LISTEN
  filter spoe engine weir config DIR/NAME.conf
  http-request return status 403 if { var(txn.weir.result) -m str denied } { var(txn.weir.status) -m str 403 }
  http-request return status 429 if { var(txn.weir.result) -m str denied }
  http-request return status 503 hdr Answer "%[var(txn.weir.result)] %[var(txn.weir.body)]" unless { var(txn.weir.result) -m str allowed }
  http-request return status 200
backend agents-NAME
  mode tcp
  server node AGENT ssl verify required ca-file CAFILE SHOWS
`

// With permissions, the certificate that HAProxy shows decides for whom the agent counts: two
// tenants have counters of their own, one that may not check and one without a certificate are
// refused, with a line in the audit, and counted nowhere.
func TestSPOEIdentities(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs HAProxy")
	}
	dir := t.TempDir()
	authority := certstest.New(t, "clients")
	paths := authority.Write(t, dir, certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}})
	audit, permissions := filepath.Join(dir, "audit"), filepath.Join(dir, "permissions.yaml")
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(permissions, `
identities:
  - {name: shop, certificate: {cn: shop}, tenant: shop, may: {check: [limited]}}
  - {name: bank, certificate: {cn: bank}, tenant: bank, may: {check: true}}
  - {name: reader, certificate: {cn: reader}, may: {peek: true}}
`)
	ports := freePorts(t, 5)
	agent := ports[0]
	_, at, _ := serve(t, "--rules", write(t, proxiedRules), "--auth-proxy", "127.0.0.1", "--spoe-listen", agent,
		"--permissions", permissions, "--audit", audit, "--tls", "optional",
		"--tls-cert", paths.Cert, "--tls-key", paths.Key, "--client-ca", paths.CA, "--client-cert", "optional")
	engine, err := os.ReadFile("../../deploy/haproxy/weir-spoe.conf")
	if err != nil {
		t.Fatal(err)
	}
	var sections strings.Builder
	asks := map[string]string{}
	for i, name := range []string{"shop", "bank", "reader", "nobody"} {
		shows := ""
		if name != "nobody" {
			cert, key := authority.Issue(t, certstest.Leaf{Name: name})
			put(filepath.Join(dir, name+".pem"), string(cert)+string(key))
			shows = "crt " + filepath.Join(dir, name+".pem")
		}
		put(filepath.Join(dir, name+".conf"), strings.Replace(string(engine), "use-backend weir-agents",
			"use-backend agents-"+name, 1))
		asks[name] = "http://" + ports[1+i]
		sections.WriteString(strings.NewReplacer("NAME", name, "LISTEN", ports[1+i], "DIR", dir, "AGENT", agent, "CAFILE",
			paths.CA, "SHOWS", shows).Replace(spoeTenant))
	}
	app := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(app.Close)
	proxied(t, at, app.Listener.Addr().String(), strings.Replace(spoeTenants, "SECTIONS", sections.String(), 1)+
		"\nfrontend ready\n  bind 127.0.0.1:PORT\n  http-request return status 200\n",
		func(file string) []string { return []string{"haproxy", "-db", "-f", file} })

	ask := func(name, path string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, asks[name]+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		out, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		out.Body.Close()
		return out.StatusCode, out.Header.Get("Answer")
	}
	for _, tenant := range []string{"shop", "bank"} { // nine checks are allowed in a day, to each
		for i := range 9 {
			if status, answer := ask(tenant, "/limited"); status != http.StatusOK {
				t.Fatalf("check %d of %s: %d %s", i, tenant, status, answer)
			}
		}
		if status, answer := ask(tenant, "/limited"); status != http.StatusTooManyRequests {
			t.Errorf("beyond the limit of %s: %d %s", tenant, status, answer)
		}
	}
	for name, want := range map[string]string{"reader": "failed 403", "nobody": "failed 401"} {
		if status, answer := ask(name, "/limited"); status != http.StatusServiceUnavailable || answer != want {
			t.Errorf("%s: %d %q, want %q", name, status, answer, want)
		}
	}
	// A rule that is not one of the caller's is chosen by the path, and so by the client of HAProxy.
	if status, answer := ask("shop", "/blocked"); status != http.StatusForbidden {
		t.Errorf("another's rule: %d %q", status, answer)
	}
	lines, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"caller":"reader"`, `the caller is not identified`} {
		found := false
		for line := range strings.Lines(string(lines)) {
			found = found || strings.Contains(line, want) && strings.Contains(line, `"over":"spoe"`) &&
				strings.Contains(line, `"outcome":"refused"`)
		}
		if !found {
			t.Errorf("no refusal with %s over spoe in the audit:\n%s", want, lines)
		}
	}
}
