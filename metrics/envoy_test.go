package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir/metrics"
)

// The metrics of Envoy's rate limit service have the names and labels of the original.
func TestEnvoyNames(t *testing.T) {
	r := metrics.NewRegistry()
	if err := metrics.NewEnvoy(r, func() metrics.EnvoyStats {
		return metrics.EnvoyStats{
			Limits: []metrics.EnvoyHits{{Domain: "edge", Key1: "path", Key2: "user_ada", Total: 9, Over: 2, Near: 3, Within: 7,
				Shadow: 1, Negative: 4}},
			Calls: 5, Failed: map[string]uint64{"backend": 1}, Times: map[float64]uint64{0.001: 3, 0.01: 4}, Seconds: 0.5,
			Loaded: 6, NotLoaded: 7, Shadowed: 8, NoDomain: 10,
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := metrics.NewEnvoy(r, nil); err == nil {
		t.Error("registered twice")
	}
	w := httptest.NewRecorder()
	metrics.Handler(r).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for _, line := range []string{
		`ratelimit_service_rate_limit_total_hits{domain="edge",key1="path",key2="user_ada"} 9`,
		`ratelimit_service_rate_limit_over_limit{domain="edge",key1="path",key2="user_ada"} 2`,
		`ratelimit_service_rate_limit_near_limit{domain="edge",key1="path",key2="user_ada"} 3`,
		`ratelimit_service_rate_limit_within_limit{domain="edge",key1="path",key2="user_ada"} 7`,
		`ratelimit_service_rate_limit_shadow_mode{domain="edge",key1="path",key2="user_ada"} 1`,
		`ratelimit_service_rate_limit_total_negative_hits{domain="edge",key1="path",key2="user_ada"} 4`,
		`ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 5`,
		`ratelimit_service_should_rate_limit_error{err_type="backend"} 1`,
		`ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="0.01"} 4`,
		`ratelimit_service_response_time_seconds_sum{grpc_method="ShouldRateLimit"} 0.5`,
		"ratelimit_service_config_load_success 6", "ratelimit_service_config_load_error 7",
		"ratelimit_service_global_shadow_mode 8", "ratelimit_service_domain_not_found 10",
	} {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("no line %s in\n%s", line, w.Body)
		}
	}
}
