package gossip

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/hashicorp/memberlist"
)

// maxNameConflicts bounds the addresses at which another node with this node's name may be. At
// the bound further addresses are ignored until one of the known ones proves to be dead.
const maxNameConflicts = 8

// suspectNameConflict remembers that another node with this node's name may be at an address. It may
// also be an earlier instance of this node that has ended: checkNameConflicts finds out.
func (g *Gossip) suspectNameConflict(addr string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if addr != g.self.GossipAddr && len(g.nameConflicts) < maxNameConflicts {
		g.nameConflicts[addr] = true
	}
}

// checkNameConflicts asks the suspected addresses and logs, once a minute, those that have a live
// node with this node's name. This happens if two nodes of one name start together and
// join by different addresses: both are let in, and each member knows the one that it
// met first.
func (g *Gossip) checkNameConflicts() {
	g.mu.Lock()
	addrs := slices.Sorted(maps.Keys(g.nameConflicts))
	g.mu.Unlock()
	each(atOnce, addrs, func(addr string) {
		if g.alive(addr) {
			g.log.write(slog.LevelError, "name conflict "+addr,
				"another live node has this node's name: give one of them another name",
				slog.String("name", g.cfg.Name), slog.String("address", addr))
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.nameConflicts, addr)
	})
}

// nameConflict returns a refusal if a node with this node's name is at another address, and
// nil otherwise. That node may be a second live one, or an earlier instance of this node
// that the peer still believes alive. nodes are the nodes that the peer knows.
func (g *Gossip) nameConflict(n *memberlist.Node, nodes []*memberlist.Node) *refusal {
	if n.Name != g.cfg.Name || n.State == memberlist.StateLeft {
		return nil
	}
	a, err := aboutNode(n)
	g.mu.Lock()
	own := g.self
	g.mu.Unlock()
	another := err == nil && a.Instance != own.Instance && a.GossipAddr != own.GossipAddr
	if !another {
		return nil
	}
	return &refusal{
		kind: ErrNameTaken, name: n.Name, addr: a.GossipAddr,
		older: a.started < own.started || a.started == own.started && a.Instance < own.Instance,
		moved: slices.ContainsFunc(nodes, func(o *memberlist.Node) bool {
			return o.Name != n.Name && o.State == memberlist.StateAlive && addrOf(o) == a.GossipAddr
		}),
		text: fmt.Sprintf("a node of the name %q, instance %s, is or was at %s; this one, instance %s, is at %s",
			n.Name, a.Instance, a.GossipAddr, own.Instance, own.GossipAddr),
	}
}
