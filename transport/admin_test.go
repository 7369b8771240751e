package transport_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/transport"
)

// ask asks a handler as somebody else would, who connected to an address.
func ask(h http.Handler, at net.Addr, from, method, url, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.WithValue(context.Background(), http.LocalAddrContextKey, at), method, url,
		strings.NewReader(body))
	r.RemoteAddr = from
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8082}

// Only clients on this machine may forget members and take profiles.
func TestNear(t *testing.T) {
	h := &hall{}
	profiles := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "profile") })
	site := transport.NewAdmin(transport.AdminOptions{Directory: h, Profiles: profiles}).Handler()
	socket := &net.UnixAddr{Name: "/run/admin.sock", Net: "unix"}
	for _, c := range []struct {
		at   net.Addr
		from string
		want int
	}{
		{loopback, "192.0.2.1:5", 403}, {loopback, "[2001:db8::1]:5", 403}, {loopback, "", 403}, {loopback, "@", 403},
		{loopback, "127.0.0.1:5", 200}, {loopback, "[::1]:5", 200}, {socket, "@", 200}, {socket, "", 200},
	} {
		if got := ask(site, c.at, c.from, "POST", "http://localhost/v1/members/forget", `{"name":"b"}`, "Content-Type",
			"application/json"); got.Code != c.want {
			t.Errorf("forget from %q at %v: %d %s", c.from, c.at, got.Code, got.Body)
		}
		if got := ask(site, c.at, c.from, "GET", "http://localhost/debug/pprof/heap", ""); got.Code != c.want {
			t.Errorf("a profile from %q at %v: %d %s", c.from, c.at, got.Code, got.Body)
		}
		if got := ask(site, c.at, c.from, "POST", "http://localhost/v1/reload", ""); got.Code == 403 != (c.want == 403) {
			t.Errorf("a reload from %q at %v: %d %s", c.from, c.at, got.Code, got.Body)
		}
		if got := ask(site, c.at, c.from, "GET", "http://localhost/v1/members", ""); got.Code != 200 {
			t.Errorf("members from %q at %v: %d %s", c.from, c.at, got.Code, got.Body)
		}
	}
	if len(h.forgot) != 4 {
		t.Errorf("%d were forgotten, 4 by who is near", len(h.forgot))
	}
}

// Administration is asked by its own names and addresses only.
func TestAdminHosts(t *testing.T) {
	site := transport.NewAdmin(transport.AdminOptions{Directory: &hall{},
		Hosts: []string{"Node-1", "192.0.2.9"}}).Handler()
	at := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: 8082}
	for host, want := range map[string]int{
		"localhost:8082": 200, "LOCALHOST": 200, "127.0.0.1:8082": 200, "127.3.2.1": 200, "[::1]:8082": 200,
		"node-1:8082": 200, "node-1.:8082": 200, "NODE-1": 200, "192.0.2.9:1": 200, "10.0.0.5:8082": 200,
		"[::ffff:10.0.0.5]:8082": 200,
		"rebound.example:8082":   403, "node-1.rebound.example": 403, "localhost.rebound.example": 403, "node-2:8082": 403,
		"10.0.0.6:8082":             403,
		"127.0.0.1.rebound.example": 403, "0.0.0.0:8082": 403,
	} {
		for _, path := range []string{"/v1/members", "/nothing"} {
			if path == "/nothing" && want == 200 {
				continue
			}
			if got := ask(site, at, "10.0.0.7:1", "GET", "http://"+host+path, ""); got.Code != want ||
				want != 200 && !strings.Contains(got.Body.String(), "--admin-host") {
				t.Errorf("%s of %s: %d %s", path, host, got.Code, got.Body)
			}
		}
	}
}

