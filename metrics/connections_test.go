package metrics

import (
	"fmt"
	"testing"
)

// Each listener has how many connections are open now, and how many were refused for each reason. Listeners beyond the
// bound are counted together.
func TestConnections(t *testing.T) {
	m, r := open(t, Options{})
	m.Connections("127.0.0.1:8080", 1)
	m.Connections("127.0.0.1:8080", 3)
	m.Connections("unix:/run/weir", 0)
	for i, reason := range []string{"total", "per_address", "replaced", "none of these"} {
		for range i + 1 {
			m.ConnectionRefused("127.0.0.1:8080", reason)
		}
	}
	want(t, r, `
# HELP weir_client_connections Open connections of clients, by the listener's address.
# TYPE weir_client_connections gauge
weir_client_connections{listener="127.0.0.1:8080"} 3
weir_client_connections{listener="unix:/run/weir"} 0
# HELP weir_client_connections_refused_total Connections of clients that were closed at a bound: `+
		`new ones because of --max-connections (total) or --max-connections-per-ip (per_address), or old ones for a new `+
		`one (replaced).
# TYPE weir_client_connections_refused_total counter
weir_client_connections_refused_total{listener="127.0.0.1:8080",reason="per_address"} 2
weir_client_connections_refused_total{listener="127.0.0.1:8080",reason="replaced"} 3
weir_client_connections_refused_total{listener="127.0.0.1:8080",reason="total"} 1
weir_client_connections_refused_total{listener="unix:/run/weir",reason="per_address"} 0
weir_client_connections_refused_total{listener="unix:/run/weir",reason="replaced"} 0
weir_client_connections_refused_total{listener="unix:/run/weir",reason="total"} 0
`, "weir_client_connections", "weir_client_connections_refused_total")
	for i := range 2 * maxListeners {
		m.Connections(fmt.Sprint("unix:/", i), 1)
	}
	if n := len(family(t, r, "weir_client_connections").GetMetric()); n != maxListeners+1 {
		t.Errorf("%d listeners", n)
	}
}
