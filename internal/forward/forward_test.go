package forward

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
)

const testRules = `
rules:
  - {name: posts, match: {path: ^/a$, method: POST}, key: [rule, ip], limits: [{limit: 1, window: 1h}]}
  - {name: users, match: {path: ^/u$}, key: [user, group], limits: [{limit: 1, window: 1h}]}
`

func start(t *testing.T, change func(*Options)) http.Handler {
	t.Helper()
	node, err := weir.Open(t.Context(), weir.Config{Rules: []byte(testRules)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	o := Options{Decider: node, Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	if change != nil {
		change(&o)
	}
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// ask sends a sub-request from an address, with header fields as "Name: value".
func ask(h http.Handler, from, target string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.RemoteAddr = from + ":1234"
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// What a proxy asks about is counted by the method, the path and the address that the proxy
// names, and answered with the fields of httplimit.
func TestForward(t *testing.T) {
	h := start(t, nil)
	post := []string{"X-Original-URI: /a?x=1", "X-Original-Method: POST", "X-Forwarded-For: 192.0.2.1"}
	w := ask(h, "10.0.0.1", "/v1/auth", post...)
	if w.Code != 200 || w.Header().Get("RateLimit") == "" || w.Header().Get("X-RateLimit-Remaining") != "0" ||
		w.Body.Len() != 0 {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	w = ask(h, "10.0.0.1", "/v1/auth", post...)
	if w.Code != 429 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "quota-exceeded") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	w = ask(h, "10.0.0.2", "/v1/auth?deny=403", post...)
	if w.Code != 403 || w.Header().Get("Retry-After") == "" || w.Header().Get("RateLimit") == "" {
		t.Errorf("with another status: %d %v", w.Code, w.Header())
	}
	for what, fields := range map[string][]string{
		"another method":  {"X-Original-URI: /a", "X-Original-Method: GET", "X-Forwarded-For: 192.0.2.1"},
		"another path":    {"X-Original-URI: /b", "X-Original-Method: POST", "X-Forwarded-For: 192.0.2.1"},
		"another address": {"X-Original-URI: /a", "X-Original-Method: POST", "X-Forwarded-For: 192.0.2.1, 192.0.2.2"},
	} {
		if w := ask(h, "10.0.0.1", "/v1/auth", fields...); w.Code != 200 {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
	}
}

// Only listed proxies are believed, and only fields that the proxy sets once.
func TestRefused(t *testing.T) {
	h := start(t, func(o *Options) { o.User, o.Group = "X-User", "X-Group" })
	ok := []string{"X-Original-URI: /a", "X-Original-Method: POST"}
	for what, c := range map[string]struct {
		from, target string
		fields       []string
		want         int
		text         string
	}{
		"a stranger": {"192.0.2.9", "/v1/auth", ok, 403, "none of the proxies"},
		"no URI": {"10.0.0.1", "/v1/auth", ok[1:], 400,
			"has 0 fields X-Original-URI and 1 fields X-Original-Method"},
		"two URIs": {"10.0.0.1", "/v1/auth", append([]string{"X-Original-URI: /b"}, ok...), 400,
			"has 2 fields X-Original-URI"},
		"two users": {"10.0.0.1", "/v1/auth", append([]string{"X-User: ada", "X-User: bob"}, ok...), 400,
			"has 2 fields X-User"},
		"two groups": {"10.0.0.1", "/v1/auth", append([]string{"X-Group: a", "X-Group: a"}, ok...), 400,
			"has 2 fields X-Group"},
		"fields of other names": {"10.0.0.1", "/v1/auth", []string{"X-Forwarded-Uri: /a", "X-Forwarded-Method: POST"}, 400,
			"has 0 fields"},
		"no URI in the field": {"10.0.0.1", "/v1/auth", []string{"X-Original-URI: a b", "X-Original-Method: POST"}, 400,
			"is not the URI"},
		"another parameter":   {"10.0.0.1", "/v1/auth?dony=403", ok, 400, "no parameter \"dony\""},
		"a status of success": {"10.0.0.1", "/v1/auth?deny=200", ok, 400, "give a status from 400 to 499"},
		"dot segments": {"10.0.0.1", "/v1/auth", []string{"X-Original-URI: /x/..;/a", "X-Original-Method: POST"},
			400, "cannot be counted"},
		"encoded dots": {"10.0.0.1", "/v1/auth?deny=401",
			[]string{"X-Original-URI: /x/%252e%252e/a", "X-Original-Method: POST"}, 401, "cannot be counted"},
	} {
		if w := ask(h, c.from, c.target, c.fields...); w.Code != c.want || !strings.Contains(w.Body.String(), c.text) {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
	}
	w := ask(h, "10.0.0.1", "/v1/auth", append(ok, "X-Forwarded-For: 192.0.2.1")...)
	if w.Code != 200 {
		t.Errorf("what was refused has been counted: %d", w.Code)
	}
}

// With a status for refusals every refusal has it, and a field has the one in whose place it is. Else nginx would
// make 500 of it, which may pass.
func TestDeny(t *testing.T) {
	h := start(t, nil)
	ok := []string{"X-Original-URI: /a", "X-Original-Method: POST"}
	for what, c := range map[string]struct {
		from   string
		fields []string
		want   string
	}{
		"a stranger":   {"192.0.2.9", ok, "403"},
		"no URI":       {"10.0.0.1", ok[1:], "400"},
		"a bad escape": {"10.0.0.1", []string{"X-Original-URI: /a#%zz", "X-Original-Method: POST"}, "400"},
		"an empty URI": {"10.0.0.1", []string{"X-Original-URI: ", "X-Original-Method: POST"}, "400"},
		"dot segments": {"10.0.0.1", []string{"X-Original-URI: /a/../a", "X-Original-Method: POST"}, "400"},
		"a long path": {"10.0.0.1", []string{"X-Original-URI: /" + strings.Repeat("a", 9000), "X-Original-Method: POST"},
			"400"},
		"an allowed one":  {"10.0.0.1", ok, ""},
		"one beyond that": {"10.0.0.1", ok, "429"},
	} {
		if what == "one beyond that" {
			ask(h, c.from, "/v1/auth?deny=403", ok...)
		}
		w := ask(h, c.from, "/v1/auth?deny=403", c.fields...)
		if status := map[bool]int{true: 200, false: 403}[c.want == ""]; what != "an allowed one" &&
			(w.Code != status || w.Header().Get("X-Weir-Status") != c.want) {
			t.Errorf("%s: %d, in place of %q, want %s", what, w.Code, w.Header().Get("X-Weir-Status"), c.want)
		}
		if c.from != "10.0.0.1" {
			c.want = "" // the proxy is refused, and not its client
		}
		if w := ask(h, c.from, "/v1/auth", c.fields...); what != "an allowed one" &&
			w.Header().Get("X-Weir-Status") != c.want {
			t.Errorf("%s: %d, with the status %q, want %q", what, w.Code, w.Header().Get("X-Weir-Status"), c.want)
		}
	}
}

// A proxy may leave the client's query at the address of the node: it says nothing, but for a status of
// refusals that is one.
func TestQueryOfClient(t *testing.T) {
	h := start(t, nil)
	for i, query := range []string{"b=c", "%zz", "a;b", "deny=200", "deny=x&deny=403"} {
		want := 200
		if i > 0 {
			want = 429
		}
		if w := ask(h, "10.0.0.1", "/v1/auth?"+query, "X-Original-URI: /a?"+query,
			"X-Original-Method: POST"); w.Code != want {
			t.Errorf("?%s: %d %s, want %d", query, w.Code, w.Body, want)
		}
	}
	if w := ask(h, "10.0.0.1", "/v1/auth?dony=403", "X-Original-URI: /a?b=c", "X-Original-Method: POST"); w.Code != 400 {
		t.Errorf("a parameter of the proxy's own that is none: %d", w.Code)
	}
}

// The fields can have other names, and name user and group too.
func TestOtherFields(t *testing.T) {
	h := start(t, func(o *Options) {
		o.URI, o.Method, o.Address, o.User, o.Group = "X-Forwarded-Uri", "X-Forwarded-Method", "X-Real-IP", "X-User",
			"X-Group"
	})
	fields := []string{"X-Forwarded-Uri: /u", "X-Forwarded-Method: GET", "X-Real-IP: 192.0.2.1", "X-User: ada"}
	for _, c := range []struct {
		group string
		want  int
	}{{"a", 200}, {"a", 429}, {"b", 200}} {
		if w := ask(h, "10.0.0.1", "/v1/auth", append(fields, "X-Group: "+c.group)...); w.Code != c.want {
			t.Errorf("group %s: %d %s", c.group, w.Code, w.Body)
		}
	}
	// One of two addresses is the client's.
	if w := ask(h, "10.0.0.1", "/v1/auth", append(fields, "X-Group: c", "X-Real-IP: 192.0.2.2")...); w.Code != 400 ||
		!strings.Contains(w.Body.String(), "has 2 fields X-Real-IP") {
		t.Errorf("two addresses: %d %s", w.Code, w.Body)
	}
}

// A request with an id counts once, however often the proxy asks about it. Without the option
// the field means nothing.
func TestIDs(t *testing.T) {
	with := start(t, func(o *Options) { o.ID = "X-Request-ID" })
	without := start(t, nil)
	post := []string{"X-Original-URI: /a", "X-Original-Method: POST", "X-Forwarded-For: 192.0.2.1"}
	for i, c := range []struct {
		h      http.Handler
		fields []string
		want   int
	}{
		{with, []string{"X-Request-ID: 7"}, 200},
		{with, []string{"X-Request-ID: 7"}, 200},
		{with, []string{"X-Request-ID: 8"}, 429},
		{with, nil, 429},
		{with, []string{"X-Request-ID: "}, 429},
		{with, []string{"X-Request-ID: 7", "X-Request-ID: 7"}, 400},
		{with, []string{"X-Request-ID: " + strings.Repeat("x", 65)}, 400},
		{without, []string{"X-Request-ID: 7"}, 200},
		{without, []string{"X-Request-ID: 7"}, 429},
	} {
		if w := ask(c.h, "10.0.0.1", "/v1/auth", append(c.fields, post...)...); w.Code != c.want {
			t.Errorf("case %d: %d %s", i, w.Code, w.Body)
		}
	}
}

func TestOptions(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for what, o := range map[string]Options{
		"no decider": {Proxies: proxies},
		"no proxies": {Decider: new(weir.Node)},
	} {
		if _, err := New(o); err == nil {
			t.Error(what)
		}
	}
}

// settled is a decider that knows each id as that of a request that is over.
type settled struct{}

func (settled) CheckInto(context.Context, *limiter.Request, *limiter.Decision) error {
	return limiter.ErrSettled
}

// A request with an id of one that is over is refused for what it says, and not since the node fails.
func TestSpentID(t *testing.T) {
	h := start(t, func(o *Options) { o.Decider, o.ID = settled{}, "X-Request-ID" })
	w := ask(h, "10.0.0.1", "/v1/auth", "X-Original-URI: /a", "X-Original-Method: POST", "X-Request-ID: 7")
	if w.Code != http.StatusConflict || w.Header().Get("X-Weir-Status") != "409" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
