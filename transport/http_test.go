package transport_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/transport"
)

// reply is an HTTP response that was read.
type reply struct {
	status int
	header http.Header
	body   string
}

func (s *server) get(t *testing.T, path string) reply {
	t.Helper()
	return s.do(t, http.MethodGet, path, "", "")
}

func (s *server) post(t testing.TB, path, body string) reply {
	t.Helper()
	return s.do(t, http.MethodPost, path, "application/json", body)
}

func (s *server) do(t testing.TB, method, path, contentType, body string) reply {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		q.Header.Set("Content-Type", contentType)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	resp, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

// TestDecisionsOverHTTP: the status shows the decision, and the body is the node's
// answer in JSON, byte for byte.
func TestDecisionsOverHTTP(t *testing.T) {
	s := newServer(t, `
version: 1
rules:
  - {name: admins, match: {group: admin}, unlimited: true}
  - {name: towns, match: {path: "^/towns", attributes: {plan: free}}, limits: [3/minute], algorithm: fixed_window, cost: {default: 1, POST: 2}}
`, nil)
	s.clock.set(s.at(5*time.Second + time.Microsecond))
	const limit = `"limits":[{"name":"towns/minute","key":"/towns&x:ada:minute","algorithm":"fixed_window","limit":3,`
	for _, c := range []struct {
		what   string
		got    reply
		status int
		body   string
		retry  string
	}{
		{"GET", s.get(t, "/v1/check?path=/towns%26x&user=ada&attr.plan=free"), 200,
			`{"allowed":true,"rule":"towns","source":"owner",` + limit + `"remaining":2,"reset_after_ms":55000}]}`, ""},
		{"POST of a method that costs 2", s.post(t, "/v1/check",
			`{"path":"/towns&x","user":"ada","method":"POST","attributes":{"plan":"free"}}`), 200,
			`{"allowed":true,"rule":"towns","source":"owner",` + limit + `"remaining":0,"reset_after_ms":55000}]}`, ""},
		{"a denial", s.get(t, "/v1/check?path=/towns%26x&user=ada&attr.plan=free&cost=1"), 429,
			`{"allowed":false,"rule":"towns","blocked_by":"towns/minute","retry_after_ms":55000,"source":"owner",` + limit +
				`"remaining":0,"reset_after_ms":55000,"retry_after_ms":55000}]}`, "55"},
		{"never", s.post(t, "/v1/check", `{"rule":"towns","path":"/towns&x","user":"ada","cost":4}`), 429,
			`{"allowed":false,"never":true,"rule":"towns","blocked_by":"towns/minute","source":"owner",` + limit +
				`"remaining":0,"reset_after_ms":55000,"never":true}]}`, ""},
		{"a peek", s.get(t, "/v1/check?path=/towns%26x&user=ada&attr.plan=free&cost=2&peek=true"), 429,
			`{"allowed":false,"rule":"towns","blocked_by":"towns/minute","retry_after_ms":55000,"source":"owner",` + limit +
				`"remaining":0,"reset_after_ms":55000,"retry_after_ms":55000}]}`, "55"},
		{"no rule", s.get(t, "/v1/check"), 200, `{"allowed":true,"source":"no_rule","limits":[]}`, ""},
		{"unlimited", s.post(t, "/v1/check", `{"group":"admin","cost":null}`), 200,
			`{"allowed":true,"rule":"admins","source":"no_rule","limits":[]}`, ""},
	} {
		if c.got.status != c.status || c.got.body != c.body+"\n" {
			t.Errorf("%s: got %d %swant %d %s", c.what, c.got.status, c.got.body, c.status, c.body)
		}
		h := c.got.header
		if h.Get("Retry-After") != c.retry || h.Get("Content-Type") != "application/json" ||
			h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v, want Retry-After %q", c.what, h, c.retry)
		}
	}
}

// at returns the instant d after the beginning of the suite's time.
func (s *server) at(d time.Duration) limiter.Tick {
	return limiter.TickOf(s.clock.read().Add(d))
}

