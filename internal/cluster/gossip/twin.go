package gossip

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/hashicorp/memberlist"
)

// maxTwins bounds the addresses where another node of this one's name may be;
// further ones are not asked until one of those is found to be gone.
const maxTwins = 8

// suspect remembers that another node of this one's name may be at an address.
// It may as well be a former run of this one that is gone: askTwins finds out.
func (g *Gossip) suspect(addr string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if addr != g.self.GossipAddr && len(g.twins) < maxTwins {
		g.twins[addr] = true
	}
}

// askTwins asks those that may have this node's name, and says, once a minute,
// who is alive. Two that are started together by different addresses to join by
// are both let in, and then each member knows the one that it met first.
func (g *Gossip) askTwins() {
	g.mu.Lock()
	addrs := slices.Sorted(maps.Keys(g.twins))
	g.mu.Unlock()
	each(atOnce, addrs, func(addr string) {
		if g.alive(addr) {
			g.log.say(slog.LevelError, "twin "+addr, "another live node has this node's name: give one of them another name",
				slog.String("name", g.cfg.Name), slog.String("address", addr))
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.twins, addr)
	})
}

// double returns a refusal if another node has this one's name, elsewhere: a
// second one, or a former run of this one of which the other side, which knows
// of nodes, does not know that it is gone.
func (g *Gossip) double(n *memberlist.Node, nodes []*memberlist.Node) *refusal {
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
