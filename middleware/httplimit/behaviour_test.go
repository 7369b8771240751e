package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/httplimit"
)

// A1: the same limiter around an app, around a router or a part of it, around
// one handler, and as a plain function call; over real connections.
func TestAnywhereInAStack(t *testing.T) {
	rules := `  - {name: all, key: [ip], limits: [2/minute]}`
	mux := func(wrap func(http.Handler) http.Handler) *http.ServeMux {
		m := http.NewServeMux()
		m.Handle("/towns/", wrap(http.HandlerFunc(ok)))
		m.HandleFunc("/free", ok)
		return m
	}
	asItIs := func(h http.Handler) http.Handler { return h }
	for _, c := range []struct {
		name  string
		stack func(*httplimit.Limiter) http.Handler
		free  bool // what is not wrapped
	}{
		{"app", func(l *httplimit.Limiter) http.Handler { return l.Handler(mux(asItIs)) }, false},
		{"router", func(l *httplimit.Limiter) http.Handler {
			m := http.NewServeMux()
			m.Handle("/towns/", l.Handler(mux(asItIs)))
			m.HandleFunc("/free", ok)
			return m
		}, true},
		{"handler", func(l *httplimit.Limiter) http.Handler { return mux(l.Handler) }, true},
		{"call", func(l *httplimit.Limiter) http.Handler {
			return mux(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if l.Check(w, r) {
						next.ServeHTTP(w, r)
					}
				})
			})
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(c.stack(limit(t, node(t, nil, rules))))
			defer s.Close()
			status := func(path string) int {
				resp, err := http.Get(s.URL + path)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				return resp.StatusCode
			}
			got := []int{status("/towns/a"), status("/towns/b"), status("/towns/c"), status("/free")}
			want := []int{200, 200, 429, 429}
			if c.free {
				want[3] = 200
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// A1: a decision alone, which writes nothing.
func TestDecide(t *testing.T) {
	l := limit(t, node(t, nil, `  - {name: all, limits: [1/minute]}`))
	var d limiter.Decision
	r := httptest.NewRequest(http.MethodGet, "/towns", http.NoBody)
	for _, want := range []bool{true, false} {
		if err := l.DecideInto(r, &d); err != nil || d.Allowed != want || d.Rule != "all" {
			t.Errorf("got %+v, %v", d, err)
		}
	}
	if err := l.DecideInto(httptest.NewRequest(http.MethodGet, "/a/../b", http.NoBody), &d); !errors.Is(err,
		limiter.ErrInvalid) {
		t.Errorf("a path that is not counted: %v", err)
	}
}

// A2, A3: rules are tried in order, by path, method and group of the request; a
// group without limits is unrestricted, and what no rule matches passes.
func TestRulesThroughTheMiddleware(t *testing.T) {
	h := limited(t, node(t, nil, `
  - {name: admins, match: {group: admin}, unlimited: true}
  - {name: posts, match: {path: "^/towns", method: [POST]}, limits: [1/minute]}
  - {name: pros, match: {path: "^/towns", group: pro}, limits: [3/minute]}
  - {name: towns, match: {path: "^/towns"}, limits: [2/minute]}
`), httplimit.User(httplimit.FromHeader("X-User")), httplimit.Group(httplimit.FromHeader("X-Group")))
	for _, c := range []struct {
		who, path string
		edits     []edit
		want      int
	}{
		{"anyone", "/towns", nil, 2},
		{"anyone, posting", "/towns", []edit{method("POST")}, 1},
		{"a pro", "/towns", []edit{header("X-User", "bob"), header("X-Group", "pro")}, 3},
		{"a pro, posting", "/towns", []edit{header("X-User", "bob"), header("X-Group", "pro"), method("POST")}, 1},
		{"an admin", "/towns", []edit{header("X-Group", "admin")}, 10},
		{"anyone, elsewhere", "/villages", nil, 10},
	} {
		if got := until(t, h, c.path, same(c.edits...)); got != c.want {
			t.Errorf("%s: %d requests passed, want %d", c.who, got, c.want)
		}
	}
}

// A12: after an excess the key is blocked for a while, and the on-blocked
// handler can tell; C4: the test moves the time.
func TestBlockAndOnDenied(t *testing.T) {
	at := newClock()
	h := limited(t, node(t, at, `  - {name: login, limits: [{limit: 1, window: second, block: 30s}]}`),
		httplimit.OnDenied(func(w http.ResponseWriter, r *http.Request, d *limiter.Decision) {
			b := d.BlockedBy()
			w.Header().Set("X-Blocked", fmt.Sprint(b.FullName(), b.Blocked))
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, r.URL.Path, " in ", d.RetryAfter)
		}))
	if w := get(h, "/login"); w.Code != 200 {
		t.Fatal(w.Code)
	}
	w := get(h, "/login")
	if w.Code != http.StatusTeapot || w.Body.String() != "/login in 30s" ||
		w.Header().Get("X-Blocked") != "login/secondtrue" || w.Header().Get("Retry-After") != "30" {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	at.forward(30*time.Second - time.Microsecond)
	if w := get(h, "/login"); w.Code != http.StatusTeapot || w.Header().Get("Retry-After") != "1" {
		t.Errorf("still blocked: got %d %v", w.Code, w.Header())
	}
	at.forward(time.Microsecond)
	if w := get(h, "/login"); w.Code != 200 {
		t.Errorf("after the block: got %d", w.Code)
	}
}

// A12: the on-error handler answers what could not be decided, or lets it go on.
func TestOnError(t *testing.T) {
	n := node(t, nil, `  - {name: all, limits: [1/minute]}`)
	n.Close()
	goOn := false
	h := limited(t, n, httplimit.OnError(func(w http.ResponseWriter, r *http.Request, err error) bool {
		if goOn {
			return true
		}
		http.Error(w, r.URL.Path+": "+err.Error(), http.StatusTeapot)
		return false
	}))
	if w := get(h, "/towns"); w.Code != http.StatusTeapot || w.Body.String() != "/towns: "+weir.ErrClosed.Error()+"\n" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	goOn = true
	if w := get(h, "/towns"); w.Code != 200 || w.Body.String() != "ok" {
		t.Errorf("let go on: got %d %s", w.Code, w.Body)
	}
}

// A12: user and group from a function, a header, a session and a JWT claim. Two
// users have a counter each, wherever they connect from, and a group has its
// own rule.
func TestUserAndGroup(t *testing.T) {
	const rules = `
  - {name: pros, match: {group: pro}, key: [user], limits: [3/minute]}
  - {name: others, key: [user], limits: [2/minute]}
`
	at := newClock()
	s, v, end := sessions(t, at, 1), tokens(t, at), at.at.Add(time.Hour)
	for _, c := range []struct {
		name string
		opts []httplimit.Option
		as   func(user, group string) edit
	}{
		{
			"function", []httplimit.Option{
				httplimit.User(func(r *http.Request) string { return r.URL.Query().Get("user") }),
				httplimit.Group(func(r *http.Request) string { return r.URL.Query().Get("group") }),
			},
			func(user, group string) edit {
				return func(r *http.Request) { r.URL.RawQuery = "user=" + user + "&group=" + group }
			},
		},
		{
			"header", []httplimit.Option{
				httplimit.User(httplimit.FromHeader("X-None"), httplimit.FromHeader("X-User")),
				httplimit.Group(httplimit.FromHeader("x-group")),
			},
			func(user, group string) edit {
				return func(r *http.Request) { r.Header.Set("X-User", user); r.Header.Set("X-Group", group) }
			},
		},
		{
			"baggage", []httplimit.Option{
				httplimit.User(httplimit.FromBaggage("none"), httplimit.FromBaggage("user")),
				httplimit.Group(httplimit.FromBaggage("plan")),
			},
			func(user, group string) edit {
				return func(r *http.Request) { r.Header["Baggage"] = []string{"user=" + user + ";p=1", "a=b, plan=" + group} }
			},
		},
		{
			"session", []httplimit.Option{httplimit.Session("session", s)},
			func(user, group string) edit { return cookie(sealed(t, s, user, group, end)) },
		},
		{
			"claim", []httplimit.Option{httplimit.Token(v, "sub", "plan")},
			func(user, group string) edit {
				return bearer(signed(t, jwt.SigningMethodHS256, secret(1), user, group, end))
			},
		},
		{
			"session, else claim", []httplimit.Option{httplimit.Session("session", s), httplimit.Token(v, "sub", "plan")},
			func(user, group string) edit {
				return bearer(signed(t, jwt.SigningMethodHS256, secret(1), user, group, end))
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := limited(t, node(t, at, rules), c.opts...)
			for _, who := range []struct {
				user, group string
				want        int
			}{{"ada", "", 2}, {"bob", "", 2}, {"eve", "pro", 3}} {
				got := until(t, h, "/", func(i int) []edit {
					return []edit{c.as(who.user, who.group), from(fmt.Sprintf("203.0.113.%d:1", i))}
				})
				if got != who.want {
					t.Errorf("%s of %q: %d passed, want %d", who.user, who.group, got, who.want)
				}
			}
		})
	}
}

// C4: time is frozen and moved by the test, through the middleware.
func TestFrozenTime(t *testing.T) {
	at := newClock()
	h := limited(t, node(t, at, `  - {name: all, limits: [2/minute]}`))
	count := func() int { return until(t, h, "/", same()) }
	if got := count(); got != 2 {
		t.Errorf("%d passed, want 2", got)
	}
	at.forward(time.Minute - 1)
	if got := count(); got != 0 {
		t.Errorf("just before the minute ends %d passed", got)
	}
	at.forward(1)
	if got := count(); got != 2 {
		t.Errorf("in the next minute %d passed, want 2", got)
	}
}

// E1: a user is an IP, a user id, a device, a customer, a URL with a method, or
// a combination: whatever else changes, the counter stays.
func TestWhoeverAUserIs(t *testing.T) {
	opts := []httplimit.Option{
		httplimit.User(httplimit.FromHeader("X-User")),
		httplimit.Attribute("device", httplimit.FromHeader("X-Device")),
		httplimit.Attribute("customer", httplimit.FromHost),
	}
	one := func(int) []edit { // everything the same
		return []edit{header("X-User", "ada"), header("X-Device", "d1"), func(r *http.Request) { r.Host = "c1.example" }}
	}
	but := func(change func(i int) edit) func(int) []edit {
		return func(i int) []edit { return append(one(i), change(i)) }
	}
	address := but(func(i int) edit { return from(fmt.Sprintf("203.0.113.%d:1", i)) })
	user := but(func(i int) edit { return func(r *http.Request) { r.Header.Set("X-User", fmt.Sprint(i)) } })
	device := but(func(i int) edit { return func(r *http.Request) { r.Header.Set("X-Device", fmt.Sprint(i)) } })
	customer := but(func(i int) edit { return func(r *http.Request) { r.Host = fmt.Sprint(i) } })
	verb := but(func(i int) edit { return method([]string{"GET", "PUT", "POST", "PATCH", "DELETE"}[i%5]) })
	for _, c := range []struct {
		key         string
		same, other []func(int) []edit
	}{
		{"[ip]", []func(int) []edit{one, user, device, customer, verb}, []func(int) []edit{address}},
		{"[user]", []func(int) []edit{one, address, device, customer, verb}, []func(int) []edit{user}},
		{"[\"attr:device\"]", []func(int) []edit{one, address, user, customer, verb}, []func(int) []edit{device}},
		{"[\"attr:customer\"]", []func(int) []edit{one, address, user, device, verb}, []func(int) []edit{customer}},
		{"[path, method]", []func(int) []edit{one, address, user, device, customer}, []func(int) []edit{verb}},
		{"[user, \"attr:device\", ip]", []func(int) []edit{one, customer, verb}, []func(int) []edit{address, user, device}},
	} {
		rules := fmt.Sprintf("  - {name: a, key: %s, limits: [2/minute]}", c.key)
		for i, e := range c.same {
			if got := until(t, limited(t, node(t, nil, rules), opts...), "/", e); got != 2 {
				t.Errorf("%s, the same caller in way %d: %d passed, want 2", c.key, i, got)
			}
		}
		for i, e := range c.other {
			if got := until(t, limited(t, node(t, nil, rules), opts...), "/", e); got <= 2 {
				t.Errorf("%s, other callers in way %d: %d passed, want more than 2", c.key, i, got)
			}
		}
	}
}

// E9: kinds of requests cost differently on one shared bucket, by method or by
// a function.
func TestCosts(t *testing.T) {
	const bucket = `  - {name: all, key: [ip], limits: [{limit: 6, window: hour, algorithm: token_bucket}]}`
	byMethod := httplimit.CostByMethod(map[string]int64{"GET": 1, "post": 2, "OPTIONS": 0, "DELETE": 7})
	h := limited(t, node(t, nil, bucket), byMethod)
	left := func(m string, want string) {
		t.Helper()
		w := get(h, "/", method(m))
		if got := fmt.Sprint(w.Code, " ", w.Header().Get("RateLimit"), w.Header().Get("Retry-After")); got != want {
			t.Errorf("%s: got %s, want %s", m, got, want)
		}
	}
	left("OPTIONS", `200 "all/hour";r=6;t=0`)
	left("GET", `200 "all/hour";r=5;t=600`)
	left("POST", `200 "all/hour";r=3;t=1800`)
	left("DELETE", `429 "all/hour";r=3;t=1800`) // never, so without Retry-After
	left("POST", `200 "all/hour";r=1;t=3000`)
	left("POST", `429 "all/hour";r=1;t=3000600`)
	left("PUT", `200 "all/hour";r=0;t=3600`) // what is not named costs what the rule says

	h = limited(t, node(t, nil, bucket), byMethod, httplimit.CostFunc(func(r *http.Request) limiter.Cost {
		if r.URL.Path == "/export" {
			return limiter.Units(5)
		}
		return limiter.Cost{}
	}))
	if w := get(h, "/export"); w.Header().Get("RateLimit") != `"all/hour";r=1;t=3000` {
		t.Errorf("by a function: got %v", w.Header())
	}
	if w := get(h, "/", method("POST")); w.Header().Get("RateLimit") != `"all/hour";r=0;t=3600` {
		t.Errorf("left to the rule: got %v", w.Header())
	}
}

// The middleware does not stand between a handler and what its ResponseWriter
// can do.
func TestResponseWriterIsNotWrapped(t *testing.T) {
	l := limit(t, node(t, nil, `  - {name: all, limits: [1/minute]}`))
	s := httptest.NewServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first")
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		_, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		panic(http.ErrAbortHandler)
	})))
	defer s.Close()
	resp, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" ||
		resp.Header.Get("RateLimit") == "" {
		t.Errorf("got %q, %v, %v", first, err, resp.Header)
	}
}

// What may be the doing of the sender of a request does not pass where requests pass while the decider fails.
func TestFailOpenOfRequest(t *testing.T) {
	for err, want := range map[error]int{
		limiter.ErrInvalid: http.StatusBadRequest, limiter.ErrScope: http.StatusForbidden,
		limiter.ErrBudget:  http.StatusTooManyRequests,
		limiter.ErrSettled: http.StatusConflict, limiter.ErrForbidden: http.StatusOK, limiter.ErrUnanswered: http.StatusOK,
	} {
		h := limited(t, deciderFunc(func(context.Context, *limiter.Request, *limiter.Decision) error {
			return err
		}), httplimit.FailOpen())
		if w := get(h, "/"); w.Code != want {
			t.Errorf("%v: got %d, want %d", err, w.Code, want)
		}
	}
}
