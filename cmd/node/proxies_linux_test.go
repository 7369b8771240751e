package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const proxiedRules = `version: 1
rules:
  - {name: limited, match: {path: "^/limited(/|$)"}, key: [rule, ip], limits: [{limit: 9, window: 1d, algorithm: fixed_window, align: first_hit}]}
  - {name: blocked, match: {path: "^/blocked"}, deny: {reason: blocked here}}
  - {name: gone, match: {path: "^/gone"}, deny: {status: 410, reason: gone}}
`

// nginxConfig has the shipped files in two servers: one with auth_request, one with Lua.
const nginxConfig = `
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
daemon off; master_process off; pid DIR/nginx.pid; error_log stderr warn;
events { worker_connections 64; }
http {
  access_log off;
  client_body_temp_path DIR/body; proxy_temp_path DIR/proxy; fastcgi_temp_path DIR/f; uwsgi_temp_path DIR/u; scgi_temp_path DIR/s;
  lua_package_path "DEPLOY/nginx/?.lua;;";
  upstream weir { server NODE; keepalive 16; }
  upstream app { server APP; }
  server {
    listen 127.0.0.1:PORT;
    include DEPLOY/nginx/weir.conf;
    location / {
      auth_request /_weir;
      auth_request_set $weir_ratelimit $upstream_http_ratelimit;
      auth_request_set $weir_policy $upstream_http_ratelimit_policy;
      auth_request_set $weir_retry $upstream_http_retry_after;
      auth_request_set $weir_status $upstream_http_x_weir_status;
      add_header RateLimit $weir_ratelimit always;
      add_header RateLimit-Policy $weir_policy always;
      error_page 403 = @weir_denied;
      proxy_pass http://app;
    }
  }
  server {
    listen 127.0.0.1:LUA;
    location = /_weir_lua {
      internal;
      if ($request_uri ~ "^([^?]{0,8193})") { set $weir_uri $1; }
      if ($request_method ~ "^(.{1,64})") { set $weir_method $1; }
      proxy_pass http://weir/v1/auth;
      proxy_pass_request_headers off;
      proxy_pass_request_body off;
      proxy_set_header Content-Length "";
      proxy_set_header X-Original-URI $weir_uri;
      proxy_set_header X-Original-Method $weir_method;
      proxy_set_header X-Forwarded-For $remote_addr;
    }
    location / {
      access_by_lua_block { require("weir").check() }
      proxy_pass http://app;
    }
  }
}
`

const haproxyConfig = `
global
  lua-load-per-thread DEPLOY/haproxy/weir.lua
defaults
  mode http
  timeout connect 5s
  timeout client 10s
  timeout server 10s
frontend clients
  bind 127.0.0.1:PORT
  http-request set-var(txn.weir_node) str(NODE)
  http-request lua.weir
  http-request return status 400 if { var(txn.weir) -m str denied } { var(txn.weir_status) -m int 400 }
  http-request return status 503 if { var(txn.weir) -m str denied } { var(txn.weir_status) -m int 503 }
  http-request return status 429 content-type "application/problem+json" lf-string "%[var(txn.weir_body)]" hdr Retry-After "%[var(txn.weir_retry)]" hdr RateLimit "%[var(txn.weir_ratelimit)]" if { var(txn.weir) -m str denied } { var(txn.weir_status) -m int 429 }
  http-request return status 403 if { var(txn.weir) -m str denied }
  http-request return status 503 unless { var(txn.weir) -m str allowed }
  http-response set-header RateLimit "%[var(txn.weir_ratelimit)]" if { var(txn.weir_ratelimit) -m found }
  default_backend app
backend app
  server app APP
`

const spoeConfig = `
defaults
  mode http
  timeout connect 5s
  timeout client 10s
  timeout server 10s
frontend clients
  bind 127.0.0.1:PORT
  filter spoe engine weir config DEPLOY/haproxy/weir-spoe.conf
  http-request return status 400 if { var(txn.weir.result) -m str denied } { var(txn.weir.status) -m str 400 }
  http-request return status 503 if { var(txn.weir.result) -m str denied } { var(txn.weir.status) -m str 503 }
  http-request return status 429 content-type "application/problem+json" lf-string "%[var(txn.weir.body)]" hdr Retry-After "%[var(txn.weir.retry)]" hdr RateLimit "%[var(txn.weir.ratelimit)]" if { var(txn.weir.result) -m str denied } { var(txn.weir.status) -m str 429 }
  http-request return status 403 if { var(txn.weir.result) -m str denied }
  http-request return status 503 unless { var(txn.weir.result) -m str allowed }
  http-response set-header RateLimit "%[var(txn.weir.ratelimit)]" if { var(txn.weir.ratelimit) -m found }
  default_backend app
backend weir-agents
  mode tcp
  server node NODE
backend app
  server app APP
`

const caddyConfig = `
{
  admin off
  auto_https off
  storage file_system DIR
}
http://:PORT {
  bind 127.0.0.1
  forward_auth NODE {
    uri /v1/auth?
    header_up -Authorization
    lb_policy first
    lb_try_duration 1s
    fail_duration 10s
  }
  reverse_proxy APP
}
`

