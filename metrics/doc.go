// Package metrics tells Prometheus what a node does.
//
// [New] makes a [Metrics] on a Registerer of the caller's. It is the Observer of
// a node's Config, and it is told of requests by the front doors:
//
//	registry := metrics.NewRegistry()
//	m, err := metrics.New(registry, metrics.Options{})
//	...
//	node, err := weir.Open(ctx, weir.Config{Observer: m})
//	http.Handle("/metrics", metrics.Handler(registry))
//
// The number of time series is bounded: labels are names of rules, of methods,
// of statuses and of reasons, and never anything that a caller can make up. To
// have two nodes on one Registerer, wrap it with a label for each, as
// prometheus.WrapRegistererWith does.
//
// Telling of a check costs one look-up and one addition to a counter that few
// others add to at the same time. The counters are summed when they are asked
// for.
package metrics
