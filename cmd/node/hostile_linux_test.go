package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const hostileRules = `version: 1
rules:
  - {name: limited, match: {path: "^/limited(/|$)"}, key: [rule], limits: [{limit: 1, window: 1d, algorithm: fixed_window, align: first_hit}]}
  - {name: counted, key: [rule], limits: [{limit: 1000000000, window: 1d, algorithm: fixed_window, align: first_hit}]}
`

// proxyWay is one way in which a proxy asks a node.
type proxyWay struct {
	name    string
	config  string
	command []string // FILE is the configuration
	second  bool     // it listens at the second address
	// open are texts of the configuration, each with what lets requests pass while no node answers.
	open []string
}

// proxyWays returns all ways, with the files that are shipped.
func proxyWays(hook, openHook string) []proxyWay {
	nginx := []string{"nginx", "-c", "FILE", "-e", "stderr"}
	haproxy := []string{"haproxy", "-db", "-f", "FILE"}
	return []proxyWay{
		{name: "nginx", config: nginxConfig, command: nginx, open: []string{
			"error_page 403 = @weir_denied;", "error_page 403 = @weir_denied; error_page 500 = @app;",
			"include DEPLOY/nginx/weir.conf;", "include DEPLOY/nginx/weir.conf; location @app { proxy_pass http://app; }",
		}},
		{name: "nginx with Lua", config: nginxConfig, command: nginx, second: true,
			open: []string{".check()", ".check(true)"}},
		{name: "HAProxy with Lua", config: haproxyConfig, command: haproxy,
			open: []string{"http-request return status 503 unless { var(txn.weir) -m str allowed }", ""}},
		{name: "HAProxy with SPOE", config: strings.Replace(spoeConfig, "server node NODE", "server node AGENT", 1),
			command: haproxy, open: []string{
				"http-request return status 503 unless { var(txn.weir.result) -m str allowed }", "",
			}},
		{name: "Caddy", config: caddyConfig, command: []string{"caddy", "run", "--adapter", "caddyfile", "--config", "FILE"},
			open: []string{
				"reverse_proxy APP",
				"route {\n    vars asked yes\n    reverse_proxy APP\n  }\n  handle_errors {\n    @no_node " +
					"`{err.status_code} in [502, 503, 504] && {vars.asked} != \"yes\"`\n    reverse_proxy @no_node APP\n  }",
			}},
		{name: "Varnish", config: varnishConfig, command: []string{"varnishd", "-F", "-j", "none", "-n", "DIR", "-s",
			"malloc,16m", "-a", "127.0.0.1:PORT", "-f", "FILE"},
			open: []string{`weir.vcl";`, "weir.vcl\";\nsub vcl_backend_error { set beresp.http.X-Weir-Open = \"yes\"; }"}},
		{name: "Apache", config: strings.Replace(apacheConfig, "HOOK", hook, 1),
			command: []string{"apache2", "-X", "-f", "FILE"}, open: []string{hook, openHook}},
	}
}

// countingApp is a service that answers whatever reaches it with 200, and counts it: a request that it
// cannot read has reached it too. It ends the connection of one whose first line has hangUp.
func countingApp(t *testing.T) (addr string, reached *atomic.Int64) {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	reached = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				hangs := false
				for n := 0; ; n++ { // to the end of the header
					line, err := in.ReadString('\n')
					hangs = hangs || n == 0 && strings.Contains(line, hangUp)
					if err != nil && n == 0 {
						return // a connection that was opened ahead
					}
					if n == 0 {
						reached.Add(1)
					}
					if err != nil || strings.TrimRight(line, "\r\n") == "" {
						break
					}
				}
				if hangs {
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved")
				if tcp, ok := c.(*net.TCPConn); ok && tcp.CloseWrite() == nil {
					_, _ = io.Copy(io.Discard, in)
				}
			}()
		}
	}()
	return l.Addr().String(), reached
}

const hangUp = "hang-up"

