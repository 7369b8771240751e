package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Where requests pass while no node answers, and the proxy takes longer requests than a node does, none passes since it
// is long: neither the query nor the method makes an error of a question, and a path that is too long is denied.
func TestProxiesOfLongRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs nginx and HAProxy")
	}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
	t.Cleanup(app.Close)
	upstream, agent := app.Listener.Addr().String(), freePorts(t, 1)[0]
	_, node, _ := serve(t, "--rules", write(t, proxiedRules), "--auth-proxy", "127.0.0.1", "--spoe-listen", agent)
	open := strings.NewReplacer(
		"http {\n", "http {\n  large_client_header_buffers 4 64k;\n",
		"      error_page 403 = @weir_denied;\n", "      error_page 403 = @weir_denied;\n      error_page 500 = @app;\n",
		"  server {\n    listen 127.0.0.1:PORT;\n", "  server {\n    listen 127.0.0.1:PORT;\n    location @app { proxy_pass "+
			"http://app; }\n",
		"weir\").check()", "weir\").check(true)",
		"\nglobal\n", "\nglobal\n  tune.bufsize 65536\n", "\ndefaults\n", "\nglobal\n  tune.bufsize 65536\ndefaults\n",
		`  http-request return status 503 unless { var(txn.weir) -m str allowed }`, "",
		`  http-request return status 503 unless { var(txn.weir.result) -m str allowed }`, "")
	haproxy := func(file string) []string { return []string{"haproxy", "-db", "-f", file} }
	bases := strings.Fields(proxied(t, node, upstream, open.Replace(nginxConfig), func(file string) []string {
		return []string{"nginx", "-c", file, "-e", "stderr"}
	}))
	bases = append(bases, strings.Fields(proxied(t, node, upstream, open.Replace(haproxyConfig), haproxy))[0],
		strings.Fields(proxied(t, agent, upstream, open.Replace(spoeConfig), haproxy))[0])
	ask := func(method, url string) (int, string) {
		t.Helper()
		return asked(t, http.DefaultClient, method, url, "")
	}
	for i := range 9 {
		if status, _ := ask(http.MethodGet, bases[i%len(bases)]+"/limited"); status != http.StatusOK {
			t.Fatalf("check %d at %s: %d", i, bases[i%len(bases)], status)
		}
	}
	long := func(n int) string { return strings.Repeat("A", n) }
	for _, base := range bases {
		for _, n := range []int{100, 9_000, 15_000, 17_000, 25_000, 40_000} {
			for what, is := range map[string][2]string{"query": {http.MethodGet, "/limited?" + long(n)},
				"method": {long(n), "/limited"}, "path": {http.MethodGet, "/limited/" + long(n)},
				"both": {long(n / 2), "/limited?" + long(n/2)}} {
				if status, body := ask(is[0], base+is[1]); status < 400 || status >= 500 || strings.Contains(body, "served") {
					t.Errorf("%s of %d bytes at %s: %d %.40s", what, n, base, status, body)
				}
			}
		}
	}
}
