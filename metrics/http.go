package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Registerer is where metrics are registered, as Prometheus has it.
type Registerer = prometheus.Registerer

// NewRegistry returns an empty registry, for programs without one.
func NewRegistry() *prometheus.Registry { return prometheus.NewRegistry() }

// maxScrapes bounds concurrent scrapes. Further ones get status 503.
const maxScrapes = 8

// Handler serves the metrics of g, in the formats that Prometheus accepts.
func Handler(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, EnableOpenMetrics: true})
}
