package gossip

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

// sendToAll sends a message to all live members by TCP, eight at a time. It starts no more
// after the deadline.
func (g *Gossip) sendToAll(message []byte, deadline time.Time) {
	g.mu.Lock()
	live := slices.Collect(maps.Values(g.roster.live))
	g.mu.Unlock()
	each(8, live, func(a about) {
		if time.Now().After(deadline) {
			return
		}
		n, err := nodeAt(&a)
		if err == nil {
			err = g.ml.SendReliable(n, message)
		}
		if err != nil {
			g.log.write(slog.LevelDebug, "", "a member could not be told who is gone", slog.String("member", a.Name),
				slog.Any("error", err))
		}
	})
}

// nodeAt returns a new node to send to. Memberlist's own nodes cannot be used: it writes
// to them whenever it hears something, and only its callbacks may read them.
func nodeAt(a *about) (*memberlist.Node, error) {
	at, err := netip.ParseAddrPort(a.GossipAddr)
	if err != nil {
		return nil, err
	}
	return &memberlist.Node{Name: a.Name, Addr: at.Addr().AsSlice(), Port: at.Port()}, nil
}