// TestBadRequestsOverHTTP: each gets a status and a problem that says what to do, and
// the node continues to answer.
func TestBadRequestsOverHTTP(t *testing.T) {
	s := newServer(t, fixed, func(o *transport.Options) { o.AllowReset, o.AllowRequestLimits = false, false })
	long := strings.Repeat("u", 8193)
	attributes := strings.TrimSuffix(strings.Repeat("attr.a%d=&", 17), "&")
	for i := range 17 {
		attributes = strings.Replace(attributes, "%d", fmt.Sprint(i), 1)
	}
	for _, c := range []struct {
		method, path, contentType, body string
		status                          int
		detail                          string
	}{
		{"GET", "/v1/check?usr=ada", "", "", 400, `unknown parameter "usr"; did you mean "user"?`},
		{"GET", "/v1/check?colour=red", "", "", 400, `unknown parameter "colour"; known: path, user,`},
		{"GET", "/v1/check?attr.=red", "", "", 400, `unknown parameter "attr."`},
		{"GET", "/v1/check?User=ada", "", "", 400, `did you mean "user"?`},
		{"GET", "/v1/check?user=ada&user=bob", "", "", 400, `parameter "user" is given 2 times`},
		{"GET", "/v1/check?user=%zz", "", "", 400, "cannot be read"},
		{"GET", "/v1/check?a=b;c=d", "", "", 400, "cannot be read"},
		{"GET", "/v1/check?cost=1.5", "", "", 400, `cost is "1.5"; it must be a whole number`},
		{"GET", "/v1/check?cost=-1", "", "", 400, "cost -1 is out of range"},
		{"GET", "/v1/check?cost=9007199254740992", "", "", 400, "out of range"},
		{"GET", "/v1/check?cost=99999999999999999999", "", "", 400, "must be a whole number"},
		{"GET", "/v1/check?peek=1", "", "", 400, "must be true or false"},
		{"GET", "/v1/check?user=" + long, "", "", 400, "at most 8192"},
		{"GET", "/v1/check?rule=nine", "", "", 400, `no rule "nine"`},
		{"GET", "/v1/check?" + attributes, "", "", 400, "17 attributes; at most 16"},
		{"POST", "/v1/check", "text/plain", "{}", 415, "Content-Type: application/json"},
		{"POST", "/v1/check", "", "{}", 415, "Content-Type: application/json"},
		{"POST", "/v1/check?user=ada", "application/json", "{}", 400, "put them into the body"},
		{"POST", "/v1/check", "application/json", "", 400, "JSON: it ends in the middle"},
		{"POST", "/v1/check", "application/json", `{"user":"ada"`, 400, "JSON: it ends in the middle, after 13 bytes"},
		{"POST", "/v1/check", "application/json", `{"user":ada}`, 400, "JSON: invalid character 'a'"},
		{"POST", "/v1/check", "application/json", `["user"]`, 400, "an object is needed"},
		{"POST", "/v1/check", "application/json", `{} {}`, 400, "more follows after the object"},
		{"POST", "/v1/check", "application/json", "{\"user\":\"\xff\"}", 400, "not UTF-8"},
		{"POST", "/v1/check", "application/json", `{"usr":"ada"}`, 400, `unknown field "usr"; did you mean "user"?`},
		{"POST", "/v1/check", "application/json", `{"User":"ada"}`, 400, `did you mean "user"?`},
		{"POST", "/v1/check", "application/json", `{"user":"ada","user":"bob"}`, 400, `field "user" is given twice`},
		{"POST", "/v1/check", "application/json", `{"attributes":{"p":"a","p":"b"}}`, 400, `field "p" is given twice`},
		{"POST", "/v1/check", "application/json", `{"user":7}`, 400, "user is 7; it must be a string"},
		{"POST", "/v1/check", "application/json", `{"cost":"7"}`, 400, `cost is "7"; it must be a whole number`},
		{"POST", "/v1/check", "application/json", `{"cost":1.5}`, 400, "cost is 1.5; it must be a whole number"},
		{"POST", "/v1/check", "application/json", `{"cost":-1}`, 400, "cost -1 is out of range"},
		{"POST", "/v1/check", "application/json", `{"cost":1e400}`, 400, "must be a whole number"},
		{"POST", "/v1/check", "application/json", `{"peek":"yes"}`, 400, "it must be true or false"},
		{"POST", "/v1/check", "application/json", `{"attributes":["a"]}`, 400, "an object of strings"},
		{"POST", "/v1/check", "application/json", `{"limits":[{"limit":1,"window":"1m"}]}`, 403, "--allow-request-limits"},
		{"POST", "/v1/check", "application/json", `{"user":"` + strings.Repeat("u", 1<<20) + `"}`, 413, "larger than 1 MiB"},
		{"POST", "/v1/check/batch", "application/json", `{"checks":[` + strings.Repeat("{},", 1000) + `{}]}`, 400,
			"more than 1000 checks; at most 1000"},
		{"POST", "/v1/check/batch", "application/json", `{"check":[]}`, 400, `did you mean "checks"?`},
		{"POST", "/v1/check/batch", "application/json", `{"checks":7}`, 400, "an array of checks"},
		{"POST", "/v1/check/batch", "application/x-www-form-urlencoded", `{"checks":[]}`, 415, "application/json"},
		{"POST", "/v1/reset", "application/json", `{"user":"ada"}`, 403, "--allow-reset"},
		{"GET", "/v1/chek", "", "", 404, "did you mean /v1/check?"},
		{"GET", "/", "", "", 404, "see /openapi.yaml"},
		{"DELETE", "/v1/check", "", "", 405, "GET, POST"},
		{"GET", "/v1/reset", "", "", 405, "POST"},
		{"POST", "/healthz", "", "", 405, "GET, HEAD"},
		{"GET", "/metrics", "", "", 404, "its --admin-addr"},
		{"GET", "/debug/pprof/heap", "", "", 404, "its --admin-addr"},
		{"POST", "/v1/members/forget", "application/json", `{}`, 404, "its --admin-addr"},
	} {
		what := fmt.Sprintf("%s %.40s %.60s", c.method, c.path, c.body)
		got := s.do(t, c.method, c.path, c.contentType, c.body)
		var p struct {
			Type, Title, Detail string
			Status              int
		}
		d := json.NewDecoder(strings.NewReader(got.body))
		d.DisallowUnknownFields()
		if err := d.Decode(&p); err != nil || got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %v, of type %q: %s", what, err, got.header.Get("Content-Type"), got.body)
		}
		if got.status != c.status || p.Status != c.status || p.Title != http.StatusText(c.status) ||
			!strings.Contains(p.Detail, c.detail) {
			t.Errorf("%s: got %d %s, want %d with %q", what, got.status, got.body, c.status, c.detail)
		}
		if c.status == 405 && got.header.Get("Allow") != c.detail {
			t.Errorf("%s: Allow %q", what, got.header.Get("Allow"))
		}
	}
	s.stillCounts(t, "ada", 3)
	s.stillCounts(t, "", 3)
}

