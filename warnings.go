package weir

// Warnings describes, for people, why the node does not decide as its rules say,
// although it is [Node.Ready]; nil if it does not. There are these reasons:
//
//   - The node sees no more than half of the members of its cluster, so rules with
//     on_unreachable: local apply a share of their limits.
//   - Its table was full within the last minute, or a rule had used its max_share, or a key
//     had as many counters as one may have. Checks with new keys, of all rules or of that
//     rule or key, are denied or allowed uncounted.
//   - Its [Backend] has warnings: a Redis that may evict counters.
//
// Each is also logged once a minute.
func (n *Node) Warnings() []string {
	if n.node.Closed.Load() {
		return nil
	}
	out := n.decider.Warnings()
	return append(out, n.node.FullWarnings()...)
}
