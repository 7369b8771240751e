package httplimit_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/middleware/httplimit"
	"github.com/weirlimit/weir/middleware/identity"
)

// clock is a clock that the test moves.
type clock struct{ at time.Time }

func newClock() *clock { return &clock{time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time { return c.at }

func (c *clock) forward(d time.Duration) { c.at = c.at.Add(d) }

// node opens a node with rules, at the time of a clock (nil: one that stands).
func node(tb testing.TB, c *clock, rules string) *weir.Node {
	tb.Helper()
	if c == nil {
		c = newClock()
	}
	n, err := weir.Open(context.Background(), weir.Config{Now: c.now,
		Rules: []byte("version: 1\ndefaults: {algorithm: fixed_window}\nrules:\n" + rules)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { n.Close() })
	return n
}

func limit(tb testing.TB, d httplimit.Decider, opts ...httplimit.Option) *httplimit.Limiter {
	tb.Helper()
	l, err := httplimit.NewLimiter(d, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// ok is what is limited.
func ok(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

// limited returns a handler that is limited.
func limited(tb testing.TB, d httplimit.Decider, opts ...httplimit.Option) http.Handler {
	tb.Helper()
	return limit(tb, d, opts...).Handler(http.HandlerFunc(ok))
}

// edit changes a request before it is sent.
type edit func(*http.Request)

func header(name, value string) edit {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func from(remote string) edit { return func(r *http.Request) { r.RemoteAddr = remote } }

func method(m string) edit { return func(r *http.Request) { r.Method = m } }

func cookie(value string) edit {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "session", Value: value}) }
}

func bearer(token string) edit { return header("Authorization", "Bearer "+token) }

// get asks a handler for a path, from 203.0.113.9 unless edited.
func get(h http.Handler, path string, edits ...edit) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.RemoteAddr = "203.0.113.9:4711"
	for _, e := range edits {
		e(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// until returns how many requests are answered 200 before the first 429, at most
// ten. Each is made by its own edits.
func until(tb testing.TB, h http.Handler, path string, edits func(i int) []edit) int {
	tb.Helper()
	for i := range 10 {
		switch w := get(h, path, edits(i)...); w.Code {
		case http.StatusOK:
		case http.StatusTooManyRequests:
			return i
		default:
			tb.Fatalf("request %d: status %d, %s", i, w.Code, w.Body)
		}
	}
	return 10
}

func same(edits ...edit) func(int) []edit { return func(int) []edit { return edits } }

func secret(b byte) []byte { return bytes.Repeat([]byte{b}, identity.MinKeyBytes) }

func sessions(tb testing.TB, c *clock, b byte) *identity.Sessions {
	tb.Helper()
	s, err := identity.NewSessions(identity.SessionConfig{Name: "session", Keys: [][]byte{secret(b)}, Now: c.now})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func sealed(tb testing.TB, s *identity.Sessions, user, group string, end time.Time) string {
	tb.Helper()
	v, err := s.Seal(identity.Session{User: user, Group: group, Expires: end})
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

func tokens(tb testing.TB, c *clock) *identity.Tokens {
	tb.Helper()
	t, err := identity.NewTokens(identity.TokenConfig{Algorithms: []string{"HS256"}, Key: secret(1), Now: c.now})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func signed(tb testing.TB, m jwt.SigningMethod, key any, user, group string, end time.Time) string {
	tb.Helper()
	s, err := jwt.NewWithClaims(m, jwt.MapClaims{"sub": user, "plan": group, "exp": end.Unix()}).SignedString(key)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func loopback() httplimit.Option {
	return httplimit.TrustedProxies(netip.MustParsePrefix("127.0.0.0/8"))
}
