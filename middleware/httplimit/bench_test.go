package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir/middleware/httplimit"
)

// discard is a response writer that drops everything.
type discard http.Header

func (d discard) Header() http.Header         { return http.Header(d) }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// asking returns what sends one request, again and again, through a limiter.
func asking(tb testing.TB, opts []httplimit.Option, edits ...edit) func() {
	n := node(tb, nil,
		`  - {name: towns, match: {path: "^/towns"}, limits: [{limit: 1000000000, window: minute}, {limit: 1000000000, `+
			`window: hour}]}`)
	l := limit(tb, n, opts...)
	passed := 0
	h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed++ }))
	r := httptest.NewRequest(http.MethodGet, "/towns/ulm", http.NoBody)
	r.RemoteAddr = "203.0.113.9:4711"
	for _, e := range edits {
		e(r)
	}
	w := discard{}
	tb.Cleanup(func() {
		if passed == 0 {
			tb.Error("nothing passed")
		}
	})
	return func() {
		clear(w)
		h.ServeHTTP(w, r)
	}
}

func user(r *http.Request) string { return "ada" }

// The decision and what it is made from come from a pool: what is left is the
// text of the address and the header fields.
func TestAllocations(t *testing.T) {
	if raced {
		t.Skip("allocations are counted without the race detector")
	}
	quiet := httplimit.Headers()
	for _, c := range []struct {
		name string
		opts []httplimit.Option
		most float64
	}{
		{"no fields", []httplimit.Option{httplimit.User(user), quiet}, 1},
		{"IETF", []httplimit.Option{httplimit.User(user)}, 3},
		{"X-RateLimit", []httplimit.Option{httplimit.User(user), httplimit.Headers(httplimit.XRateLimit)}, 5},
		{"attributes", []httplimit.Option{httplimit.User(user), httplimit.Attribute("plan", user), quiet}, 1},
	} {
		if got := testing.AllocsPerRun(200, asking(t, c.opts)); got > c.most {
			t.Errorf("%s: %v allocations, want at most %v", c.name, got, c.most)
		}
	}
}

func BenchmarkHandler(b *testing.B) {
	at := newClock()
	s, v, end := sessions(b, at, 1), tokens(b, at), at.at.Add(time.Hour)
	for _, c := range []struct {
		name  string
		opts  []httplimit.Option
		edits []edit
	}{
		{"no_fields", []httplimit.Option{httplimit.User(user), httplimit.Headers()}, nil},
		{"ietf", []httplimit.Option{httplimit.User(user)}, nil},
		{"three", []httplimit.Option{httplimit.User(user), httplimit.Headers(httplimit.XRateLimit)}, nil},
		{"session", []httplimit.Option{httplimit.Session("session", s)}, []edit{cookie(sealed(b, s, "ada", "", end))}},
		{"token_hs256", []httplimit.Option{httplimit.Token(v, "sub", "")},
			[]edit{bearer(signed(b, jwt.SigningMethodHS256, secret(1), "ada", "", end))}},
	} {
		b.Run(c.name, func(b *testing.B) {
			ask := asking(b, c.opts, c.edits...)
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
		})
	}
}
