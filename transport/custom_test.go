package transport_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir/transport"
)

// A site of a program's own has its methods, refuses pages of other sites and, where it says
// so, other machines; a panic ends one request.
func TestSite(t *testing.T) {
	panics := 0
	answer := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
	}
	h := transport.NewSite(transport.SiteOptions{Name: "a test", Flag: "--test-host", Hosts: []string{"site.test"},
		Panicked: func(string) {
			panics++
		}, Routes: map[string]transport.SiteRoute{
			"/open": {Open: true, Serve: answer("open")}, "/shut": {Serve: answer("shut")},
			"/post": {Post: true, Serve: answer("post")},
			"/near": {Near: true, Serve: answer("near")}, "/panic": {Serve: func(http.ResponseWriter, *http.Request) {
				panic("a test")
			}},
		}}).Handler()
	for _, x := range []struct {
		method, path, from, page, host string
		status                         int
		want                           string
	}{
		{"GET", "/open", "192.0.2.1:1", "", "", 200, "open"},
		{"GET", "/open", "192.0.2.1:1", "http://evil.test", "", 200, "open"},
		{"GET", "/shut", "192.0.2.1:1", "", "", 200, "shut"},
		{"GET", "/shut", "192.0.2.1:1", "http://evil.test", "", 403, "a page of another site"},
		{"GET", "/shut", "192.0.2.1:1", "http://rebound.test", "rebound.test", 403, "--test-host"},
		{"GET", "/shut", "192.0.2.1:1", "http://site.test", "site.test", 200, "shut"},
		{"GET", "/post", "192.0.2.1:1", "", "", 405, "POST"},
		{"POST", "/post", "192.0.2.1:1", "", "", 200, "post"},
		{"POST", "/shut", "192.0.2.1:1", "", "", 405, "GET, HEAD"},
		{"GET", "/near", "192.0.2.1:1", "", "", 403, "only from the node's own machine"},
		{"GET", "/near", "127.0.0.1:1", "", "", 200, "near"},
		{"GET", "/none", "127.0.0.1:1", "", "", 404, ""},
		{"GET", "/panic", "127.0.0.1:1", "", "", 500, ""},
	} {
		r := httptest.NewRequest(x.method, x.path, http.NoBody)
		if r.RemoteAddr = x.from; x.page != "" {
			r.Header.Set("Origin", x.page)
		}
		if x.host != "" {
			r.Host = x.host
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != x.status || !strings.Contains(w.Body.String(), x.want) {
			t.Errorf("%+v: %d, %s", x, w.Code, w.Body)
		}
	}
	if panics != 1 {
		t.Errorf("%d panics", panics)
	}
}
