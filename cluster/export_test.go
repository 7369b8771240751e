package cluster

import "github.com/weirlimit/weir"

// CutLinks ends what a member has to the others but for gossip, so that it sees them
// and cannot ask them.
func CutLinks(n *weir.Node) { n.Cluster().(*member).links.Close() }