// foreign are the headers by which a page of another site has a browser ask.
var foreign = [][]string{
	{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Sec-Fetch-Site", "anything"},
	{"Sec-Fetch-Site", "cross-site", "Origin", "http://localhost:8080"},
	{"Sec-Fetch-Site", "none", "Origin", "https://other.example"},
	{"Origin", "https://other.example"}, {"Origin", "null"}, {"Origin", "http://localhost:8081"}, {"Origin", "://"},
	{"User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0"}, // an image over plain HTTP
}

// welcome are requests that no foreign page caused.
var welcome = [][]string{
	nil, {"User-Agent", "curl/8.9.1"}, {"Sec-Fetch-Site", "none", "User-Agent", "Mozilla/5.0"},
	{"Sec-Fetch-Site", "same-origin", "User-Agent", "Mozilla/5.0"},
	{"Origin", "http://localhost:8080", "User-Agent", "Mozilla/5.0"},
	{"Sec-Fetch-Site", "same-origin", "Origin", "https://LOCALHOST:8080"},
}

// Requests that a page of another site causes in a browser are refused and count
// nothing.
func TestForeign(t *testing.T) {
	s := newServer(t, fixed, nil)
	h := &hall{}
	admin := transport.NewAdmin(transport.AdminOptions{Directory: h, Metrics: http.NotFoundHandler(),
		Profiles: http.NotFoundHandler(),
		Top:      func(string, int) (hottest, denied []transport.TopKey) { return nil, nil }}).Handler()
	type asked struct {
		h                  http.Handler
		method, path, body string
		want               int
	}
	all := []asked{
		{s.Handler(), "GET", "/v1/check?user=ada&cost=3", "", 200},
		{s.Handler(), "POST", "/v1/check", `{"user":"ada","cost":3}`, 200},
		{s.Handler(), "POST", "/v1/check/batch", `{"checks":[{"user":"ada","cost":3}]}`, 200},
		{s.Handler(), "POST", "/v1/reset", `{"user":"ada"}`, 200},
		{s.Handler(), "GET", "/v1/explain?user=ada", "", 200}, {s.Handler(), "POST", "/v1/explain", `{"user":"ada"}`, 200},
		{admin, "GET", "/v1/members", "", 200}, {admin, "POST", "/v1/members/forget", `{"name":"b"}`, 200},
		{admin, "GET", "/v1/top", "", 200},
		{admin, "GET", "/metrics", "", 404}, {admin, "GET", "/debug/pprof/profile", "", 404},
	}
	do := func(a *asked, header []string) *httptest.ResponseRecorder {
		return ask(a.h, loopback, "127.0.0.1:9", a.method, "http://localhost:8080"+a.path, a.body,
			append([]string{"Content-Type", "application/json"}, header...)...)
	}
	for _, header := range foreign {
		for i := range all {
			if got := do(&all[i], header); got.Code != 403 || !strings.Contains(got.Body.String(), "ask without a browser") {
				t.Errorf("%s %s with %v: %d %s", all[i].method, all[i].path, header, got.Code, got.Body)
			}
		}
		for _, open := range []string{"/healthz", "/readyz", "/openapi.yaml"} {
			if got := do(&asked{s.Handler(), "GET", open, "", 0}, header); got.Code != 200 {
				t.Errorf("%s with %v: %d", open, header, got.Code)
			}
		}
	}
	if len(h.forgot) > 0 {
		t.Errorf("pages of other sites had %v forgotten", h.forgot)
	}
	if got := s.get(t, "/v1/check?user=ada&peek=true&cost=3"); got.status != 200 ||
		!strings.Contains(got.body, `"remaining":3`) {
		t.Errorf("pages of other sites have counted: %+v", got)
	}
	for _, header := range welcome {
		s.post(t, "/v1/reset", `{"user":"ada"}`)
		for i := range all {
			if got := do(&all[i], header); got.Code != all[i].want && got.Code != 429 {
				t.Errorf("%s %s with %v: %d %s", all[i].method, all[i].path, header, got.Code, got.Body)
			}
		}
		s.post(t, "/v1/reset", `{"user":"ada"}`)
		if got := do(&all[0], header); got.Code != 200 || !strings.Contains(got.Body.String(), `"remaining":0`) {
			t.Errorf("with %v a GET does not charge: %d %s", header, got.Code, got.Body)
		}
	}
	for scheme, want := range map[string]int{"https": 200, "http": 403} { // that of a page that asks over TLS
		got := ask(s.Handler(), loopback, "127.0.0.1:9", "GET", "https://localhost:8080/v1/check?user=eve", "",
			"Origin", scheme+"://localhost:8080")
		if got.Code != want {
			t.Errorf("from a page over %s: %d %s", scheme, got.Code, got.Body)
		}
	}
}

// A page whose own name is made to resolve to the node is of the same site. So requests
// that a browser may have sent must name the node. Programs may use any name.
func TestRebinding(t *testing.T) {
	s := newServer(t, fixed, func(o *transport.Options) { o.Hosts = []string{"weir.example"} })
	browsers := [][]string{
		{"Sec-Fetch-Site", "same-origin", "User-Agent", "Mozilla/5.0"}, {"Origin", "http://HOST"}, {"Sec-Fetch-Site", "none"},
		{"Accept-Language", "en", "User-Agent", "curl/8.9.1"}, {"Accept-Language", "", "User-Agent", "x"},
	}
	programs := [][]string{nil, {"User-Agent", "curl/8.9.1"},
		{"User-Agent", "node", "Accept-Language", "*", "Sec-Fetch-Mode", "cors"}}
	for host, own := range map[string]bool{
		"rebound.example:8080": false, "localhost.rebound.example": false, "10.0.0.6:8080": false,
		"localhost:8080": true, "127.0.0.1:8080": true, "10.0.0.5:8080": true, "weir.example": true, "WEIR.example.:80": true,
	} {
		at := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: 8080}
		for n, headers := range [][][]string{browsers, programs} {
			for _, header := range headers {
				header = append([]string{}, header...)
				for i := range header {
					header[i] = strings.ReplaceAll(header[i], "HOST", host)
				}
				want := 200
				if n == 0 && !own {
					want = 403
				}
				got := ask(s.Handler(), at, "127.0.0.1:9", "GET", "http://"+host+"/v1/check?user=ada&cost=0", "", header...)
				if got.Code != want || want == 403 && !strings.Contains(got.Body.String(), "--http-host") {
					t.Errorf("%s with %v: %d %s", host, header, got.Code, got.Body)
				}
				if got := ask(s.Handler(), at, "127.0.0.1:9", "GET", "http://"+host+"/healthz", "", header...); got.Code != 200 {
					t.Errorf("/healthz of %s with %v: %d", host, header, got.Code)
				}
			}
		}
	}
}

