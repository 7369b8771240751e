package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/httplimit"
)

func TestOptionsThatCannotBe(t *testing.T) {
	n := node(t, nil, `  - {name: all, limits: [1/minute]}`)
	for name, o := range map[string]httplimit.Option{
		"Rule":             httplimit.Rule(""),
		"Skip":             httplimit.Skip(nil),
		"Path":             httplimit.Path(nil),
		"TrustedProxies":   httplimit.TrustedProxies(netip.Prefix{}),
		"AddressField":     httplimit.AddressField(""),
		"X-Real-Ip":        httplimit.AddressField("X-Real-IP"),
		"Forwarded":        httplimit.ForwardedField(),
		"IPv6Bits 0":       httplimit.IPv6Bits(0),
		"IPv6Bits 129":     httplimit.IPv6Bits(129),
		"Attribute":        httplimit.Attribute("", httplimit.FromHeader("x")),
		"Attribute needs":  httplimit.Attribute("x", nil),
		"CostByMethod":     httplimit.CostByMethod(map[string]int64{"GET": -1}),
		"CostFunc":         httplimit.CostFunc(nil),
		"OnDenied":         httplimit.OnDenied(nil),
		"OnError":          httplimit.OnError(nil),
		"spelling 9":       httplimit.Headers(httplimit.IETF, 9),
		"form 2":           httplimit.ResetAs(2),
		"Now":              httplimit.Now(nil),
		"User":             httplimit.User(nil),
		"Group":            httplimit.Group(httplimit.FromHeader("x"), nil),
		"Session":          httplimit.Session("session", nil),
		"Session needs":    httplimit.Session("", sessions(t, newClock(), 1)),
		"Token":            httplimit.Token(nil, "sub", ""),
		"the claim":        httplimit.Token(tokens(t, newClock()), "", ""),
		"trusted to set i": httplimit.AddressField("CF-Connecting-IP"),
	} {
		m, err := httplimit.New(n, o)
		if first, _, _ := strings.Cut(name, " "); err == nil || m != nil || !strings.HasPrefix(err.Error(), "httplimit: ") ||
			!strings.Contains(err.Error(), first) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	_, err := httplimit.New(nil, httplimit.Rule(""), httplimit.IPv6Bits(0))
	for _, want := range []string{"the decider is nil", "Rule", "IPv6Bits"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if _, err := httplimit.New(n, loopback(), httplimit.AddressField("X-Real-IP")); err != nil {
		t.Errorf("with proxies: %v", err)
	}
}

func TestSkip(t *testing.T) {
	h := limited(t, node(t, nil, `  - {name: all, limits: [1/minute]}`), httplimit.Skip(func(r *http.Request) bool {
		return r.URL.Path == "/healthz"
	}))
	if got := until(t, h, "/healthz", same()); got != 10 {
		t.Errorf("%d probes passed", got)
	}
	if got := until(t, h, "/", same()); got != 1 {
		t.Errorf("%d requests passed, want 1", got)
	}
}

func TestRule(t *testing.T) {
	n := node(t, nil, `
  - {name: all, limits: [5/minute]}
  - {name: login, match: {path: "^/only-here"}, key: [ip], limits: [1/minute]}
`)
	if got := until(t, limited(t, n, httplimit.Rule("login")), "/", same()); got != 1 {
		t.Errorf("%d passed, want 1", got)
	}
	if w := get(limited(t, n, httplimit.Rule("logon")), "/"); w.Code != http.StatusBadRequest {
		t.Errorf("a rule that there is not: got %d", w.Code)
	}
}

// asked returns the paths that a decider is asked for.
func asked(t *testing.T, opts ...httplimit.Option) (h http.Handler, path *string) {
	t.Helper()
	path = new(string)
	return limited(t, deciderFunc(func(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
		*path = r.Path
		d.Clear()
		return nil
	}), opts...), path
}

func TestPath(t *testing.T) {
	h, path := asked(t, httplimit.Path(func(r *http.Request) string { return r.URL.Query().Get("as") }))
	for in, want := range map[string]string{"/x/../y?as=/a/../b": "/a/../b", "/x//": "/x", "/%C3%BC/": "/ü"} {
		if get(h, in); *path != want {
			t.Errorf("%s: counted as %q, want %q", in, *path, want)
		}
	}
	for in, want := range map[string]string{"*": "*", "": "/"} {
		if get(h, "/", func(r *http.Request) { r.URL.Path = in }); *path != want {
			t.Errorf("path %q: counted as %q, want %q", in, *path, want)
		}
	}
}

func TestPathFromPattern(t *testing.T) {
	h, path := asked(t, httplimit.PathFromPattern())
	m := http.NewServeMux()
	m.Handle("GET /towns/{name}", h)
	m.Handle("towns.example/villages/{name...}", h)
	for in, want := range map[string]string{
		"/towns/ulm": "/towns/{name}", "http://towns.example/villages/a/b": "/villages/{name...}",
	} {
		if get(m, in); *path != want {
			t.Errorf("%s: counted as %q, want %q", in, *path, want)
		}
	}
	if get(h, "/no/router/"); *path != "/no/router" {
		t.Errorf("without a router: counted as %q", *path)
	}
}

// FuzzPath holds what is counted against what it is for: one spelling, which
// stays itself when it is asked for, and no segments that lead elsewhere.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/towns//ulm/", "/%2e%2E/x", "/a%2Fb", "/a%5c..", "*", "/%", "/ü/%00",
		"/x/..;/login", "/x/%252e%252e/y", `/x\..`, "/a%2F..%2Fb", "/100%25", "//a//;b/", "/%c0%ae/%25u002e", "/a%3Bb"} {
		f.Add(s)
	}
	var path string
	l, err := httplimit.NewLimiter(deciderFunc(func(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
		path = r.Path
		d.Clear()
		return nil
	}))
	if err != nil {
		f.Fatal(err)
	}
	h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	f.Fuzz(func(t *testing.T, in string) {
		r, err := http.NewRequest(http.MethodGet, "http://towns.example"+in, http.NoBody)
		if err != nil || !strings.HasPrefix(in, "/") {
			return
		}
		ask := func() bool {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code == http.StatusOK
		}
		if !ask() {
			return
		}
		first := path
		for again := first; ; { // also when decoded by each of several servers in a row
			for _, s := range strings.FieldsFunc(strings.ReplaceAll(again, "%2F", "/"), func(c rune) bool {
				return c == '/' || c == '\\'
			}) {
				if s, _, _ = strings.Cut(s, ";"); s == "." || s == ".." {
					t.Fatalf("%q is counted as %q", in, first)
				}
			}
			next, err := url.PathUnescape(again)
			if err != nil || next == again {
				break
			}
			again = next
		}
		if !strings.HasPrefix(first, "/") || strings.Contains(first, "//") || first != "/" && strings.HasSuffix(first, "/") {
			t.Fatalf("%q is counted as %q", in, first)
		}
		// The counted path, in the form in which a client would request it.
		r.URL.RawPath = strings.NewReplacer("%252F", "%2F", ";", "%3B").Replace((&url.URL{Path: first}).EscapedPath())
		if r.URL.Path, err = url.PathUnescape(r.URL.RawPath); err != nil {
			t.Fatal(err)
		}
		if !ask() || path != first {
			t.Fatalf("%q is counted as %q, and that as %q", in, first, path)
		}
	})
}
