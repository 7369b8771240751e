package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry returns an empty registry, for a program that has none of its own.
func NewRegistry() *prometheus.Registry { return prometheus.NewRegistry() }

// maxScrapes bounds the scrapes that are served at the same time; others are
// told 503.
const maxScrapes = 8

// Handler serves what g gathers, in the formats that Prometheus asks for.
func Handler(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, EnableOpenMetrics: true})
}