const varnishConfig = `
vcl 4.1;
backend app { .host = "127.0.0.1"; .port = "APP_AT"; }
backend weir { .host = "127.0.0.1"; .port = "NODE_AT"; }
include "DEPLOY/varnish/weir.vcl";
`

const apacheConfig = `
ServerRoot DIR
DefaultRuntimeDir DIR
PidFile DIR/pid
ServerName localhost
ErrorLog /dev/stderr
Mutex pthread
User www-data
Group www-data
Listen 127.0.0.1:PORT
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule setenvif_module /usr/lib/apache2/modules/mod_setenvif.so
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so
LoadModule lua_module /usr/lib/apache2/modules/mod_lua.so
SetEnvIf Request_URI ^ weir_node=NODE
LuaScope thread
LuaHookAccessChecker HOOK check
ProxyPass / http://APP/
`

// apacheHook returns a copy of the shipped file that Apache can read, which is another user
// where root runs the test, with another text in place of one.
func apacheHook(t *testing.T, old, text string) string {
	t.Helper()
	file, err := os.ReadFile("../../deploy/apache/weir.lua")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "weir-apache") //nolint:usetesting // that directory is the user's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	name := filepath.Join(dir, "weir.lua")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(name, []byte(strings.Replace(string(file), old, text, 1)),
		0o644)); err != nil {
		t.Fatal(err)
	}
	return name
}

