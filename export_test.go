package weir

// CutLinks ends what a member has to the others but for gossip, so that it sees them
// and cannot ask them.
func CutLinks(n *Node) { n.member.links.Close() }

// Seeds returns what keys the hash of a node's counters.
func Seeds(n *Node) []byte { return n.rules.Load().Seeds() }
