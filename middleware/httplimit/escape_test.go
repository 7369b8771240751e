package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/httplimit"
)

// perUser counts by user, and so anonymous requests by address.
const perUser = `
  - {name: admins, match: {group: admin}, unlimited: true}
  - {name: all, key: [user], limits: [2/minute]}
`

// A session cookie or a token with a bad signature, one that has expired, or an
// unsigned one, does not escape: however many users and groups it claims to be,
// it is counted by its address, together with requests that claim nothing.
func TestForgeriesDoNotEscape(t *testing.T) {
	at := newClock()
	s, forger := sessions(t, at, 1), sessions(t, at, 2)
	end, past := at.at.Add(time.Hour), at.at.Add(time.Second)
	opts := []httplimit.Option{httplimit.Session("session", s), httplimit.Token(tokens(t, at), "sub", "plan")}
	name := func(i int) string { return fmt.Sprintf("user%d", i) }
	expiredSession, expiredToken := make([]string, 10), make([]string, 10)
	for i := range 10 {
		expiredSession[i] = sealed(t, s, name(i), "admin", past)
		expiredToken[i] = signed(t, jwt.SigningMethodHS256, secret(1), name(i), "admin", past)
	}
	at.forward(2 * time.Second)
	for what, edits := range map[string]func(i int) []edit{
		"nothing":           same(),
		"a forged cookie":   func(i int) []edit { return []edit{cookie(sealed(t, forger, name(i), "admin", end))} },
		"a changed cookie":  func(i int) []edit { return []edit{cookie("B" + sealed(t, s, name(i), "admin", end)[1:])} },
		"an expired cookie": func(i int) []edit { return []edit{cookie(expiredSession[i])} },
		"a plain cookie":    func(i int) []edit { return []edit{cookie(name(i))} },
		"many cookies":      func(i int) []edit { return []edit{cookie(name(i)), cookie("x"), cookie("y")} },
		"a forged token": func(i int) []edit {
			return []edit{bearer(signed(t, jwt.SigningMethodHS256, secret(2), name(i), "admin", end))}
		},
		"an unsigned token": func(i int) []edit {
			return []edit{bearer(signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, name(i), "admin", end))}
		},
		"another algorithm": func(i int) []edit {
			return []edit{bearer(signed(t, jwt.SigningMethodHS512, secret(1), name(i), "admin", end))}
		},
		"an expired token": func(i int) []edit { return []edit{bearer(expiredToken[i])} },
		"a token for nobody": func(int) []edit {
			return []edit{bearer(signed(t, jwt.SigningMethodHS256, secret(1), "", "admin", end))}
		},
		"rubbish for a token": func(i int) []edit { return []edit{bearer(name(i))} },
		"another scheme":      func(i int) []edit { return []edit{header("Authorization", "Basic "+name(i))} },
		"a huge token":        func(i int) []edit { return []edit{bearer(name(i) + strings.Repeat("x", 1<<16))} },
	} {
		h := limited(t, node(t, at, perUser), opts...)
		if got := until(t, h, "/", edits); got != 2 {
			t.Errorf("%s: %d requests passed, want 2", what, got)
		}
		if w := get(h, "/"); w.Code != http.StatusTooManyRequests {
			t.Errorf("%s was not counted by its address", what)
		}
		if w := get(h, "/", cookie(sealed(t, s, name(0), "", end))); w.Code != http.StatusOK {
			t.Errorf("%s was counted by the user that it claimed to be", what)
		}
	}
	h := limited(t, node(t, at, perUser), opts...)
	if got := until(t, h, "/", same(cookie(sealed(t, s, "root", "admin", end)))); got != 10 {
		t.Errorf("premise: a good session passed %d times", got)
	}
	behind := func(bad int) []edit { // a good cookie behind bad ones of its name
		out := []edit{}
		for range bad {
			out = append(out, cookie("bad"))
		}
		return append(out, cookie(sealed(t, s, "eve", "", end)))
	}
	if got := until(t, h, "/", same(behind(3)...)); got != 2 {
		t.Errorf("a good cookie after bad ones of its name passed %d times, want 2 as eve", got)
	}
	if got := until(t, h, "/", same(behind(4)...)); got != 2 {
		t.Errorf("a good cookie after too many bad ones passed %d times, want 2 as anonymous", got)
	}
}

