package server

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/limiter"
)

// A member that shares its ring publishes it to clients, which then use it. A member
// that does not share it publishes nothing.
func TestShareRing(t *testing.T) {
	for _, share := range []bool{true, false} {
		c, _ := plain()
		c.Rules, c.ShareRing = []byte(townRules), share
		c.Cluster = &cluster.Config{Name: "node-1", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0"}
		s := start(t, c)
		asker, err := client.Open(client.Config{Addrs: []string{s.Addresses().GRPC}, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		ask := func() {
			var d limiter.Decision
			if err := asker.CheckInto(t.Context(), &limiter.Request{Path: "/towns", User: "ada"}, &d); err != nil ||
				d.Source != limiter.SourceOwner {
				t.Errorf("%v, %v", err, d.Source)
			}
		}
		eventually(t, "the member is ready", func() bool { return s.Ready() == nil })
		ask()
		if share {
			eventually(t, "the ring is known", func() bool {
				ask()
				return asker.Stats().View == s.Node().Cluster().Placement().View
			})
		}
		ask()
		if st := asker.Stats(); (st.View != 0) != share || st.RingError != nil || st.Nodes != 1 {
			t.Errorf("%+v", st)
		}
		if err := asker.Close(); err != nil {
			t.Error(err)
		}
	}
}