// A socket is its user's alone, takes the place of one that was left behind, and of
// nothing else.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	listen := func() (net.Listener, error) {
		return transport.Listen(t.Context(), "--admin-addr", "unix:"+path)
	}
	l, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != os.ModeSocket|0o600 || l.Addr().String() != path {
		t.Errorf("%v, %v, %v", info.Mode(), l.Addr(), err)
	}
	if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
		t.Errorf("beside it are %v, %v", all, err)
	}
	if _, err := listen(); err == nil || !strings.Contains(err.Error(), "another program listens there: stop it") ||
		!strings.Contains(err.Error(), "--admin-addr") {
		t.Errorf("two programs at one socket: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = listen(); err != nil {
		t.Fatalf("one that was left behind: %v", err)
	}
	site := transport.NewAdmin(transport.AdminOptions{Directory: &hall{}})
	served := make(chan error, 1)
	go func() { served <- site.Serve(l) }()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/members/forget",
		strings.NewReader(`{"name":"b"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if resp, err := client.Do(r); err != nil || resp.StatusCode != 200 {
		t.Errorf("over a socket: %v, %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
	if err := site.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(); err == nil || !strings.Contains(err.Error(), "another file is there") {
		t.Errorf("in place of a file: %v", err)
	}
	path = filepath.Join(path, "none", "admin.sock")
	if _, err := listen(); err == nil {
		t.Error("below a file")
	}
}

// TestPathsOfAnotherSite: a request to the administration that belongs to the clients'
// address is told so. What is not served at all is not said to be elsewhere.
func TestPathsOfAnotherSite(t *testing.T) {
	admin := transport.NewAdmin(transport.AdminOptions{}).Handler()
	for path, want := range map[string]string{
		"/v1/check": "its --http-addr", "/v1/explain": "its --http-addr", "/readyz": "its --http-addr",
		"/metrics": "see /openapi.yaml", "/debug/pprof/heap": "see /openapi.yaml", "/v1/member": "did you mean /v1/members?",
	} {
		got := ask(admin, loopback, "127.0.0.1:9", "GET", "http://localhost:8082"+path, "")
		if got.Code != 404 || !strings.Contains(got.Body.String(), want) {
			t.Errorf("%s: %d %s, want %q", path, got.Code, got.Body, want)
		}
	}
}

// keeper administers, for a tenant or for all.
type keeper struct {
	spender
	tenant string
}

func (k *keeper) Identify(transport.Credentials) (transport.Caller, error) { return k, nil }
func (k *keeper) Tenant() string                                           { return k.tenant }

// An administrator of a tenant is told of its own keys, and of nothing that tenants share.
func TestAdministratorOfATenant(t *testing.T) {
	by, h := new(keeper), &hall{}
	site := transport.NewAdmin(transport.AdminOptions{Directory: h, Access: by, Metrics: http.NotFoundHandler(),
		Profiles: http.NotFoundHandler(), Warnings: func() []string { return []string{"others' trouble"} },
		Reload: func(context.Context) (transport.Reloaded, error) { return transport.Reloaded{}, nil },
		Top: func(tenant string, _ int) (hottest, denied []transport.TopKey) {
			return []transport.TopKey{{Key: "of " + tenant}}, nil
		}}).Handler()
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8082}
	for _, tenant := range []string{"", "bank"} {
		by.tenant = tenant
		got := ask(site, at, "127.0.0.1:1", "GET", "http://localhost/v1/top", "")
		if body := got.Body.String(); got.Code != 200 || !strings.Contains(body, `"of `+tenant+`"`) ||
			strings.Contains(body, "trouble") != (tenant == "") {
			t.Errorf("top keys for %q: %d %s", tenant, got.Code, body)
		}
		for path, body := range map[string]string{"/v1/members": "", "/metrics": "", "/debug/pprof/heap": "",
			"/v1/reload": "{}", "/v1/members/forget": `{"name":"b"}`, "/v1/members/expel": `{"name":"b"}`,
			"/v1/members/readmit": `{"name":"b"}`} {
			method := map[bool]string{true: "GET", false: "POST"}[body == ""]
			got := ask(site, at, "127.0.0.1:1", method, "http://localhost"+path, body, "Content-Type", "application/json")
			if (got.Code == http.StatusForbidden) != (tenant == "bank") {
				t.Errorf("%s %s for %q: %d %s", method, path, tenant, got.Code, got.Body)
			}
		}
	}
	if len(h.forgot) != 3 {
		t.Errorf("%v were forgotten, expelled or readmitted", h.forgot)
	}
}