// A rule that denies one address of IPv6 finds it, although what counts is its network.
func TestAddressOfIPv6IsMatchedItself(t *testing.T) {
	h := limited(t, node(t, nil, `  - {name: blocked, match: {ip: "2001:db8::7"}, deny: true}
  - {name: all, key: [ip], limits: [2/minute]}`))
	if w := get(h, "/", from("[2001:db8::7]:80")); w.Code != http.StatusForbidden {
		t.Errorf("a blocked address got %d, want 403", w.Code)
	}
	if got := until(t, h, "/", func(i int) []edit {
		return []edit{from(fmt.Sprintf("[2001:db8::%d]:80", 10+i))}
	}); got != 2 {
		t.Errorf("other addresses of its network passed %d times, want 2", got)
	}
}

// A spoofed X-Forwarded-For does not escape: not where no proxy is trusted, not
// where the connection comes from elsewhere, and not through the proxy, which
// adds the true address.
func TestSpoofedAddressesDoNotEscape(t *testing.T) {
	spoofed := func(name string) func(int) []edit {
		return func(i int) []edit { return []edit{header(name, fmt.Sprintf("198.51.100.%d", i))} }
	}
	proxied := func(value string) func(int) []edit {
		return func(i int) []edit {
			return []edit{from("10.0.0.1:80"), header("X-Forwarded-For", strings.ReplaceAll(value, "N", fmt.Sprint(i)))}
		}
	}
	proxies := httplimit.TrustedProxies(netip.MustParsePrefix("10.0.0.0/8"))
	for _, c := range []struct {
		name  string
		opts  []httplimit.Option
		edits func(int) []edit
		want  int
	}{
		{"no proxies", nil, spoofed("X-Forwarded-For"), 2},
		{"no proxies, Forwarded", nil, func(i int) []edit {
			return []edit{header("Forwarded", fmt.Sprintf("for=198.51.100.%d", i))}
		}, 2},
		{"no proxies, X-Real-IP", nil, spoofed("X-Real-IP"), 2},
		{"past the proxies", []httplimit.Option{proxies}, spoofed("X-Forwarded-For"), 2},
		{"past the proxies, X-Real-IP", []httplimit.Option{proxies, httplimit.AddressField("X-Real-IP")},
			spoofed("X-Real-IP"), 2},
		{"through the proxy", []httplimit.Option{proxies}, proxied("198.51.100.N, 203.0.113.9"), 2},
		{"through the proxy, as a proxy", []httplimit.Option{proxies}, proxied("10.0.0.N, 203.0.113.9"), 2},
		{"another field than the one chosen", []httplimit.Option{proxies, httplimit.ForwardedField()}, func(i int) []edit {
			return append(proxied("198.51.100.N")(i), header("Forwarded", "for=203.0.113.9"))
		}, 2},
		{"premise: true callers", []httplimit.Option{proxies}, proxied("203.0.113.N"), 10},
		{"premise: true callers, X-Real-IP", []httplimit.Option{proxies, httplimit.AddressField("x-real-ip")},
			func(i int) []edit {
				return []edit{from("10.0.0.1:80"), header("X-Real-IP", fmt.Sprintf("203.0.113.%d", i))}
			}, 10},
		{"premise: true callers, Forwarded", []httplimit.Option{proxies, httplimit.ForwardedField()}, func(i int) []edit {
			return []edit{from("10.0.0.1:80"), header("Forwarded", fmt.Sprintf(`for="[2001:db8:0:%d::1]:80"`, i))}
		}, 10},
		{"other ports", nil, func(i int) []edit { return []edit{from(fmt.Sprintf("203.0.113.9:%d", 1000+i))} }, 2},
		{"other addresses of one IPv6 network", nil, func(i int) []edit {
			return []edit{from(fmt.Sprintf("[2001:db8::%d]:80", i))}
		}, 2},
		{"by more bits", []httplimit.Option{httplimit.IPv6Bits(128)}, func(i int) []edit {
			return []edit{from(fmt.Sprintf("[2001:db8::%d]:80", i))}
		}, 10},
		{"by fewer bits", []httplimit.Option{httplimit.IPv6Bits(32)}, func(i int) []edit {
			return []edit{from(fmt.Sprintf("[2001:db8:%d::]:80", i))}
		}, 2},
		{"IPv4 inside IPv6", nil, func(i int) []edit {
			return []edit{from([]string{"[::ffff:203.0.113.9]:1", "203.0.113.9:1"}[i%2])}
		}, 2},
		{"zones", nil, func(i int) []edit { return []edit{from(fmt.Sprintf("[fe80::1%%eth%d]:80", i))} }, 2},
		{"a Unix socket", nil, func(i int) []edit { return append(proxied("198.51.100.N")(i), from("@")) }, 2},
		{"a trusted Unix socket", []httplimit.Option{httplimit.TrustUnixSockets()}, func(i int) []edit {
			return append(proxied("198.51.100.N")(i), from("@"))
		}, 10},
		{"a trusted Unix socket, spoofed", []httplimit.Option{httplimit.TrustUnixSockets()}, func(i int) []edit {
			return append(proxied("198.51.100.N, 203.0.113.9")(i), from(""))
		}, 2},
		{"no address at all", []httplimit.Option{httplimit.TrustUnixSockets()}, func(i int) []edit {
			return append(spoofed("X-Forwarded-For")(i), from("nonsense"))
		}, 2},
	} {
		h := limited(t, node(t, nil, `  - {name: all, key: [ip], limits: [2/minute]}`), c.opts...)
		if got := until(t, h, "/", c.edits); got != c.want {
			t.Errorf("%s: %d requests passed, want %d", c.name, got, c.want)
		}
	}
}

