package gossip

import (
	"errors"
	"fmt"
	"net/netip"
)

// itself reports whether every machine that uses the address reaches itself: a loopback
// address, or the unspecified one.
func itself(addr string) bool {
	at, err := netip.ParseAddrPort(addr)
	ip := at.Addr().Unmap()
	return err == nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// atItself returns a refusal if either this node or the one at addr advertises a loopback
// address, but not both; otherwise nil. A member on another machine that uses such an
// address reaches itself, gets the answer of the wrong node, and declares the other dead,
// again and again. If both advertise loopback, they are on one machine.
func (g *Gossip) atItself(name, addr string) *refusal {
	own := g.own().GossipAddr
	var text string
	switch {
	case own == "" || itself(addr) == itself(own):
		return nil
	case itself(own):
		text = fmt.Sprintf("node %q is at %s, but this node advertises %s, which other machines cannot reach: "+
			"start this node with addresses that the others can reach (--gossip-addr, --peer-addr, and --advertise if it is "+
			"behind another address)", clip(name), addr, own)
	default:
		text = fmt.Sprintf("node %q advertises %s, which this node, at %s, cannot reach: "+
			"start that node with addresses that the others can reach (--gossip-addr, --peer-addr, and --advertise if it is "+
			"behind another address)", clip(name), addr, own)
	}
	return &refusal{kind: ErrLoopback, name: name, addr: addr, text: text}
}

// breaksMerge reports whether the refusal of one node in a list ends the whole exchange.
// The refusal of a node that advertises loopback does not: only that node is kept out.
// A member of an older version may list such a node, and can still be joined.
func breaksMerge(r *refusal) bool {
	return !errors.Is(r, ErrLoopback) || !itself(r.addr)
}
