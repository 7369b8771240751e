package transport_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirlimit/weir/middleware/httplimit"
)

// A check over HTTP is answered with the fields that httplimit sends, of the limits that count
// and of the nearest one, also if it is denied or only looks. Without a limit there are none.
func TestFieldsOfAnswers(t *testing.T) {
	const rules = `
version: 1
rules:
  - {name: admins, match: {group: admin}, unlimited: true}
  - {name: trial, match: {path: "^/towns"}, key: [user], shadow: true, continue: true, limits: [1/minute]}
  - {name: towns, match: {path: "^/towns"}, key: [user], limits: [{limit: 3, window: 1m, algorithm: fixed_window}, {limit: 100, window: 1h, algorithm: token_bucket, burst: 9}]}
`
	names := []string{"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
	policy := `"towns/minute";q=3;w=60, "towns/hour";q=9;w=324`
	s := newServer(t, rules, nil)
	for i, c := range []struct {
		query  string
		status int
		want   [5]string
	}{
		{"path=/towns&user=ada", 200, [5]string{policy, `"towns/minute";r=2;t=60, "towns/hour";r=8;t=36`, "3", "2", "60"}},
		{"path=/towns&user=ada&cost=2", 200, [5]string{policy, `"towns/minute";r=0;t=60, "towns/hour";r=6;t=108`, "3", "0",
			"60"}},
		{"path=/towns&user=ada", 429, [5]string{policy, `"towns/minute";r=0;t=60, "towns/hour";r=6;t=108`, "3", "0", "60"}},
		{"path=/towns&user=bob&peek=true", 200, [5]string{policy, `"towns/minute";r=3;t=0, "towns/hour";r=9;t=0`, "3", "3",
			"0"}},
		{"path=/towns&user=bob&cost=10", 429, [5]string{policy, `"towns/minute";r=3;t=0, "towns/hour";r=9;t=0`, "3", "3",
			"0"}},
		{"path=/towns&user=eve&group=admin", 200, [5]string{}},
		{"path=/other", 200, [5]string{}},
	} {
		got := s.get(t, "/v1/check?"+c.query)
		if got.status != c.status {
			t.Errorf("check %d: status %d, %s", i, got.status, got.body)
		}
		for j, name := range names {
			if value := got.header.Get(name); value != c.want[j] || len(got.header.Values(name)) > 1 {
				t.Errorf("check %d: %s is %q, want %q", i, name, value, c.want[j])
			}
		}
	}

	// They are those of httplimit.
	limit, err := httplimit.New(s.node, httplimit.User(httplimit.FromHeader("X-User")),
		httplimit.Headers(httplimit.IETF, httplimit.XRateLimit))
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/towns", http.NoBody)
	r.Header.Set("X-User", "ada")
	w := httptest.NewRecorder()
	limit(http.NotFoundHandler()).ServeHTTP(w, r)
	got := s.get(t, "/v1/check?path=/towns&user=ada")
	for _, name := range names {
		if w.Header().Get(name) != got.header.Get(name) {
			t.Errorf("%s is %q of httplimit and %q of /v1/check", name, w.Header().Get(name), got.header.Get(name))
		}
	}
}
