// Package cluster makes a node a member of a cluster. One member counts each key,
// whichever member is asked:
//
//	node, err := weir.Open(ctx, weir.Config{
//		Rules:   policy,
//		Cluster: &cluster.Config{Name: "node-1", Join: []string{"node-2:7946", "node-3:7946"}},
//	})
package cluster
