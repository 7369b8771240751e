package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/weirlimit/weir/middleware/httplimit"
)

// A server behind the guard may decode a path again, drop parameters, take a backslash
// for a slash, or cut at a zero byte. A path that this would change is refused, and the
// paths of honest clients are not.
func TestTricksOfPathsAreRefused(t *testing.T) {
	h := limited(t, node(t, nil, `  - {name: all, key: [rule, ip], limits: [1000000/minute]}`))
	for what, paths := range map[string][]string{
		"parameters after dots": {"/x/..;/login", "/x/..;a=b/login", "/x/.;/login", "/x/..;", "/..;/..;/login",
			"/x/..%3b/login", "/x/..%3B%2flogin", "/x/%2e%2e;/login", "/x/..%253b/login"},
		"encoded twice": {"/x/%252e%252e/login", "/x/%252E%252e%252flogin", "/x/.%252e/login", "/x/%252e/login",
			"/x/..%252flogin", "/x/%25252e%25252e/login", "/x/%2525252e%2525252e/login", "/x/%%32%65%%32%65/login",
			"/x/%25%32%65%25%32%65/login"},
		"encoded too often":     {"/x/%252525252525252e%252525252525252e/login", "/x/%25252525252541"},
		"a slash encoded twice": {"/x%252flogin", "/x%252Flogin", "/x/a%25252fb"},
		"backslashes": {`/x/..\login`, `/x\..\login`, "/x/..%5clogin", "/x/..%5Clogin", "/x%5clogin",
			"/x%255clogin", "/x/..%255clogin", `/\login`},
		"encoded slashes": {"/x/..%2flogin", "/x/..%2Flogin", "/x%2f..%2flogin", "/x%2f%2e%2e%2flogin",
			"/x%2f..;%2flogin", "/x%2f.%2flogin"},
		"doubled slashes": {"/x//..//login", "//..//login", "/x/..//login", "/x//.//login"},
		"control characters": {"/login%00", "/login%00.css", "/x%00/../login", "/login%2500", "/login%0a", "/x%0d%0a",
			"/login%7f", "/login%09"},
		"overlong characters": {"/x/%c0%ae%c0%ae/login", "/x/..%c0%aflogin", "/x/%c0%2e/login",
			"/x/%e0%80%ae%e0%80%ae/login", "/x/%f0%80%80%ae/login", "/x/..%c1%9clogin", "/x/%25c0%25ae/login",
			"/x/%f8%80%80%80%ae/login", "/x/%fc%80%80%80%80%ae/login", "/x/%c0%2flogin", "/l%c1%afgin"},
		"another encoding":   {"/x/%25u002e%25u002e/login", "/x%25u002flogin", "/x/..%25u005clogin"},
		"blanks after dots":  {"/x/..%20/login", "/x/.%20/login", "/x/..%20%20;a/login"},
		"fragments":          {"/login#", "/login#x", "/login#%41", "/x#/login", "/#", "/login;a#x", "/x%2F..#"},
		"encoded twice, too": {"/login%2523x", "/login%253Fx", "/login%25253fx"},
		"merged slashes": {"/%2Flogin", "/%2flogin", "/%2F%2Flogin", "/login%2F", "/login%2f", "/login%2F%2F",
			"/a/%2Fb", "/a%2F/b", "/a%2F%2fb", "/%2F", "/login%2F;x", "/;%2Flogin", "/;a%2Flogin", "/a%2F;b/c", "/x;a%2Fb"},
		"the end": {"/x/..", "/x/.", "/x/%2e%2e", "/x/%252e%252e", "/..", "/%2e"},
	} {
		for _, path := range paths {
			if w := ask(t, h, path); w.Code != http.StatusBadRequest || w.Body.String() == "ok" {
				t.Errorf("%s: %s: got %d, want 400", what, path, w.Code)
			}
		}
	}
	for _, path := range []string{
		"/", "/towns/ulm", "/towns/.hidden", "/.well-known/acme-challenge/x", "/..a/b", "/a../b", "/.../b", "/a.css",
		"/v1.2/x", "/x;a=b/y", "/;",
		"/100%25", "/100%2525", "/a%20b", "/a+b", "/a%2Fb", "/a%2fb", "/a%2Fb%2Fc/d%2fe", "/a%2Fb;c/d;e", "/a%3Bb",
		"/a%3Fb=%26", "/tags/c%23", "/what%3F", "/%23", "/a~b", "/a:b@c", "/%E2%82%AC/%C3%A9", "/%e9t%e9",
		"/%ED%95%9C%EA%B8%80", "/%F0%9F%8C%8A", "/%E0%A4%A8", "/M%FCnchen", "/%D8rsted", "/%F8re/x", "/%C1vila", "/VOIL%C0",
		"/caf%E9/x", "/%FF", "/%E0%82%A0", "/%F8%80%80%80", "/%E0%80", "/%252", "/%25zz", "/a%25b", "/x/%25u20ac",
		"/a..%20b/c", "/x/.%20a",
	} {
		if w := ask(t, h, path); w.Code != http.StatusOK {
			t.Errorf("%s: got %d, want 200: %s", path, w.Code, w.Body)
		}
	}
}

// ask sends a path as it is written, which no client would.
func ask(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	u, err := url.ParseRequestURI(path)
	if err != nil { // Go's server refuses it, but others may hand it on
		u = &url.URL{Path: path}
	}
	r.URL, r.RequestURI, r.RemoteAddr = u, path, "203.0.113.9:4711"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Parameters are left out of what is counted, since some routers leave them out of what
// they serve: else "/login;1", "/login;2" and so on would have a limit each, or none.
func TestParametersDoNotEscape(t *testing.T) {
	h := limited(t, node(t, nil, `  - {name: login, match: {path: "^/login$"}, key: [path, ip], limits: [1/minute]}`))
	if w := get(h, "/login"); w.Code != http.StatusOK {
		t.Fatal(w.Code)
	}
	for _, path := range []string{"/login;", "/login;v=1", "/login;v=2;w", "/login;jsessionid=%41", "/;x/login",
		"/;/login;", "/login/;x", "/;a//login;b/"} {
		if w := get(h, path); w.Code != http.StatusTooManyRequests {
			t.Errorf("%s: got %d, want 429", path, w.Code)
		}
	}
	for _, path := range []string{"/login%3Bv=1", "/log;in"} { // an encoded semicolon begins no parameter
		if w := get(h, path); w.Code != http.StatusOK {
			t.Errorf("%s: got %d, want 200: it is another path", path, w.Code)
		}
	}
}

// A path that most people ask for is not copied.
func TestPlainPathsAreNotCopied(t *testing.T) {
	if raced {
		t.Skip("allocations are counted without the race detector")
	}
	for _, path := range []string{"/towns/ulm", "/.well-known/a.b", "/städte/ulm", "/a b"} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.URL = &url.URL{Path: path}
		if n := testing.AllocsPerRun(100, func() {
			if got, err := httplimit.NormalPath(r); got != path || err != nil {
				t.Error(got, err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", path, n)
		}
	}
}
