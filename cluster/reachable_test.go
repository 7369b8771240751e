package cluster

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cluster/gossip"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
)

// A member tells others its AdminAddr, unless that is loopback and they reach it by
// another address: they would ask themselves.
func TestReachableAdmin(t *testing.T) {
	for _, c := range []struct{ addr, host, want string }{
		{"127.0.0.1:8082", "127.0.0.1", "127.0.0.1:8082"}, {"[::1]:8082", "localhost", "[::1]:8082"},
		{"localhost:8082", "127.0.0.3", "localhost:8082"},
		{"127.0.0.1:8082", "10.0.0.5", ""}, {"[::1]:8082", "node-1", ""}, {"localhost:8082", "node-1", ""},
		{"[::]:8082", "node-1", "node-1:8082"}, {":8082", "10.0.0.5", "10.0.0.5:8082"},
		{"10.0.0.6:8082", "10.0.0.5", "10.0.0.6:8082"},
		{"127.0.0.1:8082", "", "127.0.0.1:8082"}, {"", "node-1", ""},
	} {
		if got := reachableAdmin(c.addr, c.host); got != c.want {
			t.Errorf("%q of a member at %q is told as %q, want %q", c.addr, c.host, got, c.want)
		}
	}
}

// Others hear at once where a member that listens at every address is reached. Told its own wildcard, they would
// dial themselves, and warn of it.
func TestReachableFromTheFirstWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual()
		heard := map[string]bool{}
		var mu sync.Mutex
		observer, err := gossip.Open(t.Context(), gossip.Config{
			Name: "observer", Instance: 1, ClusterName: rules.DefaultClusterName, RingConfig: ring.ConfigHash(),
			BindAddr: "127.1.0.1:7946", Logger: slog.New(slog.DiscardHandler), Listen: v.gossip,
			OnMembers: func(all []peer.Member) {
				mu.Lock()
				defer mu.Unlock()
				for _, m := range all {
					if m.Name == "node" {
						heard[m.PeerAddr] = true
					}
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		n, err := weir.Open(t.Context(), weir.Config{
			MaxKeys: 1000, Logger: slog.New(slog.DiscardHandler),
			Cluster: &settled{Config{
				Name: "node", PeerAddr: "0.0.0.0:7947", GossipAddr: "127.1.0.2:7946", Insecure: true,
				Join: []string{"127.1.0.1:7946", "127.1.0.9:7946"}, // nobody is at the second
			}, network{listen: v.listen, dial: v.dialer("127.1.0.2"), gossip: v.gossip}},
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mu.Lock()
		if !heard["127.1.0.2:7947"] || len(heard) != 1 {
			t.Errorf("the other heard of %v", heard)
		}
		mu.Unlock()
		if err := errors.Join(n.Close(), observer.Close()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // a probe under way ends with its timer
	})
}