// Another spelling of a path has no counter of its own, and does not lead past
// the rule for it.
func TestSpellingsOfAPathDoNotEscape(t *testing.T) {
	h := limited(t, node(t, nil, `  - {name: towns, match: {path: "^/towns"}, key: [path, ip], limits: [1/minute]}`))
	if w := get(h, "/towns/ulm"); w.Code != 200 {
		t.Fatal(w.Code)
	}
	for _, path := range []string{
		"/towns/ulm", "/towns/ulm/", "/towns//ulm", "//towns/ulm", "///towns///ulm///", "/towns/%75lm", "/%74owns/ulm",
		"/towns/ulm?x=1", "/towns/ulm/?", "/towns/%75%6c%6D",
	} {
		if w := get(h, path); w.Code != http.StatusTooManyRequests {
			t.Errorf("%s: got %d, want 429", path, w.Code)
		}
	}
	for _, path := range []string{
		"/towns/../free", "/free/../towns/ulm", "/towns/./ulm", "/towns/ulm/.", "/towns/ulm/..", "/./towns/ulm",
		"/../towns/ulm",
		"/towns/%2e%2e/free", "/towns/.%2E/free", "/free/%2e%2e%2ftowns/ulm", "/free%2F..%2Ftowns/ulm",
		"/free%5c..%5ctowns/ulm", "/free/..%5ctowns",
	} {
		w := get(h, path)
		if w.Code != http.StatusBadRequest || w.Body.String() == "ok" {
			t.Errorf("%s: got %d, want 400", path, w.Code)
		}
	}
	for _, path := range []string{"/towns/.hidden", "/towns/a.css", "/towns/...", "/towns/..a", "/towns/a..",
		"/towns/ulm%2Fdonau", "/towns/100%25", "/"} {
		if w := get(h, path); w.Code != 200 {
			t.Errorf("%s: got %d, want 200", path, w.Code)
		}
	}
	if w := get(h, "/towns/ulm%2fdonau"); w.Code != http.StatusTooManyRequests {
		t.Errorf("an encoded slash in small letters: got %d, want 429", w.Code)
	}
	if w := get(h, "/towns/ulm/donau"); w.Code != 200 {
		t.Errorf("an encoded slash is none: got %d, want 200", w.Code)
	}
}

// A request that is too long to be counted does not pass, even if the limiter fails
// open.
func TestTooLongDoesNotEscape(t *testing.T) {
	n := node(t, nil, `  - {name: all, key: [path, user], limits: [1000/minute]}`)
	for _, opts := range [][]httplimit.Option{nil, {httplimit.FailOpen()}} {
		h := limited(t, n, append(opts, httplimit.User(httplimit.FromHeader("X-User")))...)
		for name, w := range map[string]*httptest.ResponseRecorder{
			"path": get(h, "/"+strings.Repeat("x", 9000)),
			"user": get(h, "/", header("X-User", strings.Repeat("x", 9000))),
		} {
			if want := map[string]int{"path": http.StatusRequestURITooLong,
				"user": http.StatusBadRequest}[name]; w.Code != want || !strings.Contains(w.Body.String(), "too long") ||
				w.Header().Get("Retry-After") != "" {
				t.Errorf("%s: got %d %s", name, w.Code, w.Body)
			}
		}
	}
}

