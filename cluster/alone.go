package cluster

// logAlone logs that this node found no other to join. For the first node of a cluster
// that is normal.
func (m *member) logAlone() {
	if m.gossip.JoinAddresses() == 1 {
		m.log.Info("no join address is another node's, so this node starts the cluster", "join", m.config.Join)
		return
	}
	args := []any{"join", m.config.Join}
	if err := m.gossip.Silence(); err != nil {
		args = append(args, "last", err)
	}
	m.log.Warn("no join address has answered: this node continues without the others and keeps trying; "+
		"they must be addresses of gossip (--gossip-addr of the others)", args...)
}
