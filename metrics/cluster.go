package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// ClusterStats is the state of a node in its cluster.
type ClusterStats struct {
	// Members counts the members that the node sees, by state.
	Members map[string]int
	// Unreachable counts the members, other than dead ones, to which there is no
	// connection.
	Unreachable int
	// Share is the fraction of the partitions, 0 to 1, that the node should own.
	Share float64
	// Owned, Heirs, Copies and Sealed count partitions by the node's role in them.
	// Unsettled counts those whose owner or heir is not yet as the membership requires.
	Owned, Heirs, Copies, Sealed, Unsettled int
	// Withheld counts answers that wait for a copy. Parked counts checks that wait for
	// a partition to settle.
	Withheld, Parked int
	// Waiting counts checks and other operations that wait for other members. Queued
	// counts frames that no member has accepted yet. Fallback counts the counters of
	// fallback policies.
	Waiting, Queued, Fallback int
	// LagSeconds is how long the oldest answer has waited for its copy. Unacknowledged
	// is the largest cost, of one key, that was answered but not copied yet.
	LagSeconds     float64
	Unacknowledged uint64
	// Events counts events of partitions, by name.
	Events map[string]uint64
	// RulesDiffer reports that live members have different rules.
	RulesDiffer bool
	// ZoneDataDiffers reports that live members have different releases of the time zone
	// database.
	ZoneDataDiffers bool
	// ClockDifference is by how many seconds at least the clock of another member differs, if by more than 0.25; otherwise
	// 0.
	ClockDifference float64
	// Minority reports that the node sees no more than half of the members that count.
	Minority bool
	// Store is the state of the node's store; nil without one.
	Store *StoreStats
}

// clusterCollector reports a node's ClusterStats, which it reads once for each scrape.
type clusterCollector struct {
	*described
	stats func() ClusterStats
	store *storeDescs

	members, share, partitions, unsettled *prometheus.Desc
	withheld, parked, lag, unacknowledged *prometheus.Desc
	events, differ, unreachable, minority *prometheus.Desc
	waiting, queued, fallback, zones      *prometheus.Desc
	clocks                                *prometheus.Desc
}

func newClusterCollector(stats func() ClusterStats) *clusterCollector {
	d := &described{prefix: "weir_"}
	desc := d.desc
	return &clusterCollector{
		described: d, stats: stats, store: newStoreDescs(d),
		members: desc("members", "Members of the cluster that the node sees, by state.", "state"),
		unreachable: desc("members_unreachable",
			"Members that gossip sees alive and to whose peer port the node has no connection."),
		share:      desc("ring_share", "Part of the partitions that the node should own, 0 to 1."),
		partitions: desc("partitions", "Partitions by what the node is to them: owned, heir, copy, sealed.", "state"),
		unsettled:  desc("partitions_unsettled", "Partitions that are not as the members call for."),
		withheld:   desc("replies_withheld", "Answers that wait until a copy has what they admit."),
		parked:     desc("checks_parked", "Checks that wait for a partition to be settled."),
		waiting:    desc("operations_waiting", "Checks and other operations that wait for other members."),
		queued:     desc("frames_queued", "Frames that wait until a member takes them."),
		fallback:   desc("fallback_keys", "Counters held of what policies decided without owner and heir."),
		lag:        desc("replication_lag_seconds", "How long the oldest withheld answer has waited for its copy."),
		unacknowledged: desc("replication_unacknowledged_cost",
			"Largest cost of one key that was answered and has no copy yet."),
		events: desc("partition_events_total", "What happened to partitions, by event.", "event"),
		minority: desc("minority",
			"Whether the node sees no more than half of the members, so that rules with on_unreachable: local apply a share "+
				"of their limits: 1 or 0."),
		zones: desc("zone_data_differs",
			"Whether live members have different releases of the time zone database: 1 or 0."),
		clocks: desc("clock_difference_seconds",
			"By how much at least another member's clock differs from the node's, if by more than 0.25 s; otherwise 0."),
		differ: desc("rules_differ", "Whether live members have different rules: 1 or 0."),
	}
}

func (c *clusterCollector) Collect(out chan<- prometheus.Metric) {
	s := c.stats()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		send(out, d, prometheus.GaugeValue, v, labels...)
	}
	for _, state := range []string{"joining", "active", "leaving", "dead", "expelled", "unmet"} {
		gauge(c.members, float64(s.Members[state]), state)
	}
	gauge(c.unreachable, float64(s.Unreachable))
	gauge(c.share, s.Share)
	gauge(c.partitions, float64(s.Owned), "owned")
	gauge(c.partitions, float64(s.Heirs), "heir")
	gauge(c.partitions, float64(s.Copies), "copy")
	gauge(c.partitions, float64(s.Sealed), "sealed")
	gauge(c.unsettled, float64(s.Unsettled))
	gauge(c.withheld, float64(s.Withheld))
	gauge(c.parked, float64(s.Parked))
	gauge(c.waiting, float64(s.Waiting))
	gauge(c.queued, float64(s.Queued))
	gauge(c.fallback, float64(s.Fallback))
	gauge(c.lag, s.LagSeconds)
	gauge(c.unacknowledged, float64(s.Unacknowledged))
	for event, n := range s.Events {
		send(out, c.events, prometheus.CounterValue, float64(n), event)
	}
	gauge(c.differ, bit(s.RulesDiffer))
	gauge(c.zones, bit(s.ZoneDataDiffers))
	gauge(c.clocks, s.ClockDifference)
	gauge(c.minority, bit(s.Minority))
	c.store.collect(out, s.Store)
}

// bit returns 1 for true and 0 for false.
func bit(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