// TestCompressedBody: a body in another coding is refused as such, before it is read.
func TestCompressedBody(t *testing.T) {
	s := newServer(t, fixed, nil)
	for coding, want := range map[string]int{"gzip": 415, "identity": 200} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/check",
			strings.NewReader(`{"user":"ada"}`))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Content-Encoding", coding)
		out, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		out.Body.Close()
		if out.StatusCode != want {
			t.Errorf("%s: status %d, want %d", coding, out.StatusCode, want)
		}
	}
}

// TestBatchOverHTTP: each check has an answer or a problem in its place.
func TestBatchOverHTTP(t *testing.T) {
	s := newServer(t, fixed, nil)
	got := s.post(t, "/v1/check/batch",
		`{"checks":[{"user":"ada","cost":2},{"usr":"ada"},{"user":"ada","cost":2},{"user":"ada","cost":-2},{"user":"ada"}]}`)
	const limit = `"limits":[{"name":"all/minute","key":"all:ada:minute","algorithm":"fixed_window","limit":3,`
	want := `{"results":[{"answer":{"allowed":true,"rule":"all","source":"owner",` + limit +
		`"remaining":1,"reset_after_ms":60000}]}},` +
		`{"error":{"type":"about:blank","title":"Bad Request","status":400,"detail":"invalid: unknown field \"usr\"; did ` +
		`you mean \"user\"?"}},` +
		`{"answer":{"allowed":false,"rule":"all","blocked_by":"all/minute","retry_after_ms":60000,"source":"owner",` + limit +
		`"remaining":1,"reset_after_ms":60000,"retry_after_ms":60000}]}},` +
		`{"error":{"type":"about:blank","title":"Bad Request","status":400,"detail":"invalid: cost -2 is out of range: ` +
		`give 0 (a peek) to 9007199254740991 units"}},` +
		`{"answer":{"allowed":true,"rule":"all","source":"owner",` + limit + `"remaining":0,"reset_after_ms":60000}]}}]}` +
		"\n"
	if got.status != 200 || got.body != want {
		t.Errorf("got  %d %swant 200 %s", got.status, got.body, want)
	}
	got = s.post(t, "/v1/check/batch", `{"checks":[{"user":"bob","cost":2,"peek":true},{"user":"bob","cost":3}]}`)
	if strings.Count(got.body, `"allowed":true`) != 2 || strings.Contains(got.body, `"remaining":1`) {
		t.Errorf("a peek in a batch was charged: %s", got.body)
	}
}

