// Package askall asks an example what all of them are to answer.
package askall

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/examples/middleware"
	"github.com/weirlimit/weir/middleware/httplimit"
)

// Node opens a node with these rules, whose clock stands still, until the test ends.
func Node(t *testing.T, rules string) *weir.Node {
	t.Helper()
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	node, err := weir.Open(t.Context(), weir.Config{Rules: []byte(rules), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	return node
}

// Test serves an example over a real connection and holds it against its rules, as At does.
func Test(t *testing.T, routes func(httplimit.Decider) (http.Handler, error), shared bool) {
	app, err := routes(Node(t, middleware.Rules))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(app)
	defer s.Close()
	At(t, s.URL, shared, "application/problem+json")
}

// At asks an example that is served and holds it against its rules. shared tells that all
// towns share a counter, so that a third request is denied whatever town it is for. denial
// is the type of the body of denials.
func At(t *testing.T, url string, shared bool, denial string) {
	t.Helper()
	other := 200
	if shared {
		other = 429
	}
	for i, c := range []struct {
		method, path, user string
		status             int
		retryAfter, body   string
	}{
		{"GET", "/towns/ulm", "ada", 200, "", "a fine town: ulm\n"},
		{"GET", "/towns/ulm", "ada", 200, "", "a fine town: ulm\n"},
		{"GET", "/towns/ulm", "ada", 429, "60", "towns/minute"},
		{"GET", "/towns/bonn", "ada", other, "", ""},
		{"GET", "/towns/ulm", "bob", 200, "", "a fine town: ulm\n"},
		{"POST", "/login", "ada", 200, "", "welcome\n"},
		{"POST", "/login", "bob", 429, "300", "login/minute"},
		{"GET", "/healthz", "ada", 200, "", "ok\n"},
		{"GET", "/healthz", "ada", 200, "", "ok\n"},
		{"GET", "/healthz", "ada", 200, "", "ok\n"},
	} {
		got := ask(t, url, c.method, c.path, c.user)
		if got.status != c.status || c.retryAfter != "" && got.header.Get("Retry-After") != c.retryAfter ||
			!strings.Contains(got.body, c.body) {
			t.Errorf("%d: %s %s as %s: got %d, retry after %q, %s", i, c.method, c.path, c.user, got.status,
				got.header.Get("Retry-After"), got.body)
		}
		if told := got.header.Get("RateLimit") != "" &&
			got.header.Get("RateLimit-Policy") != ""; told != (c.path != "/healthz") {
			t.Errorf("%d: %s: fields %v", i, c.path, got.header)
		}
		if ct := got.header.Get("Content-Type"); c.status == 429 &&
			(ct != denial || strings.Contains(got.body, "fine town") || strings.Contains(got.body, "welcome")) {
			t.Errorf("%d: %s: a denial of type %q with %s", i, c.path, ct, got.body)
		}
	}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func ask(t *testing.T, url, method, path, user string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-User", user)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}
