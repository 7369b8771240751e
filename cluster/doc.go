// Package cluster makes a node a member of a cluster, in which each key is counted by
// one member, wherever it is asked for:
//
//	node, err := weir.Open(ctx, weir.Config{
//		Rules:   policy,
//		Cluster: &cluster.Config{Name: "node-1", Join: []string{"node-2:7946", "node-3:7946"}},
//	})
package cluster
