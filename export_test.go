package weir

// CutLinks ends what a member has to the others but for gossip, so that it sees them
// and cannot ask them.
func CutLinks(n *Node) { n.member.links.Close() }
