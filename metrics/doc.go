// Package metrics exports what a node does to Prometheus.
//
// [New] registers a [Metrics] with a Registerer. [Metrics.Observer] is for a node's
// Config, and the Metrics themselves for the servers of package transport:
//
//	registry := metrics.NewRegistry()
//	m, err := metrics.New(registry, metrics.Options{})
//	...
//	node, err := weir.Open(ctx, weir.Config{Observer: m.Observer()})
//	http.Handle("/metrics", metrics.Handler(registry))
//
// Package serve does all of this in one call, with the state of table and cluster.
//
// The number of time series is bounded: labels are names of rules, methods, statuses
// and reasons, and never values that clients choose. For two nodes on one Registerer,
// wrap it with a distinct label for each, with prometheus.WrapRegistererWith.
//
// Counting a check costs one look-up and one addition to a sharded counter. The shards
// are summed for each scrape.
package metrics
