package metrics

import (
	"fmt"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/limiter"
)

// collector sums the shards for a scrape.
type collector struct {
	*described
	m *Metrics

	checks, errors, duration, panics      *prometheus.Desc
	overflow                              *prometheus.Desc
	sizes                                 sizes
	rules, reloads, reloadOK, reloadStamp *prometheus.Desc
	build, expiry, lifetime, evicted      *prometheus.Desc
	notes                                 notes
}

// sizes are the metrics of how much the table holds.
type sizes struct {
	keys, maxKeys, copies, ruleKeys       *prometheus.Desc
	bytes, maxBytes, copyBytes, ruleBytes *prometheus.Desc
}

// notes are the metrics of what happens to some checks only.
type notes struct {
	overrides, leases, zones, elses, shadows, repeats, ids, forgotten *prometheus.Desc
	holds, expired, overdrawn, settled                                *prometheus.Desc
}

// described are the metrics of a collector, whose names have a prefix.
type described struct {
	prefix string
	all    []*prometheus.Desc
}

func (d *described) desc(name, help string, labels ...string) *prometheus.Desc {
	out := prometheus.NewDesc(d.prefix+name, help, labels, nil)
	d.all = append(d.all, out)
	return out
}

func (d *described) Describe(out chan<- *prometheus.Desc) {
	for _, one := range d.all {
		out <- one
	}
}

