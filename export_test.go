package weir

// Seeds returns what keys the hash of a node's counters.
func Seeds(n *Node) []byte { return n.node.Rules.Load().Seeds() }
