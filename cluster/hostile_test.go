package cluster_test

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cluster/gossip"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
)

// hostile is a member that has what a member has, its links and its gossip, and says what it
// wants. It answers nothing.
type hostile struct {
	tb     testing.TB
	self   peer.Member
	links  *peerlink.Links
	gossip *gossip.Gossip

	mu  sync.Mutex
	out map[peer.Instance][]*peer.Frame
	up  map[peer.Instance]bool
	ups map[peer.Instance]int
}

// join makes a hostile member of the cluster of a node.
func join(tb testing.TB, name string, at *weir.Node) *hostile {
	tb.Helper()
	h := &hostile{tb: tb, out: map[peer.Instance][]*peer.Frame{}, up: map[peer.Instance]bool{},
		ups: map[peer.Instance]int{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	h.self = peer.Member{Name: name, Instance: 666, State: peer.Active, PeerAddr: listener.Addr().String(),
		Wire: peerlink.Wire}
	h.links, err = peerlink.New(peerlink.Config{
		Self: h.self, ClusterName: rules.DefaultClusterName, RingConfig: ring.ConfigHash(), Frames: h,
	})
	if err != nil {
		tb.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = h.links.Serve(listener) }) // it ends with the test
	h.gossip, err = gossip.Open(tb.Context(), gossip.Config{
		Name: name, Instance: h.self.Instance, ClusterName: rules.DefaultClusterName, RingConfig: ring.ConfigHash(),
		BindAddr: "127.0.0.1:0", Join: []string{gossipAddr(at)}, Logger: slog.New(slog.DiscardHandler),
		Meta:      func(string) peer.Member { return h.self },
		OnMembers: func(all []peer.Member) { h.links.SetMembers(all) },
	})
	if err != nil {
		tb.Fatal(err)
	}
	var once sync.Once
	end := func() {
		once.Do(func() {
			_ = h.gossip.Close() // it is hostile, and does not leave
			h.links.Close()
			serving.Wait()
		})
	}
	tb.Cleanup(end)
	return h
}

// die ends the member without a word.
func (h *hostile) die() {
	_ = h.gossip.Close() // it says nothing
	h.links.Close()
}

// Take implements peerlink.Frames.
func (h *hostile) Take(to peer.Instance, _ bool) *peer.Frame {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.out[to]
	if len(q) == 0 {
		return nil
	}
	h.out[to] = q[1:]
	return q[0]
}

// Release implements peerlink.Frames.
func (h *hostile) Release(*peer.Frame) {}

// Deliver implements peerlink.Frames.
func (h *hostile) Deliver(*peer.Frame) {}

// Up implements peerlink.Frames.
func (h *hostile) Up(i peer.Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.up[i] = true
	h.ups[i]++
	h.out[i] = append(h.out[i], &peer.Frame{From: h.self.Instance, To: i,
		Known: []peer.Known{{Name: h.self.Name, Instance: h.self.Instance}}})
}

// Down implements peerlink.Frames.
func (h *hostile) Down(i peer.Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.up[i] = false
}

// linked returns the instances that it has links to.
func (h *hostile) linked() (all []peer.Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, up := range h.up {
		if up {
			all = append(all, i)
		}
	}
	slices.Sort(all)
	return all
}

// say sends a frame to all that it has links to.
func (h *hostile) say(f peer.Frame) {
	for _, to := range h.linked() {
		g := f
		g.From, g.To = h.self.Instance, to
		h.mu.Lock()
		h.out[to] = append(h.out[to], &g)
		h.mu.Unlock()
		h.links.Wake(to)
	}
}

// sees returns in which state a node sees a member; "" if it does not see it.
func sees(n *weir.Node, name string) string {
	for _, m := range n.Cluster().Members() {
		if m.Name == name {
			return m.State
		}
	}
	return ""
}

// TestHostileMemberIsExpelled: one operator's word throws a live member out at all members. It
// gets no link any more, counts for nothing, and what it said of others ends. A node that starts
// later hears of it, and it is let in again by a word.
func TestHostileMemberIsExpelled(t *testing.T) {
	nodes := three(t, "rules: [{name: login, on_unreachable: closed, key: [user], limits: [100/hour]}]")
	h := join(t, "mallory", nodes[0])
	until(t, "all see the hostile member, and it has links to all", func() bool {
		return len(h.linked()) == len(nodes) && !slices.ContainsFunc(nodes, func(n *weir.Node) bool {
			return sees(n, "mallory") != "active"
		})
	})
	h.say(peer.Frame{Expelled: []peer.Expulsion{{Name: "node-1", Number: 1}}})
	until(t, "what it says of another is believed", func() bool {
		return sees(nodes[1], "node-1") == "expelled" && sees(nodes[2], "node-1") == "expelled"
	})
	for _, n := range nodes[1:] {
		if err := n.Cluster().Expel("mallory"); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(nodes ...*weir.Node) func() bool {
		return func() bool {
			return len(h.linked()) == 0 && !slices.ContainsFunc(nodes, func(n *weir.Node) bool {
				s, _ := n.Cluster().Stats()
				return sees(n, "mallory") != "expelled" || s.Members["expelled"] != 1 ||
					s.Members["active"] != len(nodes) || s.Counted != len(nodes) || s.Unsettled != 0
			})
		}
	}
	until(t, "it is out, and the others are together", gone(nodes...))
	late := memberConfig("node-4", "rules: [{name: login, on_unreachable: closed, key: [user], limits: [100/hour]}]",
		gossipAddr(nodes[1]))
	nodes = append(nodes, open(t, late))
	until(t, "a node that starts later keeps it out", gone(nodes...))
	if d := check(t, nodes[3], weir.Request{User: "ada"}); !d.Allowed {
		t.Error(d)
	}
	if err := nodes[3].Cluster().Readmit("mallory"); err != nil {
		t.Fatal(err)
	}
	until(t, "it is let in again", func() bool { return len(h.linked()) == 4 && sees(nodes[0], "mallory") == "active" })
}

// TestInventedMembersMakeNoMinority: a hostile member says of a thousand names that they are
// members, and dies. The others serve on, and so they do when they were restarted one by one.
func TestInventedMembersMakeNoMinority(t *testing.T) {
	const rules = "rules: [{name: login, on_unreachable: closed, key: [user], limits: [100/hour]}]"
	nodes := three(t, rules)
	h := join(t, "mallory", nodes[0])
	until(t, "it is a member everywhere, with links to all", func() bool {
		return len(h.linked()) == 3 && !slices.ContainsFunc(nodes, func(n *weir.Node) bool {
			return sees(n, "mallory") != "active"
		})
	})
	var known []peer.Known
	for i := range 1000 {
		ghost := peer.Known{Name: fmt.Sprint("ghost-", i), Instance: peer.Instance(1000 + i)}
		if i%2 > 0 {
			ghost.Instance = h.self.Instance // as if it were one of them itself
		}
		known = append(known, ghost)
	}
	h.say(peer.Frame{Known: known})
	h.say(peer.Frame{Expelled: []peer.Expulsion{{Name: "heard", Number: 1}}}) // after the names, on each link
	until(t, "all have heard it", func() bool {
		return !slices.ContainsFunc(nodes, func(n *weir.Node) bool { return sees(n, "heard") != "expelled" })
	})
	h.die()
	counted := func() {
		t.Helper()
		until(t, "the others and the dead one count", func() bool {
			return !slices.ContainsFunc(nodes, func(n *weir.Node) bool {
				s, _ := n.Cluster().Stats()
				return s.Counted > 4 || s.Minority || s.Members["active"] != 3 || s.Unsettled != 0
			})
		})
		for i := range 30 {
			if d := check(t, nodes[i%3], weir.Request{User: fmt.Sprint("user-", i)}); !d.Allowed {
				t.Fatalf("user %d: %+v", i, d)
			}
		}
	}
	counted()
	if err := nodes[0].Cluster().Expel("mallory"); err != nil { // a dead one of four holds up who starts
		t.Fatal(err)
	}
	for i, n := range nodes {
		if err := n.Cluster().Leave(t.Context()); err != nil {
			t.Fatalf("node %d: %v", i, err)
		}
		c := memberConfig(fmt.Sprintf("node-%d", i+1), rules, gossipAddr(nodes[(i+1)%3]))
		nodes[i] = open(t, c)
		until(t, "the node that started again is ready", func() bool { return nodes[i].Ready() == nil })
	}
	counted()
}
