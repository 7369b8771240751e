package httplimit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/httplimit"
)

// fields returns the header fields of a response that report limits, one on each line,
// in the order of the names given.
func fields(w *httptest.ResponseRecorder, names ...string) string {
	var b strings.Builder
	for _, n := range names {
		for _, v := range w.Result().Header.Values(n) {
			fmt.Fprintf(&b, "%s: %s\n", n, v)
		}
	}
	return b.String()
}

// Fields of a rule that draws on a quota have the quota by its name, and the one that denies.
func TestFieldsHaveQuotas(t *testing.T) {
	n := node(t, nil, "  - {name: towns, key: [path], limits: [5/minute], quotas: [{name: units, cost: 2}]}\nquotas:\n  "+
		"- {name: units, key: [rule], limits: [3/hour]}")
	app := limited(t, n)
	w := get(app, "/")
	if got, want := fields(w, "RateLimit-Policy", "RateLimit"),
		"RateLimit-Policy: \"towns/minute\";q=5;w=60, \"units/hour\";q=3;w=3600\nRateLimit: \"towns/minute\";r=4;t=60, "+
			"\"units/hour\";r=1;t=3600\n"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if w := get(app, "/"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "3600" {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
}

// E8: status 429, and fields on every response that tell the limit and what
// remains, in the spellings that were chosen.
func TestFieldsOnEveryResponse(t *testing.T) {
	all := []string{
		"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
		"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", "Retry-After",
	}
	at := newClock()
	at.forward(30*time.Second + time.Millisecond)
	const rules = `  - {name: towns, limits: [2/minute, 100/hour]}`
	const (
		policy = "RateLimit-Policy: \"towns/minute\";q=2;w=60, \"towns/hour\";q=100;w=3600\n"
		first  = "RateLimit: \"towns/minute\";r=1;t=30, \"towns/hour\";r=99;t=3570\n"
		denied = "RateLimit: \"towns/minute\";r=0;t=30, \"towns/hour\";r=98;t=3570\n"
		after  = "Retry-After: 30\n"
	)
	epoch := at.at.Add(30 * time.Second).Truncate(time.Minute).Unix()
	three := func(prefix string, remaining int, reset int64) string {
		return fmt.Sprintf("%[1]s-Limit: 2\n%[1]s-Remaining: %[2]d\n%[1]s-Reset: %[3]d\n", prefix, remaining, reset)
	}
	for _, c := range []struct {
		name        string
		opts        []httplimit.Option
		first, then string
	}{
		{"default", nil, policy + first, policy + denied + after},
		{"none", []httplimit.Option{httplimit.Headers()}, "", after},
		{
			"X-RateLimit", []httplimit.Option{httplimit.Headers(httplimit.XRateLimit)},
			three("X-RateLimit", 1, 30), three("X-RateLimit", 0, 30) + after,
		},
		{
			"X-Rate-Limit, epoch", []httplimit.Option{
				httplimit.Headers(httplimit.XRateDashLimit), httplimit.ResetAs(httplimit.ResetEpoch), httplimit.Now(at.now),
			},
			three("X-Rate-Limit", 1, epoch), three("X-Rate-Limit", 0, epoch) + after,
		},
		{
			"all", []httplimit.Option{httplimit.Headers(httplimit.XRateDashLimit, httplimit.IETF, httplimit.XRateLimit)},
			policy + first + three("X-RateLimit", 1, 30) + three("X-Rate-Limit", 1, 30),
			policy + denied + three("X-RateLimit", 0, 30) + three("X-Rate-Limit", 0, 30) + after,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := limited(t, node(t, at, rules), c.opts...)
			if w := get(h, "/"); w.Code != 200 || fields(w, all...) != c.first {
				t.Errorf("first: %d\n%s\nwant\n%s", w.Code, fields(w, all...), c.first)
			}
			get(h, "/")
			if w := get(h, "/"); w.Code != 429 || fields(w, all...) != c.then {
				t.Errorf("denied: %d\n%s\nwant\n%s", w.Code, fields(w, all...), c.then)
			}
		})
	}
}

// An instant within a second is rounded up to the next second, so that no caller comes
// too early.
func TestResetEpochRoundsUp(t *testing.T) {
	at := newClock()
	h := limited(t, node(t, at, `  - {name: all, limits: [{limit: 1000, window: second, algorithm: gcra}]}`),
		httplimit.Headers(httplimit.XRateLimit), httplimit.ResetAs(httplimit.ResetEpoch), httplimit.Now(at.now))
	if got := get(h, "/").Header().Get("X-RateLimit-Reset"); got != fmt.Sprint(at.at.Unix()+1) {
		t.Errorf("got %s, a millisecond after %d", got, at.at.Unix())
	}
}

// Where no room is for the counter of a new caller, it is told by no field that it may ask again at once.
func TestResetEpochOfWhoHasNoRoom(t *testing.T) {
	at := newClock()
	n, err := weir.Open(t.Context(), weir.Config{Now: at.now, MaxKeys: 1, Overflow: weir.OverflowDeny,
		Rules: []byte("version: 1\nrules:\n  - {name: all, key: [user], limits: [10/hour]}\n")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	h := limited(t, n, httplimit.Headers(httplimit.XRateLimit), httplimit.ResetAs(httplimit.ResetEpoch),
		httplimit.Now(at.now), httplimit.User(func(r *http.Request) string { return r.URL.Path }))
	get(h, "/first")
	w := get(h, "/second")
	after, err := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
	if err != nil || w.Code != 429 || after == 0 {
		t.Fatalf("premise: %d %v", w.Code, w.Header())
	}
	if got := w.Header().Get("X-RateLimit-Reset"); got != fmt.Sprint(at.at.Unix()+after) {
		t.Errorf("it is reset at %s, and may ask again at %d", got, at.at.Unix()+after)
	}
}

func TestNoFieldsWhereNothingLimits(t *testing.T) {
	h := limited(t, node(t, nil, `
  - {name: free, match: {path: "^/free"}, unlimited: true}
  - {name: trial, match: {path: "^/trial"}, limits: [1/minute], shadow: true}
`), httplimit.Headers(httplimit.IETF, httplimit.XRateLimit, httplimit.XRateDashLimit))
	for _, path := range []string{"/free", "/trial", "/trial", "/other"} {
		if w := get(h, path); w.Code != 200 || len(w.Result().Header) != 1 { // Content-Type
			t.Errorf("%s: got %d %v", path, w.Code, w.Result().Header)
		}
	}
}

// The handler sees the fields that are set, and can replace them.
func TestHandlerHasTheLastWord(t *testing.T) {
	h := limit(t, node(t, nil, `  - {name: all, limits: [5/minute]}`)).Handler(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.Header().Set("RateLimit", w.Header().Get("RateLimit")+`, "mine";r=1`)
		w.Header().Del("RateLimit-Policy")
	}))
	if got := fields(get(h, "/"), "RateLimit-Policy",
		"RateLimit"); got != "RateLimit: \"all/minute\";r=4;t=60, \"mine\";r=1\n" {
		t.Errorf("got %s", got)
	}
}

// With several limiters around one another the lists contain all limits, and the three
// fields report the limit with the least remaining.
func TestLimitersAroundOneAnother(t *testing.T) {
	n := node(t, nil, `
  - {name: app, limits: [10/hour]}
  - {name: one, limits: [2/minute]}
  - {name: wide, limits: [20/minute]}
`)
	spelled := httplimit.Headers(httplimit.IETF, httplimit.XRateLimit)
	app, one, wide := limit(t, n, spelled), limit(t, n, spelled, httplimit.Rule("one")),
		limit(t, n, spelled, httplimit.Rule("wide"))
	h := app.Handler(one.Handler(wide.Handler(http.HandlerFunc(ok))))
	want := `RateLimit-Policy: "app/hour";q=10;w=3600
RateLimit-Policy: "one/minute";q=2;w=60
RateLimit-Policy: "wide/minute";q=20;w=60
RateLimit: "app/hour";r=9;t=3600
RateLimit: "one/minute";r=1;t=60
RateLimit: "wide/minute";r=19;t=60
X-RateLimit-Limit: 2
X-RateLimit-Remaining: 1
X-RateLimit-Reset: 60
`
	if got := fields(get(h, "/"), "RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining",
		"X-RateLimit-Reset"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The body of a denial is a problem that names the limits that denied.
func TestProblem(t *testing.T) {
	at := newClock()
	n := node(t, at, `
  - {name: block, match: {path: "^/block"}, limits: [{limit: 1, window: minute, block: 2m}]}
  - {name: towns, keys: [[ip], [user]], limits: [1/minute, 1/hour, 5/day]}
`)
	h := limited(t, n, httplimit.User(httplimit.FromHeader("X-User")),
		httplimit.CostFunc(func(r *http.Request) (c limiter.Cost) {
			if r.URL.Path == "/never" {
				return limiter.Units(7)
			}
			return c
		}))
	type body struct {
		Type, Title, Detail string
		Status              int
		Violated            []string `json:"violated-policies"`
	}
	for _, c := range []struct {
		path       string
		violated   []string
		retryAfter string
		detail     string
	}{
		{"/towns", []string{"towns/minute", "towns/hour"}, "3600", "towns/hour (1/hour) is exceeded; try again in 3600 s."},
		{"/never", []string{"towns/minute", "towns/hour", "towns/day"}, "",
			"towns/minute (1/minute) never allows a cost of 7 at once; the most is 1."},
		{"/block", []string{"block/minute"}, "120",
			"block/minute (1/minute) was exceeded and denies everything for a while; try again in 120 s."},
	} {
		get(h, c.path, header("X-User", "ada"))
		w := get(h, c.path, header("X-User", "ada"))
		var got body
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
		want := body{
			Type:  "https://iana.org/assignments/http-problem-types#quota-exceeded",
			Title: "Request cannot be satisfied as assigned quota has been exceeded", Detail: c.detail, Status: 429,
			Violated: c.violated,
		}
		if w.Code != 429 || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %d\n%+v, want\n%+v", c.path, w.Code, got, want)
		}
		if ct, ra := w.Header().Get("Content-Type"), w.Header().Get("Retry-After"); ct != "application/problem+json" ||
			ra != c.retryAfter {
			t.Errorf("%s: content type %q, retry after %q", c.path, ct, ra)
		}
	}
}

// A denial because the counters could not be reached is the service's fault and not the
// caller's.
func TestFallbackClosed(t *testing.T) {
	h := limited(t, deciderFunc(func(_ context.Context, _ *limiter.Request, d *limiter.Decision) error {
		d.Clear()
		d.Allowed, d.Source, d.RetryAfter = false, limiter.SourceFallbackClosed, (1500 * limiter.Millisecond).Duration()
		return nil
	}))
	w := get(h, "/")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "2" ||
		!strings.Contains(w.Body.String(), "#temporary-reduced-capacity") {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
}

// A HEAD request is limited as any other, and its denial has no body.
func TestHead(t *testing.T) {
	s := httptest.NewServer(limited(t, node(t, nil, `  - {name: all, limits: [1/minute]}`)))
	defer s.Close()
	for _, want := range []int{200, 429} {
		resp, err := http.Head(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want || err != nil || len(body) != 0 {
			t.Errorf("got %d %q, %v", resp.StatusCode, body, err)
		}
	}
}

// A bucket's fields have its capacity, and the time in which that is granted again: what
// remains is never above it, and the capacity at once is allowed.
func TestFieldsOfABucket(t *testing.T) {
	at := newClock()
	h := limited(t, node(t, at, "  - {name: a, limits: [{limit: 30, window: 1m, algorithm: token_bucket, burst: 20}]}"),
		httplimit.Headers(httplimit.IETF, httplimit.XRateLimit))
	want := "RateLimit-Policy: \"a/minute\";q=20;w=40\nRateLimit: \"a/minute\";r=19;t=2\nX-RateLimit-Limit: " +
		"20\nX-RateLimit-Remaining: 19\n"
	if got := fields(get(h, "/"), "RateLimit-Policy", "RateLimit", "X-RateLimit-Limit",
		"X-RateLimit-Remaining"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
