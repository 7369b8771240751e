package cluster

import "github.com/weirlimit/weir"

// CutLinks closes a member's links and keeps its gossip, so that it sees the others and
// cannot ask them.
func CutLinks(n *weir.Node) { n.Cluster().(*member).links.Close() }
