package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/httplimit"
	"github.com/weirlimit/weir/middleware/identity"
)

// frozen is a clock that stands still, so that examples print the same.
func frozen() time.Time { return time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC) }

// rulesFile is what a service would read from a file.
const rulesFile = `
version: 1
defaults: {algorithm: fixed_window}
rules:
  - name: login
    match: {path: "^/login"}
    key: [ip]
    limits: [1/second]
  - name: towns
    match: {path: "^/towns"}
    limits: [2/minute]
    cost: {default: 1, POST: 2}
`

// show sends a request to a handler and prints how it was answered.
func show(h http.Handler, method, path string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
	fmt.Println(method, path, w.Code, w.Header().Get("RateLimit"))
}

// Around a whole app.
func Example() {
	node, err := weir.Open(context.Background(), weir.Config{Now: frozen, Rules: []byte(rulesFile)})
	if err != nil {
		panic(err)
	}
	defer node.Close()

	limit, err := httplimit.New(node,
		httplimit.TrustedProxies(netip.MustParsePrefix("10.0.0.0/8")),
		httplimit.User(httplimit.FromHeader("X-User"))) // set by that proxy
	if err != nil {
		panic(err)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /towns/{name}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "a fine town:", r.PathValue("name"))
	})
	app := limit(mux) // http.ListenAndServe(addr, app)

	show(app, "GET", "/towns/ulm")
	show(app, "GET", "/towns/ulm")
	show(app, "GET", "/towns/ulm")
	// Output:
	// GET /towns/ulm 200 "towns/minute";r=1;t=60
	// GET /towns/ulm 200 "towns/minute";r=0;t=60
	// GET /towns/ulm 429 "towns/minute";r=0;t=60
}

// Around a part of a router, around one handler by a rule of its own, and as a
// plain call.
func ExampleLimiter_Handler() {
	node, _ := weir.Open(context.Background(), weir.Config{Now: frozen, Rules: []byte(rulesFile)})
	defer node.Close()
	limit, err := httplimit.NewLimiter(node)
	if err != nil {
		panic(err)
	}
	strict, err := httplimit.NewLimiter(node, httplimit.Rule("login"))
	if err != nil {
		panic(err)
	}
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })

	towns := http.NewServeMux()
	towns.Handle("/towns/", ok)

	mux := http.NewServeMux()
	mux.Handle("/towns/", limit.Handler(towns))
	mux.Handle("/reset-password", strict.Handler(ok))
	mux.HandleFunc("/mixed", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && !strict.Check(w, r) {
			return // it is answered
		}
		fmt.Fprintln(w, "ok")
	})

	show(mux, "POST", "/towns/ulm")
	show(mux, "GET", "/towns/ulm")
	show(mux, "POST", "/reset-password")
	show(mux, "POST", "/mixed")
	show(mux, "GET", "/mixed")
	// Output:
	// POST /towns/ulm 200 "towns/minute";r=0;t=60
	// GET /towns/ulm 429 "towns/minute";r=0;t=60
	// POST /reset-password 200 "login/second";r=0;t=1
	// POST /mixed 429 "login/second";r=0;t=1
	// GET /mixed 200
}

// Users known by a signed cookie. What is not signed counts by its address.
func ExampleSession() {
	node, _ := weir.Open(context.Background(), weir.Config{Now: frozen, Rules: []byte(rulesFile)})
	defer node.Close()
	sessions, err := identity.NewSessions(identity.SessionConfig{
		Name: "session",
		Keys: [][]byte{[]byte("32 bytes or more from crypto/rand")},
		Now:  frozen,
	})
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New(node, httplimit.Session("session", sessions))
	if err != nil {
		panic(err)
	}
	app := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }))

	// When a user has logged in, the service sets this cookie.
	value, err := sessions.Seal(identity.Session{User: "ada", Expires: frozen().Add(time.Hour)})
	if err != nil {
		panic(err)
	}
	for _, v := range []string{value, "forged", "ada"} {
		r := httptest.NewRequest("GET", "/towns", http.NoBody)
		r.AddCookie(&http.Cookie{Name: "session", Value: v})
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 200 "towns/minute";r=1;t=60
	// 200 "towns/minute";r=1;t=60
	// 200 "towns/minute";r=0;t=60
}

// A denial in the service's own words, and requests that go on while the
// decider fails.
func ExampleOnDenied() {
	node, _ := weir.Open(context.Background(), weir.Config{Now: frozen, Rules: []byte(rulesFile)})
	defer node.Close()
	limit, err := httplimit.New(node,
		httplimit.FailOpen(),
		httplimit.Headers(httplimit.XRateDashLimit),
		httplimit.OnDenied(func(w http.ResponseWriter, _ *http.Request, d *limiter.Decision) {
			http.Error(w, "Slow down: "+d.BlockedBy().FullName(), http.StatusTooManyRequests)
		}))
	if err != nil {
		panic(err)
	}
	app := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }))
	for range 2 {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest("GET", "/login", http.NoBody))
		fmt.Print(w.Code, " ", w.Header().Get("X-Rate-Limit-Remaining"), " ", w.Header().Get("Retry-After"), " ", w.Body)
	}
	// Output:
	// 200 0  ok
	// 429 0 1 Slow down: login/second
}

// Downloads are charged by the bytes that were sent: at most 50 are reserved before, and nothing is
// charged to a client that hangs up.
func ExampleSettle() {
	node, _ := weir.Open(context.Background(), weir.Config{Now: frozen, Rules: []byte(
		"version: 1\nrules: [{name: bytes, cost: 50, key: [ip], limits: [{limit: 100, window: 1m, algorithm: " +
			"fixed_window}]}]\n",
	)})
	defer node.Close()
	limit, err := httplimit.New(node, httplimit.Settle(time.Minute,
		func(_ *http.Request, w *httplimit.Response) limiter.Cost {
			if w.Panicked || w.Err != nil {
				return limiter.Units(0)
			}
			return limiter.Units(w.Bytes)
		}))
	if err != nil {
		panic(err)
	}
	app := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "31 bytes of a file that is sent")
	}))
	for range 4 {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest("GET", "/file", http.NoBody))
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 200 "bytes/minute";r=50;t=60
	// 200 "bytes/minute";r=19;t=60
	// 429 "bytes/minute";r=38;t=60
	// 429 "bytes/minute";r=38;t=60
}