// proxied starts a proxy with a configuration and returns its base URL.
func proxied(t *testing.T, node, app, config string, command func(file string) []string) (url string) {
	t.Helper()
	deploy, err := filepath.Abs("../../deploy")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ports := freePorts(t, 2)
	port := func(addr string) string { _, p, _ := net.SplitHostPort(addr); return p }
	file := filepath.Join(dir, "config")
	fill := strings.NewReplacer("DIR", dir, "DEPLOY", deploy, "NODE_AT", port(node), "NODE", node, "APP_AT", port(app),
		"APP", app, "PORT", port(ports[0]), "LUA", port(ports[1]))
	if err := os.WriteFile(file, []byte(fill.Replace(config)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := command(file)
	for i := range args {
		args[i] = fill.Replace(args[i])
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		t.Fatalf("this test needs %s: run scripts/deps.sh (%v)", args[0], err)
	}
	var log strings.Builder
	cmd := exec.CommandContext(context.Background(), path, args[1:]...)
	cmd.Stderr, cmd.Env = &log, append(os.Environ(), "HOME="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has no state
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s: %s", args[0], log.String())
		}
	})
	deadline := time.Now().Add(soon)
	for _, at := range ports {
		for {
			c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at)
			if err == nil {
				c.Close()
				break
			}
			if at == ports[1] && !strings.Contains(config, "LUA") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s does not listen at %s: %v", args[0], at, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return "http://" + ports[0] + " http://" + ports[1]
}

// nginx, HAProxy, Caddy, Varnish and Apache, each in front of one service and with a node of its own, count
// together; a client cannot choose what it is counted by; and each passes on that a limit
// was reached. When its node is gone a proxy refuses; when another one is, it goes on.
func TestProxies(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "served")
		_, _ = io.Copy(w, r.Body)
	}))
	defer app.Close()
	upstream := app.Listener.Addr().String()
	all := places(t, 3, proxiedRules, "--auth-proxy", "127.0.0.1")
	agent := freePorts(t, 1)[0]
	all[1].args = append(all[1].args, "--spoe-listen", agent)
	// Caddy's
	all[2].args = append(all[2].args, "--auth-uri-header", "X-Forwarded-Uri", "--auth-method-header", "X-Forwarded-Method")
	for _, s := range all {
		s.start(t)
	}
	settle(t, all)
	nginx := strings.Fields(proxied(t, all[0].http, upstream, nginxConfig, func(file string) []string {
		return []string{"nginx", "-c", file, "-e", "stderr"}
	}))
	haproxy := strings.Fields(proxied(t, all[1].http, upstream, haproxyConfig, func(file string) []string {
		return []string{"haproxy", "-db", "-f", file}
	}))[0]
	filter := strings.Fields(proxied(t, agent, upstream, spoeConfig, func(file string) []string {
		return []string{"haproxy", "-db", "-f", file}
	}))[0]
	caddy := strings.Fields(proxied(t, all[2].http, upstream, caddyConfig, func(file string) []string {
		return []string{"caddy", "run", "--adapter", "caddyfile", "--config", file}
	}))[0]

	varnish := strings.Fields(proxied(t, all[1].http, upstream, varnishConfig, func(file string) []string {
		return []string{"varnishd", "-F", "-j", "none", "-n", "DIR", "-s", "malloc,16m", "-a", "127.0.0.1:PORT", "-f", file}
	}))[0]

	apache := strings.Fields(proxied(t, all[1].http, upstream,
		strings.Replace(apacheConfig, "HOOK", apacheHook(t, "", ""), 1), func(file string) []string {
			return []string{"apache2", "-X", "-f", file}
		}))[0]

	ask := func(base, path string, fields ...string) (int, http.Header, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		out, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Body.Close()
		body, err := io.ReadAll(out.Body)
		if err != nil {
			t.Fatal(err)
		}
		return out.StatusCode, out.Header, string(body)
	}
	bases := []string{nginx[0], nginx[1], haproxy, varnish, caddy, filter, apache}
	for i := range 9 { // also what a client says of itself changes nothing
		status, header, body := ask(bases[i%7], "/limited", "X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i), "X-Original-URI",
			"/free", "X-Forwarded-Uri", "/free",
			"X-Original-Method", "POST", "X-Real-IP", "192.0.2.1")
		if status != http.StatusOK || body != "served" {
			t.Errorf("request %d, at %s: %d %s", i, bases[i%7], status, body)
		}
		if want := fmt.Sprintf("r=%d", 8-i); i%7 != 4 && !strings.Contains(header.Get("RateLimit"), want) {
			t.Errorf("request %d, at %s: RateLimit %q, want %s", i, bases[i%7], header.Get("RateLimit"), want)
		}
	}
	for _, base := range bases {
		if status, header, body := ask(base, "/limited", "X-Forwarded-For", "192.0.2.77", "X-Original-URI",
			"/free"); status != http.StatusTooManyRequests || header.Get("Retry-After") == "" ||
			strings.Contains(body, "served") {
			t.Errorf("beyond the limit, at %s: %d %v %s", base, status, header, body)
		}
		if status, _, body := ask(base, "/free"); status != http.StatusOK || body != "served" {
			t.Errorf("another path, at %s: %d %s", base, status, body)
		}
		out, err := http.Post(base+"/free", "text/plain", strings.NewReader(" a body"))
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(out.Body); out.StatusCode != http.StatusOK || string(body) != "served a body" ||
			err != nil {
			t.Errorf("a body, at %s: %d %s, %v", base, out.StatusCode, body, err)
		}
		out.Body.Close()
		for _, path := range []string{"/limited/", "//limited", "/limited;x=1", "/limite%64"} {
			if status, _, body := ask(base, path); status != http.StatusTooManyRequests || strings.Contains(body, "served") {
				t.Errorf("%s, at %s: %d %s", path, base, status, body)
			}
		}
		for _, path := range []string{"/free/..;/limited", "/free/%252e%252e/limited", "/free/%2e%2e/limited"} {
			// No 5xx: where a proxy lets requests pass while no node answers, it would let these pass.
			if status, _, body := ask(base, path); status < 400 || status >= 500 || strings.Contains(body, "served") {
				t.Errorf("%s, at %s: %d %s", path, base, status, body)
			}
		}
	}
	for _, base := range bases {
		if status, header, body := ask(base, "/blocked"); status != http.StatusForbidden ||
			header.Get("Retry-After") != "" && header.Get("Retry-After") != "1" || strings.Contains(body, "served") {
			t.Errorf("what a rule denies, at %s: %d %v %s", base, status, header, body)
		}
		// A proxy that knows some statuses only makes 403 of another, and not 429, which is to be tried again.
		if status, _, body := ask(base, "/gone"); status != http.StatusGone && status != http.StatusForbidden ||
			strings.Contains(body, "served") {
			t.Errorf("what a rule denies with a status of its own, at %s: %d %s", base, status, body)
		}
	}
	// else it closed while the client sent
	if out, err := http.Post(varnish+"/free", "text/plain", strings.NewReader(strings.Repeat("x", 1<<20+1))); err == nil {
		out.Body.Close()
		if out.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("more than Varnish keeps: %d", out.StatusCode)
		}
	}
	for n := 40; n < 62; n++ { // Varnish has room for so many, and for its own; without room it loses what it sends
		fields := make([]string, 0, 2*n)
		for i := range n {
			fields = append(fields, fmt.Sprint("X-Field-", i), "a")
		}
		status, _, body := ask(varnish, "/free", fields...)
		if status != http.StatusOK && status != http.StatusRequestHeaderFieldsTooLarge && status != http.StatusBadRequest ||
			(body == "served") != (status == http.StatusOK) {
			t.Errorf("%d fields, at Varnish: %d %s", n, status, body)
		}
	}
	if status, _, body := ask("http://"+all[0].http, "/v1/auth", "X-Original-URI", "/free", "X-Original-Method",
		"GET"); status != http.StatusOK {
		t.Errorf("the node itself: %d %s", status, body)
	}
	all[0].signal(syscall.SIGKILL)
	<-all[0].done
	for _, base := range nginx {
		if status, _, body := ask(base, "/free"); status < 500 || strings.Contains(body, "served") {
			t.Errorf("without its node, at %s: %d %s", base, status, body)
		}
	}
	// The others ask nodes that live: the heir decides, or the policy if it is not in time.
	for _, base := range bases[2:] {
		if status, _, body := ask(base, "/free"); status != http.StatusOK || body != "served" {
			t.Errorf("a member is gone, another path, at %s: %d %s", base, status, body)
		}
		if status, _, body := ask(base, "/limited"); status != http.StatusTooManyRequests &&
			(status != http.StatusOK || body != "served") {
			t.Errorf("a member is gone, at %s: %d %s", base, status, body)
		}
	}
}
