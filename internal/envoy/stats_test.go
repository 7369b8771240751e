package envoy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/weirtest"
)

// A call that is refused before it is decided counts as one that failed, over gRPC and HTTP.
func TestRefusedCallsAreCounted(t *testing.T) {
	s, err := NewService(Options{Config: frontend.Config{Decider: weirtest.New(t, "version: 1\nrules: []\n")}})
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
			t.Errorf("%s: %d calls, failed %v; want %d, %d invalid, %d others", what, got.Calls, got.Failed, calls, invalid,
				others)
		}
	}
	serve := func(data []byte, fails bool) {
		t.Helper()
		if _, err := s.serve(nil, t.Context(), func(m any) error {
			return m.(*call).UnmarshalWire(data)
		}, nil); (err != nil) != fails {
			t.Error(err)
		}
	}
	serve(over, true)
	counted("too many descriptors", 1, 0)
	serve([]byte{0xff}, true)
	counted("no message", 1, 0)
	if err := s.decoding.Take(netip.Prefix{}, maxDecoded); err != nil {
		t.Fatal(err)
	}
	serve(append([]byte{0x0a, 0x80, 0x80, 0x01}, make([]byte, 1<<14)...), false) // it is over the limit
	counted("no room", 0, 1)
	post := func(body string, status int) {
		t.Helper()
		w := httptest.NewRecorder()
		if s.ServeJSON(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body))); w.Code != status {
			t.Errorf("status %d, want %d: %s", w.Code, status, w.Body)
		}
	}
	post(strings.Repeat(" ", 1<<10)+"{}", http.StatusServiceUnavailable)
	counted("no room for JSON", 0, 1)
	s.decoding.Give(netip.Prefix{}, maxDecoded)
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

// Hits that cross a limit, or the part of it that is near, count on both sides, as in envoyproxy/ratelimit.
func TestStatisticsOfHitsThatCross(t *testing.T) {
	const file = `
domain: edge
descriptors:
  - {key: k, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: s, rate_limit: {unit: day, requests_per_unit: 10}, shadow_mode: true}
  - {key: zero, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: u, rate_limit: {unlimited: true}}
  - {key: other, rate_limit: {unit: day, requests_per_unit: 1}}
`
	parsed, err := config.Parse([]config.File{{Name: "f", Data: []byte(file)}}, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	entry := func(key, value string, hits uint64) *ratelimit.RateLimitDescriptor {
		return &ratelimit.RateLimitDescriptor{
			Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: key, Value: value}}, HitsAddend: wrapperspb.UInt64(hits),
		}
	}
	for _, x := range []struct {
		key  string
		hits []uint64 // of the calls
		want Hits
	}{
		{"k", []uint64{1, 1, 1}, Hits{Total: 3, Within: 3}},
		{"k", []uint64{9, 1, 1}, Hits{Total: 11, Within: 10, Near: 2, Over: 1}},
		{"k", []uint64{7, 5}, Hits{Total: 12, Within: 7, Near: 2, Over: 2}},
		{"k", []uint64{9, 5, 5}, Hits{Total: 19, Within: 9, Near: 1 + 1, Over: 4 + 5}},
		{"k", []uint64{15}, Hits{Total: 15, Near: 2, Over: 5}},
		{"k", []uint64{15, 3, 0}, Hits{Total: 18, Near: 2, Over: 8}},
		{"k", []uint64{10, 1 << 40}, Hits{Total: 10 + 1<<40, Within: 10, Near: 2, Over: 1 << 40}},
		{"s", []uint64{7, 5, 1}, Hits{Total: 13, Within: 7, Near: 2, Over: 3, Shadow: 3}},
		{"zero", []uint64{3, 0}, Hits{Total: 3, Over: 3}},
		{"u", []uint64{3, 1}, Hits{Total: 4, Within: 4}},
	} {
		node := weirtest.New(t, "version: 1\nrules: []\n")
		s, err := NewService(Options{Config: frontend.Config{Decider: node}, Algorithm: limiter.FixedWindow, Now: node.Now})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SetConfig(parsed); err != nil {
			t.Fatal(err)
		}
		for i, hits := range x.hits {
			// Beside another value of the same key in each call, which has its own counter.
			in := &rls.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{
				entry("other", fmt.Sprint(i), 1), entry(x.key, "a", hits),
			}}
			if _, err := s.ShouldRateLimit(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		}
		for _, got := range s.Stats().Limits {
			if got.Key1 == "other" {
				continue
			}
			if x.want.Domain, x.want.Key1 = "edge", x.key; got != x.want {
				t.Errorf("%s, hits %d: %+v, want %+v", x.key, x.hits, got, x.want)
			}
		}
	}
}

// A domain without a file counts for each descriptor.
func TestUnknownDomainsCountForEachDescriptor(t *testing.T) {
	s, err := NewService(Options{Config: frontend.Config{Decider: nothing{}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetConfig(new(config.Config)); err != nil {
		t.Fatal(err)
	}
	in := &rls.RateLimitRequest{Domain: "none", Descriptors: []*ratelimit.RateLimitDescriptor{{}, {}}}
	if _, err := s.ShouldRateLimit(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().NoDomain; n != 2 {
		t.Errorf("%d", n)
	}
}