// A decider that fails lets nothing through, unless it is to fail open; but a
// caller who hangs up before the check is decided passes in neither case.
func TestFailures(t *testing.T) {
	broken := deciderFunc(func(ctx context.Context, _ *limiter.Request, _ *limiter.Decision) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return errors.New("the secret address of the backend does not answer")
	})
	w := get(limited(t, broken), "/")
	if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "secret") ||
		w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	open := limited(t, broken, httplimit.FailOpen())
	if w := get(open, "/"); w.Code != 200 || w.Header().Get("RateLimit") != "" {
		t.Errorf("failing open: got %d %v", w.Code, w.Header())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if w := get(open, "/", func(r *http.Request) { *r = *r.WithContext(ctx) }); w.Code != http.StatusServiceUnavailable {
		t.Errorf("failing open for one who hung up: got %d", w.Code)
	}
}

type deciderFunc func(context.Context, *limiter.Request, *limiter.Decision) error

func (f deciderFunc) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return f(ctx, r, d)
}

// A pooled check contains nothing of an earlier request.
func TestNothingIsLeftForTheNext(t *testing.T) {
	var got []limiter.Request
	h := limited(t, deciderFunc(func(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
		q := *r
		q.Attributes = map[string]string{}
		for k, v := range r.Attributes {
			q.Attributes[k] = v
		}
		got = append(got, q)
		d.Clear()
		return nil
	}), httplimit.User(httplimit.FromHeader("X-User")), httplimit.Group(httplimit.FromHeader("X-Group")),
		httplimit.Rule("r"),
		httplimit.Attribute("a", httplimit.FromHeader("X-A")), httplimit.CostByMethod(map[string]int64{"POST": 9}))
	get(h, "/first", header("X-User", "ada"), header("X-Group", "admin"), header("X-A", "1"), method("POST"))
	get(h, "/second")
	for i, want := range []string{
		`{Path:/first Method:POST User:ada IP:203.0.113.9 Group:admin Attributes:map[a:1] ` +
			`Cost:{units:9 given:true actual:<nil>} Rule:r Limits:[] LimitKeys:[] ID: IDTTL:0s IDOptional:false Hold:0s ` +
			`Lent:false Rate:0 Fast:false Tenant: Caller: Scope:<nil>}`,
		`{Path:/second Method:GET User: IP:203.0.113.9 Group: Attributes:map[] ` +
			`Cost:{units:0 given:false actual:<nil>} Rule:r Limits:[] LimitKeys:[] ID: IDTTL:0s IDOptional:false Hold:0s ` +
			`Lent:false Rate:0 Fast:false Tenant: Caller: Scope:<nil>}`,
	} {
		if s := fmt.Sprintf("%+v", got[i]); s != want {
			t.Errorf("got %s, want %s", s, want)
		}
	}
}

// Over a real Unix socket, behind which a proxy stands.
func TestUnixSocket(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", t.TempDir()+"/s")
	if err != nil {
		t.Skipf("no Unix sockets here: %v", err)
	}
	s := httptest.NewUnstartedServer(limited(t, node(t, nil, `  - {name: all, key: [ip], limits: [1/minute]}`),
		httplimit.TrustUnixSockets()))
	s.Listener.Close()
	s.Listener = ln
	s.Start()
	defer s.Close()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", ln.Addr().String())
		},
	}}
	for _, c := range []struct {
		forwarded string
		want      int
	}{{"203.0.113.1", 200}, {"203.0.113.1", 429}, {"203.0.113.1, 203.0.113.2", 200}, {"203.0.113.3, 203.0.113.2", 429}} {
		r, err := http.NewRequest(http.MethodGet, "http://x/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Forwarded-For", c.forwarded)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: got %d, want %d", c.forwarded, resp.StatusCode, c.want)
		}
	}
}