func newCollector(m *Metrics) *collector {
	d := &described{prefix: "weir_"}
	desc := d.desc
	return &collector{
		described: d, m: m,
		checks: desc("checks_total",
			"Decisions, peeks included, by the rule that decided (empty: none matched), by result (shadow_denied: allowed, "+
				"but a shadow rule would have denied), and by who decided.",
			"rule", "result", "source"),
		notes: notes{
			zones: desc("zone_default_total",
				"Checks by the default time zone of a rule, since the attribute of the request was missing or not the name of a "+
					"zone (unknown).",
				"rule", "reason"),
			elses: desc("limit_else_total",
				"Checks by the number of else of a rule whose numbers requests choose, since what chooses was missing, or not in "+
					"the table and not a number (unknown).",
				"rule", "reason"),
			overrides: desc("overridden_checks_total",
				"Decisions that an operator's override took part in, by rule and result.", "rule", "result"),
			leases: desc("client_leases_total", "Leases that clients asked for, by rule and result.", "rule", "result"),
			shadows: desc("shadow_checks_total",
				"What rules and quotas in shadow would have decided, by rule.", "rule", "result"),
			repeats: desc("checks_repeated_total",
				"Checks whose id was remembered: they got the answer of the first check with it and were not charged.", "rule"),
			ids:   desc("table_ids", "Counters held that remember ids of checks."),
			holds: desc("table_holds", "Reservations held, each once for every key of its check."),
			expired: desc("table_holds_expired_total",
				"Reservations that ended without having been settled, counted once for every key."),
			settled: desc("settlements_total",
				"What was done with reservations, by the rule of their first key: settled (cancelled, too), extended, or the "+
					"reason why not.", "rule", "result"),
			overdrawn: desc("table_overdrawn_units_total", "Units that settlements have charged beyond what a limit had left."),
			forgotten: desc("table_ids_forgotten_total",
				"Ids that were not remembered, since they took half of the table: their checks were charged, and would be again."),
		},
		sizes: sizes{
			keys: desc("table_keys",
				"Counters held, one for each key and limit, that are no copies: what weir_table_max_keys bounds."),
			bytes:     desc("table_bytes", "Memory of the counters held that are no copies: what weir_table_max_bytes bounds."),
			copies:    desc("table_copied_keys", "Copies held of other members' counters."),
			copyBytes: desc("table_copied_bytes", "Memory of these copies."),
			maxKeys:   desc("table_max_keys", "Bound on weir_table_keys."),
			maxBytes:  desc("table_max_bytes", "Bound on weir_table_bytes, 0 if there is none."),
			ruleKeys:  desc("table_rule_keys", "Counters of a rule that has a max_share.", "rule"),
			ruleBytes: desc("table_rule_bytes", "Memory of the logs and sub-windows of a rule that has a max_share.", "rule"),
		},
		errors:   desc("check_errors_total", "Checks that could not be decided and counted nothing.", "reason"),
		duration: desc("request_duration_seconds", "Time to answer a request, by method and status.", "method", "code"),
		panics: desc("panics_total", "Defects that ended a request or a connection, by where they were recovered from.",
			"place"),
		overflow: desc("table_overflow_total",
			"Checks that needed a new counter, or a longer log, when a bound was reached, by bound: of the table, of a "+
				"tenant, of a rule (max_share) or of a key.", "bound"),
		rules:    desc("rules_info", "The rules in force: always 1, the hash is what they mean.", "hash"),
		reloads:  desc("rules_reloads_total", "Rules files read, the first included.", "result"),
		reloadOK: desc("rules_last_reload_successful", "Whether the rules file that was read last is in force: 1 or 0."),
		reloadStamp: desc("rules_last_reload_success_timestamp_seconds",
			"When rules came into force, in seconds since 1970."),
		expiry:   desc("certificate_expiry_seconds", "Seconds until a certificate expires, negative after that.", "plane"),
		lifetime: desc("certificate_lifetime_seconds", "For how many seconds a certificate is valid in all.", "plane"),
		evicted: desc("redis_evicted_keys_total",
			"Keys that Redis has evicted while this node looked, once a minute: counters may be among them, and their limits "+
				"are lifted."),
		build: desc("build_info", "What runs: always 1.", "version", "goversion"),
	}
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	for _, r := range *c.m.checks.all.Load() {
		c.collectChecks(out, r)
	}
	c.collectRefused(out)
	collectPairs(out, c.notes.zones, &c.m.zones, "unknown", "missing")
	collectPairs(out, c.notes.elses, &c.m.elses, "unknown", "missing")
	collectPairs(out, c.notes.shadows, &c.m.shadows, "allowed", "denied")
	collectPairs(out, c.notes.overrides, &c.m.overrides, "allowed", "denied")
	collectPairs(out, c.notes.leases, &c.m.leases, "lent", "denied")
	for _, p := range *c.m.repeats.all.Load() {
		if sum := p.sums(); sum[0] > 0 {
			send(out, c.notes.repeats, prometheus.CounterValue, float64(sum[0]), p.rule)
		}
	}
	for _, s := range *c.m.settles.all.Load() {
		for i := range s.n {
			if n := s.n[i].Load(); n > 0 {
				send(out, c.notes.settled, prometheus.CounterValue, float64(n), s.rule, settlementName(i))
			}
		}
	}
	for i, place := range append(guard.Places(), other) {
		send(out, c.panics, prometheus.CounterValue, float64(c.m.panics[i].Load()), place)
	}
	for _, l := range *c.m.served.all.Load() {
		c.collectLatency(out, l)
	}
	if table := c.m.options.Table; table != nil {
		s := table()
		send(out, c.sizes.keys, prometheus.GaugeValue, float64(s.Keys))
		send(out, c.sizes.bytes, prometheus.GaugeValue, float64(s.Bytes))
		send(out, c.sizes.copies, prometheus.GaugeValue, float64(s.Copies))
		send(out, c.sizes.copyBytes, prometheus.GaugeValue, float64(s.CopyBytes))
		send(out, c.sizes.maxKeys, prometheus.GaugeValue, float64(s.MaxKeys))
		send(out, c.sizes.maxBytes, prometheus.GaugeValue, float64(s.MaxBytes))
		send(out, c.notes.ids, prometheus.GaugeValue, float64(s.IDs))
		send(out, c.notes.forgotten, prometheus.CounterValue, float64(s.IDsForgotten))
		send(out, c.notes.holds, prometheus.GaugeValue, float64(s.Holds))
		send(out, c.notes.expired, prometheus.CounterValue, float64(s.HoldsExpired))
		send(out, c.notes.overdrawn, prometheus.CounterValue, float64(s.Overdrawn))
		for _, r := range s.Shares {
			send(out, c.sizes.ruleKeys, prometheus.GaugeValue, float64(r.Keys), r.Rule)
			send(out, c.sizes.ruleBytes, prometheus.GaugeValue, float64(r.Bytes), r.Rule)
		}
		for bound, n := range map[string]int64{
			"table":     s.Overflowed - s.OverflowedBy.Tenant - s.OverflowedBy.Share - s.OverflowedBy.Key,
			"tenant":    s.OverflowedBy.Tenant,
			"max_share": s.OverflowedBy.Share, "per_key": s.OverflowedBy.Key,
		} {
			send(out, c.overflow, prometheus.CounterValue, float64(n), bound)
		}
	}
	c.collectRules(out)
	if c.m.options.Evicted != nil {
		send(out, c.evicted, prometheus.CounterValue, float64(c.m.options.Evicted()))
	}
	if c.m.options.Validities != nil {
		for plane, v := range c.m.options.Validities() {
			send(out, c.expiry, prometheus.GaugeValue, v.Expires.Sub(c.m.options.Now()).Seconds(), plane)
			send(out, c.lifetime, prometheus.GaugeValue, v.Expires.Sub(v.Begins).Seconds(), plane)
		}
	}
	send(out, c.build, prometheus.GaugeValue, 1, label(c.m.options.Version), runtime.Version())
}

