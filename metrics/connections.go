package metrics

import (
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// maxListeners is how many listeners are distinguished.
const maxListeners = 64

// connections are the counters of one listener.
type connections struct {
	listener string
	open     atomic.Int64
	refused  [3]atomic.Uint64 // in the order of refusals
}

// refusals are the reasons for which connections are refused or replaced.
func refusals() []string { return []string{"total", "per_address", "replaced"} }

// connectionsOf returns the counters of a listener.
func (m *Metrics) connectionsOf(listener string) *connections {
	if c := (*m.connections.all.Load())[listener]; c != nil {
		return c
	}
	return m.connections.add(listener)
}

// Connections records how many connections of clients a listener has open.
func (m *Metrics) Connections(listener string, open int) {
	m.connectionsOf(listener).open.Store(int64(open))
}

// ConnectionRefused counts a connection that a listener closed at once because of a bound,
// "total" or "per_address", or "replaced" by a newer one.
func (m *Metrics) ConnectionRefused(listener, reason string) {
	if i := slices.Index(refusals(), reason); i >= 0 {
		m.connectionsOf(listener).refused[i].Add(1)
	}
}

// connectionCollector reports the connections of clients.
type connectionCollector struct {
	m             *Metrics
	open, refused *prometheus.Desc
}

func newConnectionCollector(m *Metrics) *connectionCollector {
	return &connectionCollector{
		m: m,
		open: prometheus.NewDesc("weir_client_connections", "Open connections of clients, by the listener's address.",
			[]string{"listener"}, nil),
		refused: prometheus.NewDesc("weir_client_connections_refused_total",
			"Connections of clients that were closed at a bound: new ones because of --max-connections (total) or "+
				"--max-connections-per-ip (per_address), or old ones for a new one (replaced).",
			[]string{"listener", "reason"}, nil),
	}
}

// Describe implements [prometheus.Collector].
func (c *connectionCollector) Describe(out chan<- *prometheus.Desc) { out <- c.open; out <- c.refused }

// Collect implements [prometheus.Collector].
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