// hostileRequests are requests to PATH. Those without a blank line at the end get fields and an end.
func hostileRequests() map[string]string {
	long := func(n int) string { return strings.Repeat("x", n) }
	get := func(fields ...string) string { return "GET PATH HTTP/1.1\r\n" + strings.Join(fields, "\r\n") }
	out := map[string]string{
		"a plain one":          get(),
		"the service hangs up": "GET PATH?" + hangUp + " HTTP/1.1",
		"three fields of 7KiB": get("X-A: "+long(7<<10), "X-B: "+long(7<<10), "X-C: "+long(7<<10)),
		"a field of 15KiB":     get("X-A: " + long(15<<10)),
		"60 fields":            get(strings.Repeat("X-A: "+long(200)+"\r\n", 60) + "X-B: b"),
		"500 fields":           get(strings.Repeat("X-A: a\r\n", 500) + "X-B: b"),
		"a folded field":       get("X-A: a\r\n b"),
		"a blank in a name":    get("X A: b"),
		"a field without name": get(": b"),
		"a colon is missing":   get("X-A"),
		"Latin-1 in a field":   get("X-A: \xe9\xff"),

		"no version":             "GET PATH",
		"HTTP/1.0":               "GET PATH HTTP/1.0\r\n\r\n",
		"HTTP/1.2":               "GET PATH HTTP/1.2\r\nHost: a",
		"HTTP/2":                 "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\xff", 64),
		"two blanks":             "GET  PATH HTTP/1.1",
		"a tab":                  "GET\tPATH HTTP/1.1",
		"a blank in the path":    "GET PATH/a b HTTP/1.1",
		"no Host":                "GET PATH HTTP/1.1\r\nConnection: close\r\n\r\n",
		"two Hosts":              get("Host: a", "Host: b"),
		"a long Host":            get("Host: " + long(5000)),
		"absolute form":          "GET http://localhostPATH HTTP/1.1",
		"absolute form and user": "GET http://a:b@localhostPATH HTTP/1.1",
		"absolute form, odd":     "GET http://[::1PATH HTTP/1.1",
		"an asterisk":            "OPTIONS * HTTP/1.1",
		"a name as a path":       "GET localhost:80 HTTP/1.1",
		"CONNECT":                "CONNECT localhost:80 HTTP/1.1",

		"a list of addresses": get("X-Forwarded-For: 192.0.2.1, 192.0.2.2"),
		"many addresses":      get("X-Forwarded-For: " + strings.Repeat("192.0.2.1, ", 600) + "a"),
		"no address":          get("X-Forwarded-For: \"; drop", "X-Real-IP: \xff"),
		"the proxy's fields": get("X-Original-URI: /free", "X-Original-Method: POST", "X-Forwarded-Uri: /free",
			"X-Forwarded-Method: POST"),
		"the proxy's, twice": get("X-Original-URI: /free", "X-Original-URI: /free", "X-Forwarded-Uri: /free",
			"X-Forwarded-Uri: /free"),
		"the proxy's, per hop": get("Connection: close, X-Original-URI, X-Original-Method, X-Forwarded-For, " +
			"X-Forwarded-Uri, X-Forwarded-Method, X-Weir-Uri, X-Weir-Method, X-Weir"),
		"Varnish's fields": get("X-Weir: passed", "X-Weir-Uri: /free", "X-Weir-Open: yes", "X-Weir-Limits: a"),
		"a status":         get("X-Weir-Status: 200", "RateLimit: a"),
		"a trace":          get("traceparent: 00-\x02"),

		"a body": "POST PATH HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody",
		"chunks": "POST PATH HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: " +
			"chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
		"chunks that are none": "POST PATH HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: " +
			"chunked\r\n\r\nzz\r\nbody\r\n0\r\n\r\n",
		"chunks and a length": "POST PATH HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: " +
			"4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
		"a coding": "POST PATH HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: gzip, " +
			"chunked\r\n\r\n0\r\n\r\n",
		"two lengths": "POST PATH HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: " +
			"4\r\nContent-Length: 5\r\n\r\nbody!",
		"a length below 0": "POST PATH HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: -1\r\n\r\n",
		"100-continue": "POST PATH HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: " +
			"100-continue\r\nContent-Length: 4\r\n\r\nbody",
		"another expectation": get("Expect: a pony"),
		"an upgrade":          get("Connection: Upgrade, close", "Upgrade: websocket", "Sec-WebSocket-Key: a"),
		"h2c": get("Connection: Upgrade, HTTP2-Settings, close", "Upgrade: h2c",
			"HTTP2-Settings: AAMAAABkAAQAAP__"),
		"a range": get("Range: bytes=0-1,-", "If-None-Match: *"),
		"two requests": "GET PATH HTTP/1.1\r\nHost: a\r\n\r\nGET PATH HTTP/1.1\r\nHost: a\r\nConnection: " +
			"close\r\n\r\n",

		"a token of 7KiB": get("Authorization: Bearer " + long(7<<10)),
		"a user with NUL": get("Authorization: Basic AGE6Yg=="),
		"cookies":         get("Cookie: a="+long(3000), "Cookie: b="+long(3000)),
		"a browser":       get("User-Agent: Mozilla/5.0", "Sec-Fetch-Site: cross-site", "Origin: http://evil"),
	}
	for _, b := range []byte{0, 1, 9, '\n', '\r', 0x7f, 0x80} {
		out[fmt.Sprintf("byte %#x in a field", b)] = get("X-A: a" + string([]byte{b}) + "b")
		out[fmt.Sprintf("byte %#x in the path", b)] = "GET PATH/a" + string([]byte{b}) + "b HTTP/1.1"
		out[fmt.Sprintf("byte %#x in Host", b)] = "GET PATH HTTP/1.1\r\nHost: a" + string([]byte{b}) + "b"
	}
	for _, host := range []string{"a/../b", ":::", "a b", "\"", "[::1", "a,b", "", "%zz", "a@b"} {
		out["Host "+host] = "GET PATH HTTP/1.1\r\nHost: " + host
	}
	for _, method := range []string{"HEAD", "OPTIONS", "TRACE", "BREW", "get", "G@T", "G\x01T", long(300), long(9000),
		""} {
		out["method "+fmt.Sprintf("%.10q", method)] = method + " PATH HTTP/1.1"
	}
	for _, end := range []string{
		"#%zz", "#x", "?a#%zz", "%zz", "%", "%4", "%00", "%0a", "%0d%0aX-Original-Method:%20POST", "%C3%A9", "%E9", "\xe9",
		"%FC", "%F8re", "%c0%ae", "%252e%252e", "/..;/a", "/../a", "/%2e%2e/a",
		"//", ";a=b", "\\a", "|", "\"", "^", "?deny=200", "?deny=418", "?deny=403&b=c", "?b=c", "?%zz", "?a;b", "?",
		"?" + long(7000), "/" + long(7000), "/" + long(9000), "/" + long(15000), "?" + long(12000),
	} {
		out[fmt.Sprintf("path %.40q (%d)", end, len(end))] = "GET PATH" + end + " HTTP/1.1"
	}
	for name, text := range out {
		if !strings.Contains(text, "\r\n\r\n") && !strings.HasSuffix(name, "version") {
			text = strings.TrimSuffix(text, "\r\n") + "\r\n"
			if !strings.Contains(text, "\r\nHost:") {
				text += "Host: localhost\r\n"
			}
			if !strings.Contains(text, "\r\nConnection:") {
				text += "Connection: close\r\n"
			}
			text += "\r\n"
		} else if !strings.Contains(text, "\r\n\r\n") {
			text += "\r\n\r\n"
		}
		out[name] = text
	}
	return out
}

