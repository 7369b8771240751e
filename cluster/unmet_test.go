package cluster_test

import (
	"log/slog"
	"net"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cluster/gossip"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/ring"
)

// Who only gossips is counted apart from members, whatever state it claims: without a
// key for gossip anybody can.
func TestWhoOnlyGossipsIsUnmet(t *testing.T) {
	n := open(t, memberConfig("node-1", hundred))
	l, err := net.Listen("tcp", "127.0.0.1:0") // nothing answers at its peer port
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i, state := range []peer.State{peer.Active, peer.Leaving} {
		g, err := gossip.Open(t.Context(), gossip.Config{
			Name: "spirit-" + state.String(), Instance: peer.Instance(7 + i), ClusterName: "weir", RingConfig: ring.ConfigHash(),
			BindAddr: "127.0.0.1:0", Join: []string{gossipAddr(n)},
			Meta: func(string) peer.Member {
				return peer.Member{State: state, PeerAddr: l.Addr().String(), Wire: 2}
			}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
	}
	var s weir.ClusterStats
	until(t, "the node hears of both", func() bool {
		s, _ = n.Cluster().Stats()
		return s.Unreachable == 2
	})
	if s.Members["unmet"] != 2 || s.Members["leaving"] != 0 || s.Members["active"]+s.Members["joining"] != 1 {
		t.Errorf("members by state: %v, want 2 unmet and the node itself", s.Members)
	}
}
