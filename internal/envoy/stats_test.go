package envoy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/weirtest"
)

// A call that is refused before it is decided counts as one that failed, over gRPC and HTTP.
func TestRefusedCallsAreCounted(t *testing.T) {
	s, err := NewService(Options{Decider: weirtest.New(t, "version: 1\nrules: []\n")})
	if err != nil {
		t.Fatal(err)
	}
	over, _ := proto.Marshal(&rls.RateLimitRequest{Domain: "edge"})
	for range maxDescriptors + 1 {
		over = append(over, 2<<3|2, 0) // an empty descriptor
	}
	calls, invalid, others := uint64(0), uint64(0), uint64(0)
	counted := func(what string, bad, other uint64) {
		t.Helper()
		calls, invalid, others = calls+1, invalid+bad, others+other
		if got := s.Stats(); got.Calls != calls || got.Failed["invalid"] != invalid || got.Failed["other"] != others {
			t.Errorf("%s: %d calls, failed %v; want %d, %d invalid, %d others", what, got.Calls, got.Failed, calls, invalid, others)
		}
	}
	serve := func(data []byte, fails bool) {
		t.Helper()
		if _, err := s.serve(nil, t.Context(), func(m any) error { return m.(*call).UnmarshalWire(data) }, nil); (err != nil) != fails {
			t.Error(err)
		}
	}
	serve(over, true)
	counted("too many descriptors", 1, 0)
	serve([]byte{0xff}, true)
	counted("no message", 1, 0)
	s.decoding.Store(maxDecoded)
	serve(over[:8], false) // it is over the limit
	counted("no room", 0, 1)
	post := func(body string, status int) {
		t.Helper()
		w := httptest.NewRecorder()
		if s.ServeJSON(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body))); w.Code != status {
			t.Errorf("status %d, want %d: %s", w.Code, status, w.Body)
		}
	}
	post("{}", http.StatusServiceUnavailable)
	counted("no room for JSON", 0, 1)
	s.decoding.Store(0)
	post("{", http.StatusBadRequest)
	counted("no JSON", 1, 0)
	post(`{"domain": "edge", "descriptors": [`+strings.Repeat("{},", maxDescriptors)+"{}]}", http.StatusBadRequest)
	counted("too many descriptors of JSON", 1, 0)
	post(strings.Repeat(" ", maxJSON+1), http.StatusRequestEntityTooLarge)
	counted("a long body", 1, 0)
}

// Beyond the bound all further limits share their statistics, and a series that exists keeps
// its own, by whatever spelling.
func TestSeriesBeyondTheBound(t *testing.T) {
	var s stats
	first := s.of([]string{"edge", "ip_fe80::1"})
	for i := range maxSeries + 10 {
		s.of([]string{"edge", fmt.Sprint("user_", i)})
	}
	rest := s.of([]string{"edge", "another"})
	if rest != s.of([]string{"edge", "and another", "below"}) || rest == first {
		t.Error("limits beyond the bound do not share their statistics")
	}
	if s.of([]string{"edge", "ip_fe80::1"}) != first || s.of([]string{"edge", "ip_fe80__1"}) != first {
		t.Error("a limit within the bound lost its statistics")
	}
	if n := s.count.Load(); n > maxSeries+1 {
		t.Errorf("%d series", n)
	}
}

// BenchmarkSeriesBeyondTheBound is what the statistics of a limit cost whose value is new, once
// there are as many as are kept.
func BenchmarkSeriesBeyondTheBound(b *testing.B) {
	var s stats
	labels := make([][]string, 10_000)
	for i := range labels {
		labels[i] = []string{"edge", "remote_address", fmt.Sprint("user_", i)}
		s.of(labels[i])
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		s.of(labels[maxSeries+i%(len(labels)-maxSeries)])
		i++
	}
}