// sendRaw sends bytes and returns the first answer that is final; nil if the connection ends without one.
func sendRaw(t *testing.T, addr, text string) *http.Response {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, text) // it may be refused before its end
	in := bufio.NewReader(c)
	method, _, _ := strings.Cut(text, " ")
	for {
		out, err := http.ReadResponse(in, &http.Request{Method: method})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			t.Errorf("no answer to %.60q", text)
			return nil
		case err != nil:
			return nil
		case out.StatusCode == http.StatusContinue:
			continue
		}
		_, _ = io.Copy(io.Discard, in) // all answers are there, so all requests were counted
		return out
	}
}

// No bytes of a client's make a request pass that was not counted, at any proxy, whether or not it lets requests
// pass while no node answers. What is refused is so with a status that says that the client is to blame,
// and what is beyond its limit is denied in whatever form it comes.
func TestHostileRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs the proxies")
	}
	app, reached := countingApp(t)
	agent := freePorts(t, 1)[0]
	rules := write(t, hostileRules)
	first, plain, _ := serve(t, "--rules", rules, "--auth-proxy", "127.0.0.1", "--spoe-listen", agent)
	second, caddys, _ := serve(t, "--rules", rules, "--auth-proxy", "127.0.0.1", "--auth-uri-header", "X-Forwarded-Uri",
		"--auth-method-header", "X-Forwarded-Method")
	used := func(node string) (n int64) {
		t.Helper()
		_, body := get(t, http.DefaultClient, "http://"+node+"/v1/check?rule=counted&peek=true")
		var answer struct {
			Limits []struct{ Limit, Remaining int64 }
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Limits) != 1 {
			t.Fatal(body, err)
		}
		return answer.Limits[0].Limit - answer.Limits[0].Remaining
	}
	for _, node := range []string{plain, caddys} {
		get(t, http.DefaultClient, "http://"+node+"/v1/check?rule=limited")
	}
	hook := apacheHook(t, "", "")
	dead := map[string]func(t *testing.T){}
	for _, way := range proxyWays(hook, apacheHook(t, "return 503", "return apache2.DECLINED")) {
		for _, open := range []bool{false, true} {
			name := way.name + map[bool]string{false: ", closed", true: ", open"}[open]
			config, node := way.config, plain
			if way.name == "Caddy" {
				node = caddys
			}
			for i := 0; open && i < len(way.open); i += 2 {
				if !strings.Contains(config, way.open[i]) {
					t.Fatalf("%s has no %q", way.name, way.open[i])
				}
				config = strings.Replace(config, way.open[i], way.open[i+1], 1)
			}
			bases := strings.Fields(proxied(t, node, app, strings.ReplaceAll(config, "AGENT", agent),
				func(file string) []string {
					return strings.Fields(strings.ReplaceAll(strings.Join(way.command, " "), "FILE", file))
				}))
			base := strings.TrimPrefix(bases[0], "http://")
			if way.second {
				base = strings.TrimPrefix(bases[1], "http://")
			}
			dead[name] = func(t *testing.T) {
				const ask = "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
				out := sendRaw(t, base, ask) //nolint:bodyclose // its connection is closed
				if out == nil || (out.StatusCode == http.StatusOK) != open || !open && out.StatusCode < 500 {
					t.Errorf("no node answers: %+v", out)
				}
			}
			t.Run(name, func(t *testing.T) {
				for what, text := range hostileRequests() {
					before, counted := reached.Load(), used(node)
					out := sendRaw(t, base, strings.ReplaceAll(text, "PATH", "/free")) //nolint:bodyclose // its connection is closed
					hits, asked := reached.Load()-before, used(node)-counted
					status := 0
					if out != nil {
						status = out.StatusCode
					}
					if hits > asked {
						t.Errorf("%s: %d pass, and %d are counted (status %d)", what, hits, asked, status)
					}
					// What was counted may fail at the service, as its body is none.
					if status == http.StatusTooManyRequests || asked == 0 && status >= 500 && status != http.StatusNotImplemented &&
						status != http.StatusHTTPVersionNotSupported {
						t.Errorf("%s: status %d", what, status)
					}
					if what == "a plain one" && (status != http.StatusOK || asked != 1) {
						t.Errorf("%s: status %d", what, status)
					}
					if !strings.Contains(text, "PATH") {
						continue
					}
					before = reached.Load()
					out = sendRaw(t, base, strings.ReplaceAll(text, "PATH", "/limited")) //nolint:bodyclose // its connection is closed
					if n := reached.Load() - before; n > 0 && !othersPath(what) {
						t.Errorf("%s: %d pass beyond the limit: %+v", what, n, out)
					}
					if out == nil {
						continue
					}
					switch status := out.StatusCode; {
					case status == http.StatusTooManyRequests:
						if out.Header.Get("Retry-After") == "" {
							t.Errorf("%s: 429 without Retry-After: %v", what, out.Header)
						}
					case status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported:
						t.Errorf("%s: status %d beyond the limit", what, status)
					case what == "a plain one":
						t.Errorf("%s: status %d beyond the limit", what, status)
					}
				}
			})
		}
	}
	for _, p := range []*process{first, second} {
		p.signal(syscall.SIGKILL)
		<-p.done
	}
	for name, ask := range dead {
		t.Run(name+", no node", ask)
	}
}