// TestLimitsInJSON: every option that a rules file has, spelled as there.
func TestLimitsInJSON(t *testing.T) {
	s := newServer(t, "", nil)
	got := s.post(t, "/v1/check", `{"path":"/x","user":"ada","cost":2,"limits":[
		{"limit":5,"window":"1m","weight":0.5,"rounding":"ceil","name":"a"},
		{"limit":5,"window":"1h","algorithm":"leaky_bucket","burst":9,"drip":"interval","count_rejected":"all","block":"30s"},
		{"limit":5,"window":"1m30s","algorithm":"sliding_window","sub_windows":9,"coverage":"lenient"},
		{"limit":5,"window":"10s","algorithm":"fixed_window","align":"first_hit"},
		{"limit":5,"calendar":"hour","zone":"Europe/Berlin","name":"clock"},
		{"limit":30,"window":"24h","algorithm":"leaky_bucket","drip":"interval","drip_units":10}]}`)
	var a limiter.Answer
	if err := json.Unmarshal([]byte(got.body), &a); err != nil || got.status != 200 {
		t.Fatalf("%d %s: %v", got.status, got.body, err)
	}
	type line struct {
		name, algorithm string
		remaining       uint64
		reset           int64
	}
	var lines []line
	for _, l := range a.Limits {
		lines = append(lines, line{l.Name, l.Algorithm, l.Remaining, l.ResetAfterMs})
	}
	want := []line{
		{"request/a", "sliding_counter", 3, 120000}, {"request/hour", "leaky_bucket", 7, 1440000},
		{"request/90s", "sliding_window", 3, 90000}, {"request/10s", "fixed_window", 3, 10000},
		{"request/clock", "fixed_window", 3, 3600000},
		{"request/day", "leaky_bucket", 28, 28800000},
	}
	if !reflect.DeepEqual(lines, want) {
		t.Errorf("got %v\nwant %v", lines, want)
	}
	for limits, detail := range map[string]string{
		`7`:                          "an array of limits",
		`[7]`:                        "limit 0 of the request: invalid: JSON: an object is needed, not 7",
		`[{"limit":1,"windw":"1m"}]`: `did you mean "window"?`,
		`["5/second"]`: `limit 0 of the request: invalid: a limit is an object here, not "5/second": ` +
			`write {"limit": 5, "window": "1s"}`,
		`[{"limit":"1","window":"1m"}]`: "limit 0 of the request: invalid: limit must be a " +
			"whole number, not text",
		`[{"limit":1.5,"window":"1m"}]`:                                "limit must be a whole number, not number 1.5",
		`[{"limit":1,"window":60}]`:                                    "window must be text in quotes, not number",
		`[{"limit":1,"window":"1m","key":"user"}]`:                     "key must be a list of texts, not text",
		`[{"limit":1,"window":"1m","weight":true}]`:                    "weight must be a number, not true or false",
		`[{"limit":1,"window":"1 minute"}]`:                            "write a duration such as 1m",
		`[{"limit":1,"window":"1m","algorithm":"gcr"}]`:                `unknown algorithm "gcr"; did you mean "gcra"?`,
		`[{"limit":1,"calendar":"mnoth"}]`:                             `unknown calendar "mnoth"; did you mean "month"?`,
		`[{"limit":1,"calendar":"day","at":"6am"}]`:                    `at is "6am"; write a time of day such as 06:00`,
		`[{"limit":1,"calendar":"day","algorithm":"sliding_counter"}]`: "has no calendar windows",
		`[{"limit":1,"window":"1m","weight":2}]`:                       "weight 2 is out of range",
		`[{"limit":0,"window":"1m"}]`:                                  "limit 0 is out of range",
		`[{"limit":1,"window":"1m"},{"limit":2,"window":"1m"}]`:        `two limits of the request are named "minute"`,
		`[` + strings.Repeat(`{"limit":1},`, 16) + `{"limit":1}]`:      "more than 16 limits; at most 16",
		`[{"limit":1,"limit":2,"window":"1m"}]`:                        `field "limit" is given twice`,
		`[{"limit":1,"window":"1m"}],"rule":"x"`:                       "there is no rule",
	} {
		got := s.post(t, "/v1/check", `{"limits":`+limits+`}`)
		var p struct{ Detail string }
		if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.status != 400 ||
			!strings.Contains(p.Detail, detail) {
			t.Errorf("%s: got %d %s, want %q", limits, got.status, got.body, detail)
		}
	}
	if got := s.post(t, "/v1/check", `{"limits":[]}`); got.status != 200 {
		t.Errorf("no limits at all: %+v", got)
	}
}

