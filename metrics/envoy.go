package metrics

import "github.com/prometheus/client_golang/prometheus"

// EnvoyHits are the statistics of one limit of Envoy's rate limit service, in hits.
type EnvoyHits struct {
	// Domain and the keys of the first two levels name the limit.
	Domain, Key1, Key2 string
	// Total are all hits: those Over the limit and those Within it, of which some are Near
	// it. Shadow are denials that were not enforced, Negative hits that were taken back.
	Total, Over, Near, Within, Shadow, Negative uint64
}

// EnvoyStats are the statistics of Envoy's rate limit service.
type EnvoyStats struct {
	// Limits are those of each limit. Their number must be bounded.
	Limits []EnvoyHits
	// Calls are all calls, Failed those without an answer, by their reason.
	Calls  uint64
	Failed map[string]uint64
	// Times has how many calls took at most so many seconds, Seconds what all took.
	Times   map[float64]uint64
	Seconds float64
	// Loaded and NotLoaded are the configurations that came into force and those that did not.
	Loaded, NotLoaded uint64
	// Shadowed are denials of the whole service that were not enforced. NoDomain are requests
	// for a domain that is not known.
	Shadowed, NoDomain uint64
}

// envoyCollector asks for the statistics for a scrape.
type envoyCollector struct {
	*described
	stats func() EnvoyStats

	total, over, near, within, shadow, negative *prometheus.Desc
	calls, failed, times                        *prometheus.Desc
	loaded, notLoaded, shadowed, noDomain       *prometheus.Desc
}

// NewEnvoy registers the metrics of Envoy's rate limit service, under the names that
// envoyproxy/ratelimit has for Prometheus. stats is called once for each scrape, possibly
// concurrently.
func NewEnvoy(r Registerer, stats func() EnvoyStats) error {
	d := &described{prefix: "ratelimit_service_"}
	desc := d.desc
	limit := func(name, help string) *prometheus.Desc {
		return desc("rate_limit_"+name, help, "domain", "key1", "key2")
	}
	return r.Register(&envoyCollector{
		described: d,
		stats:     stats,
		total:     limit("total_hits", "Hits of a limit."),
		over:      limit("over_limit", "Hits beyond a limit."),
		near:      limit("near_limit", "Hits within a limit, but near it."),
		within:    limit("within_limit", "Hits within a limit."),
		shadow:    limit("shadow_mode", "Hits beyond a limit that only counts."),
		negative:  limit("total_negative_hits", "Hits that were taken back."),
		calls:     desc("total_requests", "Calls of the service.", "grpc_method"),
		failed:    desc("should_rate_limit_error", "Calls without an answer.", "err_type"),
		times:     desc("response_time_seconds", "Time to answer a call.", "grpc_method"),
		loaded:    desc("config_load_success", "Configurations that came into force."),
		notLoaded: desc("config_load_error", "Configurations that were not valid."),
		shadowed:  desc("global_shadow_mode", "Denials that were not enforced, as the service only counts."),
		noDomain:  desc("domain_not_found", "Requests for a domain that no configuration has."),
	})
}

func (c *envoyCollector) Collect(out chan<- prometheus.Metric) {
	s := c.stats()
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for i := range s.Limits {
		l := &s.Limits[i]
		for _, x := range []struct {
			desc *prometheus.Desc
			n    uint64
		}{{c.total, l.Total}, {c.over, l.Over}, {c.near, l.Near}, {c.within, l.Within}, {c.shadow, l.Shadow},
			{c.negative, l.Negative}} {
			count(x.desc, x.n, l.Domain, l.Key1, l.Key2)
		}
	}
	const method = "ShouldRateLimit"
	count(c.calls, s.Calls, method)
	for kind, n := range s.Failed {
		count(c.failed, n, kind)
	}
	out <- prometheus.MustNewConstHistogram(c.times, s.Calls, s.Seconds, s.Times, method)
	count(c.loaded, s.Loaded)
	count(c.notLoaded, s.NotLoaded)
	count(c.shadowed, s.Shadowed)
	count(c.noDomain, s.NoDomain)
}
