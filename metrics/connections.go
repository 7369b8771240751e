package metrics

import (
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// maxListeners is how many listeners are distinguished.
const maxListeners = 64

type connections struct {
	listener string
	open     atomic.Int64
	refused  [3]atomic.Uint64 // in the order of refusals
}

// refusals are the reasons for which connections are refused or replaced.
func refusals() []string { return []string{"total", "per_address", "replaced"} }

// Connections records how many connections of clients a listener has open.
func (m *Metrics) Connections(listener string, open int) {
	m.connections.of(listener).open.Store(int64(open))
}

// ConnectionRefused counts a connection that a listener closed at once because of a bound,
// "total" or "per_address", or "replaced" by a newer one.
func (m *Metrics) ConnectionRefused(listener, reason string) {
	if i := slices.Index(refusals(), reason); i >= 0 {
		m.connections.of(listener).refused[i].Add(1)
	}
}

// connectionCollector reports the connections of clients.
type connectionCollector struct {
	*described
	m             *Metrics
	open, refused *prometheus.Desc
}

func newConnectionCollector(m *Metrics) *connectionCollector {
	d := &described{prefix: "weir_client_connections"}
	return &connectionCollector{
		described: d, m: m,
		open: d.desc("", "Open connections of clients, by the listener's address.", "listener"),
		refused: d.desc("_refused_total",
			"Connections of clients that were closed at a bound: new ones because of --max-connections (total) or "+
				"--max-connections-per-ip (per_address), or old ones for a new one (replaced).",
			"listener", "reason"),
	}
}

func (c *connectionCollector) Collect(out chan<- prometheus.Metric) {
	for name, l := range *c.m.connections.all.Load() {
		if name == other && l.open.Load() == 0 {
			continue
		}
		send(out, c.open, prometheus.GaugeValue, float64(l.open.Load()), l.listener)
		for i, reason := range refusals() {
			send(out, c.refused, prometheus.CounterValue, float64(l.refused[i].Load()), l.listener, reason)
		}
	}
}
