package metrics

import "github.com/prometheus/client_golang/prometheus"

// QuotaStats are the statistics of Envoy's rate limit quota service.
type QuotaStats struct {
	// Streams are those that are open, Buckets what they report, and Assigned the units a second that those may use.
	Streams, Buckets, Assigned int64
	// Allowed and Denied are the requests that were reported, Beyond those that were allowed beyond what was assigned.
	// Refused are reported buckets that were not kept.
	Allowed, Denied, Beyond, Refused uint64
}

// quotaCollector asks for the statistics for a scrape.
type quotaCollector struct {
	*described
	stats                                                 func() QuotaStats
	streams, buckets, assigned, reported, beyond, refused *prometheus.Desc
}

// NewQuotas registers the metrics of Envoy's rate limit quota service. stats is called once for each scrape, possibly
// concurrently.
func NewQuotas(r Registerer, stats func() QuotaStats) error {
	d := &described{prefix: "weir_rlqs_"}
	desc := d.desc
	return r.Register(&quotaCollector{
		described: d,
		stats:     stats,
		streams:   desc("streams", "Streams of Envoys."),
		buckets:   desc("buckets", "Buckets that these report."),
		assigned:  desc("assigned_units_per_second", "Units a second that these may use."),
		reported:  desc("reported_requests_total", "Requests that Envoys reported.", "outcome"),
		beyond:    desc("beyond_requests_total", "Requests that Envoys allowed beyond what they were assigned."),
		refused:   desc("refused_buckets_total", "Reported buckets that were denied, as there are too many."),
	})
}

func (c *quotaCollector) Collect(out chan<- prometheus.Metric) {
	s := c.stats()
	gauge := func(d *prometheus.Desc, n int64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge(c.streams, s.Streams)
	gauge(c.buckets, s.Buckets)
	gauge(c.assigned, s.Assigned)
	count(c.reported, s.Allowed, "allowed")
	count(c.reported, s.Denied, "denied")
	count(c.beyond, s.Beyond)
	count(c.refused, s.Refused)
}