// othersPath reports whether a request to PATH is one to another path, which the rule of PATH does not limit.
func othersPath(what string) bool {
	end, ok := strings.CutPrefix(what, `path "`)
	return ok && strings.IndexByte("/?;", end[0]) < 0 // Caddy passes "#" on as a part of the name
}

// Of several nodes Caddy and Varnish leave out one that is dead, as docs/proxies.md and the file for Varnish say.
func TestDeadNodeIsLeftOut(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs the proxies")
	}
	app, _ := countingApp(t)
	rules := write(t, hostileRules)
	_, plain, _ := serve(t, "--rules", rules, "--auth-proxy", "127.0.0.1")
	_, caddys, _ := serve(t, "--rules", rules, "--auth-proxy", "127.0.0.1", "--auth-uri-header", "X-Forwarded-Uri",
		"--auth-method-header", "X-Forwarded-Method")
	dead := freePorts(t, 1)[0]
	_, port, err := net.SplitHostPort(dead)
	if err != nil {
		t.Fatal(err)
	}
	const probe = `.port = "NODE_AT"; .probe = ready; .connect_timeout = 1s; }`
	for _, c := range []struct{ way, node, old, text string }{
		{"Caddy", caddys, "forward_auth NODE {", "forward_auth " + dead +
			" NODE {\n    health_uri /readyz\n    health_interval 1s"},
		{
			"Varnish", plain, `backend weir { .host = "127.0.0.1"; .port = "NODE_AT"; }`,
			`import directors; probe ready { .url = "/readyz"; .interval = 1s; }
			backend weir { .host = "127.0.0.1"; ` + strings.Replace(probe, "NODE_AT", port, 1) + `
			backend weir2 { .host = "127.0.0.1"; ` + probe + `
			sub vcl_init { new nodes = directors.fallback(); nodes.add_backend(weir); nodes.add_backend(weir2); }
			sub vcl_backend_fetch { if (bereq.backend == weir) { set bereq.backend = nodes.backend(); } }`,
		},
	} {
		t.Run(c.way, func(t *testing.T) {
			ways := proxyWays("", "")
			way := ways[slices.IndexFunc(ways, func(w proxyWay) bool { return w.name == c.way })]
			config := strings.Replace(way.config, c.old, c.text, 1)
			if c.way == "Varnish" { // the subroutine stands behind those of the file
				before, sub, _ := strings.Cut(config, "sub vcl_backend_fetch")
				sub, rest, _ := strings.Cut(sub, "\n")
				config = before + rest + "\nsub vcl_backend_fetch" + sub + "\n"
			}
			base := strings.TrimPrefix(strings.Fields(proxied(t, c.node, app, config, func(file string) []string {
				return strings.Fields(strings.ReplaceAll(strings.Join(way.command, " "), "FILE", file))
			}))[0], "http://")
			ask := func(path string) int {
				t.Helper()
				text := "GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
				out := sendRaw(t, base, text) //nolint:bodyclose // its connection is closed
				if out == nil {
					return 0
				}
				return out.StatusCode
			}
			for deadline := time.Now().Add(soon); ask("/free") != http.StatusOK; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the node that lives is never asked")
				}
			}
			for range 20 {
				if status := ask("/free"); status != http.StatusOK {
					t.Errorf("beside a dead node: %d", status)
				}
			}
			if first, second := ask("/limited"), ask("/limited"); first != http.StatusOK ||
				second != http.StatusTooManyRequests {
				t.Errorf("beside a dead node a limit answers %d and %d", first, second)
			}
		})
	}
}