// TestKeysInJSON: a key with limits needs no rules and no path.
func TestKeysInJSON(t *testing.T) {
	s := newServer(t, "", nil)
	const body = `{"key":"tenant 7","limits":[{"limit":2,"window":"1m"}]`
	for i, want := range []int{200, 200, 429} {
		if got := s.post(t, "/v1/check", body+"}"); got.status != want {
			t.Errorf("%d: %d %s", i, got.status, got.body)
		}
	}
	l := limitertest.Limit(t, limiter.Spec{Limit: 2, Window: time.Minute})
	if d, err := s.node.Allow(t.Context(), "tenant 7", l); err != nil || d.Allowed {
		t.Errorf("Allow of a node has another counter: %v, %+v", err, d)
	}
	if got := s.post(t, "/v1/check/batch", `{"checks":[`+body+`,"peek":true}]}`); !strings.Contains(got.body,
		`"allowed":false`) {
		t.Errorf("in a batch: %s", got.body)
	}
	if got := s.post(t, "/v1/reset", body+"}"); got.status != 200 || !strings.Contains(got.body, `{"counters":1}`) {
		t.Errorf("reset: %d %s", got.status, got.body)
	}
	for body, detail := range map[string]string{
		`{"key":"k"}`:           `key \"k\" has no limits: send limits with it`,
		body + `,"path":"/x"}`:  "comes with a path or a user",
		body + `,"user":""}`:    "",
		body + `,"user":"ada"}`: "comes with a path or a user",
		strings.Replace(body, "7", strings.Repeat("7", 8200), 1) + "}": "at most 8192",
	} {
		got := s.post(t, "/v1/check", body)
		if ok := got.status == 400 && strings.Contains(got.body, detail); detail != "" && !ok ||
			detail == "" && got.status != 200 {
			t.Errorf("%.80s: %d %s, want %q", body, got.status, got.body, detail)
		}
	}
}

// TestResetOverHTTP: as over gRPC.
func TestResetOverHTTP(t *testing.T) {
	s := newServer(t, fixed, nil)
	s.get(t, "/v1/check?user=ada&cost=2")
	s.stillCounts(t, "ada", 1)
	if got := s.post(t, "/v1/reset", `{"user":"ada"}`); got.status != 200 || got.body != "{\"counters\":1}\n" {
		t.Errorf("reset: %+v", got)
	}
	s.stillCounts(t, "ada", 3)
	if got := s.post(t, "/v1/reset", `{"user":"ada","cost":1}`); got.status != 400 {
		t.Errorf("a reset with a cost: %+v", got)
	}
	if got := s.post(t, "/v1/reset", `{"rule":"nine"}`); got.status != 400 {
		t.Errorf("a reset under an unknown rule: %+v", got)
	}
}

