package envoy_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirlimit/weir/internal/envoy"
)

const idFile = `
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: few, rate_limit: {unit: hour, requests_per_unit: 2}}
`

func identified(o *envoy.Options) { o.ID = "request_id" }

// A request with an id counts once, in both modes: the entry with the id is no part of its
// descriptors. Two descriptors that are alike count twice.
func TestIDs(t *testing.T) {
	for name, mode := range map[string]envoy.Mode{"compat": envoy.Compat, "atomic": envoy.Atomic} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, idFile, func(o *envoy.Options) { o.ID, o.Mode = "request_id", mode })
			for i, c := range []struct {
				hits        uint32
				descriptors []string
				want        string
			}{
				{3, []string{"user=ada request_id=7"}, "ok; ok 10/hour left 7, 3600s"},
				{3, []string{"request_id=7 user=ada"}, "ok; ok 10/hour left 7, 3600s"},
				{1, []string{"user=ada request_id=8"}, "ok; ok 10/hour left 6, 3600s"},
				{1, []string{"user=ada"}, "ok; ok 10/hour left 5, 3600s"},
				{1, []string{"user=bob request_id=7"}, "ok; ok 10/hour left 9, 3600s"},
				{1, []string{"user=eve", "user=eve", "request_id=9"}, "ok; ok 10/hour left 9, 3600s; ok 10/hour left 8, 3600s; ok"},
				{1, []string{"user=eve", "user=eve", "request_id=9"}, "ok; ok 10/hour left 8, 3600s; ok 10/hour left 8, 3600s; ok"},
				{1, []string{"user=eve"}, "ok; ok 10/hour left 7, 3600s"},
				{1, []string{"user=a request_id=" + strings.Repeat("x", 60)}, "ok; ok 10/hour left 9, 3600s"},
				{1, []string{"user=a request_id=" + strings.Repeat("x", 60)}, "ok; ok 10/hour left 9, 3600s"},
				{1, []string{"user=a request_id=" + strings.Repeat("x", 61)}, "ok; ok 10/hour left 8, 3600s"},
				{1, []string{"user=a request_id=1", "user=b request_id=2"},
					"ok; ok 10/hour left 7, 3600s; ok 10/hour left 9, 3600s"},
				{1, []string{"user=a request_id=2", "user=b request_id=1"},
					"ok; ok 10/hour left 7, 3600s; ok 10/hour left 9, 3600s"},
				{1, []string{"user=a request_id=1"}, "ok; ok 10/hour left 6, 3600s"},
			} {
				if got := f.ask(c.hits, c.descriptors...); got != c.want {
					t.Errorf("case %d: %s", i, got)
				}
			}
		})
	}
}

// A repetition is answered as the first time though nothing is left for it by now, also if
// requests that are over a limit are charged there alone. Hits above the limit are charged in
// two parts.
func TestIDsAtTheLimit(t *testing.T) {
	f := newFixture(t, idFile, func(o *envoy.Options) { o.ID, o.StopWhenOver = "request_id", true })
	for i, c := range []struct{ descriptor, want string }{
		{"few=a hits=2 request_id=1", "ok; ok 2/hour left 0, 3600s"},
		{"few=a hits=2 request_id=1", "ok; ok 2/hour left 0, 3600s"},
		{"few=a hits=1 request_id=2", "over; over 2/hour left 0, 3600s"},
	} {
		if got := f.ask(0, c.descriptor); got != c.want {
			t.Errorf("case %d: %s", i, got)
		}
	}
	f = newFixture(t, idFile, identified)
	for range 2 {
		if got := f.ask(0, "few=b hits=5 request_id=1"); got != "over; over 2/hour left 0, 3600s" {
			t.Error(got)
		}
	}
}

// Two calls of one request may share a descriptor: the second counts nothing for it. If another descriptor then
// denies the call, each status is of its own descriptor.
func TestIDsOfSharedDescriptors(t *testing.T) {
	f := newFixture(t, idFile, func(o *envoy.Options) { o.ID, o.Mode = "request_id", envoy.Atomic })
	f.is("ok; ok 10/hour left 9", "user=ada request_id=7")
	f.is("ok; ok 2/hour left 0", "few=x hits=2")
	f.is("over; ok 10/hour left 9, 3600s; over 2/hour left 0, 3600s; ok 10/hour left 10, 3600s", "user=ada request_id=7",
		"few=x", "user=bob")
	f.is("over; over 2/hour left 0, 3600s; ok 10/hour left 9, 3600s", "few=x", "user=ada request_id=7")
}

// Where no entry has an id, a header of the call does. Without the option an entry of that name is part of its
// descriptor.
func TestIDsInHeaders(t *testing.T) {
	f := newFixture(t, idFile, func(o *envoy.Options) { o.ID = "x-request-id" })
	in := &rls.RateLimitRequest{Domain: "edge"}
	in.Descriptors = append(in.Descriptors, descriptor(t, "user=ada"))
	body, err := protojson.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range [][2]string{{"7", `"limitRemaining":9`}, {"7", `"limitRemaining":9`}, {"8", `"limitRemaining":8`}} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "POST", "/json",
			strings.NewReader(string(body)))
		r.Header.Set("X-Request-ID", x[0])
		f.service.ServeJSON(w, r)
		if text := strings.ReplaceAll(w.Body.String(), " ", ""); !strings.Contains(text, x[1]) {
			t.Errorf("id %s: %s", x[0], text)
		}
	}
	if got := newFixture(t, idFile, nil).ask(1, "user=ada request_id=7"); got != "ok; ok" {
		t.Errorf("without the option: %s", got)
	}
}