// send reports one value. An error would be a defect of this package, and the scrape
// then shows it.
func send(out chan<- prometheus.Metric, d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
	metric, err := prometheus.NewConstMetric(d, kind, v, labels...)
	if err != nil {
		metric = prometheus.NewInvalidMetric(d, err)
	}
	out <- metric
}

// collectChecks omits results that never occurred, except a rule's allowed and denied:
// a rate over a counter that appears with its first denial would miss that denial.
func (c *collector) collectChecks(out chan<- prometheus.Metric, r *checkCounters) {
	var sum [sources * results]uint64
	total := uint64(0)
	for i := range r.shards {
		for j := range sum {
			n := r.shards[i].n[j].Load()
			sum[j] += n
			total += n
		}
	}
	if total == 0 {
		return
	}
	for j, n := range sum {
		source, result := limiter.Source(j/results), j%results
		if n == 0 && (source != limiter.SourceOwner || result == resultShadowDenied || r.rule == "") {
			continue
		}
		send(out, c.checks, prometheus.CounterValue, float64(n), r.rule, resultName(result), source.String())
	}
}

// collectPairs reports both kinds of each rule that has one.
func collectPairs(out chan<- prometheus.Metric, d *prometheus.Desc, of *bounded[string, pairCounters], first,
	second string) {
	for _, p := range *of.all.Load() {
		if sum := p.sums(); sum[0]+sum[1] > 0 {
			send(out, d, prometheus.CounterValue, float64(sum[0]), p.rule, first)
			send(out, d, prometheus.CounterValue, float64(sum[1]), p.rule, second)
		}
	}
}

func (c *collector) collectRefused(out chan<- prometheus.Metric) {
	for reason := range reasons {
		n := uint64(0)
		for i := range c.m.refusals {
			n += c.m.refusals[i].n[reason].Load()
		}
		send(out, c.errors, prometheus.CounterValue, float64(n), reasonName(reason))
	}
}

func (c *collector) collectLatency(out chan<- prometheus.Metric, l *latency) {
	var sum [buckets]uint64
	var count, nanoseconds uint64
	for i := range l.shards {
		s := &l.shards[i]
		for j := range sum {
			n := s.buckets[j].Load()
			sum[j] += n
			count += n
		}
		nanoseconds += s.nanoseconds.Load()
	}
	if count == 0 {
		return
	}
	upTo, below := make(map[float64]uint64, buckets-1), uint64(0)
	for i, b := range bounds() {
		below += sum[i]
		upTo[b.Seconds()] = below
	}
	metric, err := prometheus.NewConstHistogram(c.duration, count, float64(nanoseconds)/1e9, upTo, l.method, l.code)
	if err != nil {
		metric = prometheus.NewInvalidMetric(c.duration, err)
	}
	out <- metric
}

func (c *collector) collectRules(out chan<- prometheus.Metric) {
	s := &c.m.rules
	s.mu.Lock()
	defer s.mu.Unlock()
	send(out, c.reloads, prometheus.CounterValue, float64(s.good), "success")
	send(out, c.reloads, prometheus.CounterValue, float64(s.bad), "failure")
	if !s.known {
		return
	}
	send(out, c.rules, prometheus.GaugeValue, 1, fmt.Sprintf("%016x", s.hash))
	ok := 0.0
	if s.lastIsGood {
		ok = 1
	}
	send(out, c.reloadOK, prometheus.GaugeValue, ok)
	if s.good > 0 {
		send(out, c.reloadStamp, prometheus.GaugeValue, float64(s.lastGood.UnixMilli())/1e3)
	}
}
