package envoy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/envoy/config"
)

// reply keeps what was written last, without a copy.
type reply struct{ last []byte }

func (r *reply) Header() http.Header { return http.Header{} }
func (r *reply) WriteHeader(int)     {}
func (r *reply) Write(p []byte) (int, error) {
	r.last = p
	return len(p), nil
}

// Clients that ask for a large configuration share its text, and the next configuration has
// its own.
func TestConfigurationIsShownFromOneText(t *testing.T) {
	var file strings.Builder
	file.WriteString("domain: edge\ndescriptors:\n")
	for i := range 1000 {
		fmt.Fprintf(&file, "  - {key: k%d, rate_limit: {unit: minute, requests_per_unit: 3}}\n", i)
	}
	f, w := newFixture(t, file.String(), nil), new(reply)
	if n := testing.AllocsPerRun(10, func() { f.service.ServeConfig(w, nil) }); n > 20 {
		t.Errorf("%.0f allocations for a text that was shown before", n)
	}
	if n := strings.Count(string(w.last), "\n"); n != 1000 {
		t.Errorf("%d lines", n)
	}
	c, err := config.Parse([]config.File{{Name: "b.yaml",
		Data: []byte("domain: other\ndescriptors: [{key: a, rate_limit: {unlimited: true}}]")}}, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.service.SetConfig(c); err != nil {
		t.Fatal(err)
	}
	f.service.ServeConfig(w, nil)
	if got := string(w.last); got != "other.a: unlimited, shadow_mode: false, quota_mode: false\n" {
		t.Errorf("%q", got)
	}
}
