package cluster

import (
	"errors"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/gossip"
	"github.com/weirlimit/weir/internal/peer"
)

// announcer tells the other members, and the log, in which state this node is.
type announcer struct {
	member  *member
	joining atomic.Bool
	logged  string // the state that was logged last; used by publish only
}

// publish sends this node's state to the others. It is not called concurrently.
func (a *announcer) publish(self peer.Member) {
	m := a.member
	if a.joining.Swap(self.State == peer.Joining) && self.State == peer.Active && !m.gossip.SeedAnswered() {
		a.logAlone()
	}
	if err := m.gossip.Update(self); err != nil && !errors.Is(err, gossip.ErrClosed) {
		m.log.Error("this node's state cannot be sent to the others", "error", err)
	}
	if state := self.State.String(); state != a.logged { // it also sends that rules have changed
		a.logged = state
		m.log.Info("this node is "+state, "member", self.Name, "instance", self.Instance.String())
	}
}

// logAlone logs that this node found no other to join. For the first node of a cluster
// that is normal.
func (a *announcer) logAlone() {
	m := a.member
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