// TestProbes: what an orchestrator asks for, of the server and apart from it.
func TestProbes(t *testing.T) {
	var down, warned atomic.Bool
	s := newServer(t, fixed, func(o *transport.Options) {
		o.Warnings = func() []string {
			if warned.Load() {
				return []string{"in a minority", "full"}
			}
			return nil
		}
		o.Ready = func() error {
			if down.Load() {
				return errors.New("no rules are loaded")
			}
			return nil
		}
	})
	both := []*server{s, serveApart(t, s.Health())}
	for _, s := range both {
		for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n"} {
			if got := s.get(t, path); got.status != 200 || got.body != want {
				t.Errorf("%s: %+v", path, got)
			}
			if got := s.do(t, http.MethodHead, path, "", ""); got.status != 200 || got.body != "" {
				t.Errorf("HEAD %s: %+v", path, got)
			}
		}
	}
	warned.Store(true)
	for _, s := range both {
		if got := s.get(t, "/readyz"); got.status != 200 || got.body != "ready\nwarning: in a minority\nwarning: full\n" {
			t.Errorf("a node that warns: %+v", got)
		}
	}
	down.Store(true)
	for _, s := range both {
		if got := s.get(t, "/readyz"); got.status != 503 || !strings.Contains(got.body, "no rules are loaded") {
			t.Errorf("a node that is not ready: %+v", got)
		}
		if got := s.get(t, "/healthz"); got.status != 200 {
			t.Errorf("a node that is not ready is alive, but: %+v", got)
		}
	}
	if got := both[1].get(t, "/v1/check"); got.status != 404 {
		t.Errorf("checks are decided where probes ask: %+v", got)
	}
}

// TestProbesNameNoTenants: where callers are identified, nobody else is told of tenants, rules and members. Probes that
// are served apart are the operator's.
func TestProbesNameNoTenants(t *testing.T) {
	var ready error
	s := newServer(t, fixed, func(o *transport.Options) {
		o.Access, o.Warnings = &borrower{}, func() []string { return []string{`tenant "shop" has its share`} }
		o.Ready = func() error { return ready }
	})
	if got := s.get(t, "/readyz"); got.status != 200 || got.body != "ready\n" {
		t.Errorf("anyone is told: %+v", got)
	}
	if got := serveApart(t, s.Health()).get(t, "/readyz"); !strings.Contains(got.body, "shop") {
		t.Errorf("the operator is not told: %+v", got)
	}
	ready = errors.New("member n2 cannot be reached")
	if got := s.get(t, "/readyz"); got.status != 503 || strings.Contains(got.body, "n2") {
		t.Errorf("anyone is told: %+v", got)
	}
	if got := serveApart(t, s.Health()).get(t, "/readyz"); got.status != 503 || !strings.Contains(got.body, "n2") {
		t.Errorf("the operator is not told: %+v", got)
	}
}

// TestHandler: what is served can be served by others too.
func TestHandler(t *testing.T) {
	s := newServer(t, fixed, nil)
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/check",
		bytes.NewBufferString(`{"user":"ada"}`))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json; charset=utf-8")
	w := &recorder{header: http.Header{}}
	s.Handler().ServeHTTP(w, q)
	if w.status != 200 || !strings.Contains(w.body.String(), `"remaining":2`) {
		t.Errorf("got %d %s", w.status, w.body.String())
	}
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

// TestARefusalIsRead: a client whose large body is refused before its end gets the
// answer, also if its connection ends with it. (It would find the connection reset.)
func TestARefusalIsRead(t *testing.T) {
	s := newServer(t, fixed, nil)
	large := strings.Repeat("x", transport.MaxBodyBytes-1)
	for range 50 {
		if got := s.do(t, http.MethodPost, "/v1/check", "text/plain", large); got.status != http.StatusUnsupportedMediaType {
			t.Fatalf("%d %.200s", got.status, got.body)
		}
		if got := s.post(t, "/v1/check?user=ada", large); got.status != http.StatusBadRequest {
			t.Fatalf("%d %.200s", got.status, got.body)
		}
	}
}
