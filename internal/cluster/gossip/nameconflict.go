package gossip

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/memberlist"
)

// maxNameConflicts bounds the addresses at which another node with this node's name may be. At
// the bound further addresses are ignored until one of the known ones proves to be dead.
const maxNameConflicts = 8

// namesakes are the addresses at which another node with this node's name may be. It is safe for concurrent use.
type namesakes struct {
	g *Gossip

	mu sync.Mutex
	at map[string]bool
}

// suspect remembers that another node with this node's name may be at an address. It may
// also be an earlier instance of this node that has ended: check finds out.
func (n *namesakes) suspect(addr string) {
	own := n.g.own().GossipAddr
	n.mu.Lock()
	defer n.mu.Unlock()
	if addr != own && len(n.at) < maxNameConflicts {
		n.at[addr] = true
	}
}

// check asks the suspected addresses and logs, once a minute, those that have a live
// node with this node's name. This happens if two nodes of one name start together and
// join by different addresses: both are let in, and each member knows the one that it
// met first.
func (n *namesakes) check() {
	n.mu.Lock()
	addrs := slices.Sorted(maps.Keys(n.at))
	n.mu.Unlock()
	each(atOnce, addrs, func(addr string) {
		if n.g.join.alive(addr) {
			n.g.log.write(slog.LevelError, "name conflict "+addr,
				"another live node has this node's name: give one of them another name",
				slog.String("name", n.g.cfg.Name), slog.String("address", addr))
			return
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.at, addr)
	})
}

// conflict returns a refusal if a node with this node's name is at another address, and
// nil otherwise. That node may be a second live one, or an earlier instance of this node
// that the peer still believes alive. nodes are the nodes that the peer knows.
func (n *namesakes) conflict(o *memberlist.Node, nodes []*memberlist.Node) *refusal {
	if o.Name != n.g.cfg.Name || o.State == memberlist.StateLeft {
		return nil
	}
	a, err := aboutNode(o)
	own := n.g.own()
	another := err == nil && a.Instance != own.Instance && a.GossipAddr != own.GossipAddr
	if !another {
		return nil
	}
	return &refusal{
		kind: ErrNameTaken, name: o.Name, addr: a.GossipAddr,
		older: a.started < own.started || a.started == own.started && a.Instance < own.Instance,
		moved: slices.ContainsFunc(nodes, func(other *memberlist.Node) bool {
			return other.Name != o.Name && other.State == memberlist.StateAlive && addrOf(other) == a.GossipAddr
		}),
		text: fmt.Sprintf("a node of the name %q, instance %s, is or was at %s; this one, instance %s, is at %s",
			o.Name, a.Instance, a.GossipAddr, own.Instance, own.GossipAddr),
	}
}
