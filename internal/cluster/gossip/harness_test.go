package gossip

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir/internal/peer"
)

// patience is how long a test waits for something that must happen. It measures nothing.
const patience = 30 * time.Second

// The parallel tests wait for memberlist's intervals and use no processor, so more of
// them run at a time than there are processors. Probes under way when a node was closed
// end with their timers.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// node is a Gossip with everything that it reported.
type node struct {
	*Gossip
	t    testing.TB
	addr string

	mu      sync.Mutex
	fresh   chan struct{} // closed when something comes
	members []peer.Member
	history [][]peer.Member
	log     bytes.Buffer
}

// Write records a line of the log.
func (n *node) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log.Write(p)
	n.tell()
	return len(p), nil
}

func (n *node) tell() {
	close(n.fresh)
	n.fresh = make(chan struct{})
}

var instances atomic.Uint64

// configure returns a node that is not open yet, and its configuration.
func configure(t testing.TB, name string, join ...string) (*node, Config) {
	n := &node{t: t, fresh: make(chan struct{})}
	cfg := Config{
		Name: name, Instance: peer.Instance(instances.Add(1)), ClusterName: "test", RingConfig: 7,
		BindAddr: "127.0.0.1:0", Join: join,
		Meta:   says(peer.Member{State: peer.Active, PeerAddr: name + ":7947", Version: "test"}),
		Logger: slog.New(slog.NewTextHandler(n, &slog.HandlerOptions{Level: slog.LevelDebug})),
		OnMembers: func(m []peer.Member) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.members = m
			n.history = append(n.history, m)
			n.tell()
		},
	}
	return n, cfg
}

// says is what a node tells the others about itself, wherever it is.
func says(m peer.Member) func(string) peer.Member { return func(string) peer.Member { return m } }

// open opens a configured node.
func (n *node) open(cfg Config) error {
	g, err := Open(context.Background(), cfg)
	if err != nil {
		return err
	}
	n.Gossip = g
	n.addr = g.self.GossipAddr
	n.t.Cleanup(func() { g.Close() })
	return nil
}

// start opens a node that joins by some addresses.
func start(t testing.TB, name string, join ...string) *node {
	t.Helper()
	n, cfg := configure(t, name, join...)
	if err := n.open(cfg); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// until waits until ok returns true; it checks whenever the node reported something.
func (n *node) until(what string, ok func() bool) {
	n.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond) // for what is not told, as SeedAnswered
	defer tick.Stop()
	for {
		n.mu.Lock()
		fresh, good := n.fresh, ok()
		n.mu.Unlock()
		if good {
			return
		}
		select {
		case <-fresh:
		case <-tick.C:
		case <-deadline.C:
			n.mu.Lock()
			defer n.mu.Unlock()
			n.t.Fatalf("%s: waited in vain until %s; members %s; log:\n%s", n.Gossip.cfg.Name, what, show(n.members),
				n.log.String())
		}
	}
}

// sees waits until the members are those given, each as "name", or as "name dead", "name
// leaving" and so on if it is not active.
func (n *node) sees(want ...string) {
	n.t.Helper()
	n.until("the members are "+strings.Join(want, ", "), func() bool {
		return show(n.members) == strings.Join(want, ", ")
	})
}

// says waits for a line of the log that contains all the parts.
func (n *node) says(parts ...string) {
	n.t.Helper()
	n.until(fmt.Sprintf("the log has a line with %q", parts), func() bool {
		return slices.ContainsFunc(strings.Split(n.log.String(), "\n"), func(line string) bool {
			return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) })
		})
	})
}

func show(members []peer.Member) string {
	out := make([]string, len(members))
	for i, m := range members {
		out[i] = m.Name
		if m.State != peer.Active {
			out[i] += " " + m.State.String()
		}
	}
	return strings.Join(out, ", ")
}

// saw reports whether a list of members ever contained these words.
func (n *node) saw(words string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.history, func(m []peer.Member) bool { return strings.Contains(show(m), words) })
}

// instanceOf returns the instance of a member in a list, 0 if it is not in it.
func instanceOf(members []peer.Member, name string) peer.Instance {
	for _, m := range members {
		if m.Name == name {
			return m.Instance
		}
	}
	return 0
}

// crash ends a node without Leave.
func (n *node) crash() {
	n.t.Helper()
	if err := n.Close(); err != nil {
		n.t.Fatal(err)
	}
}

// Left reports whether the member of that name is known to have left gracefully within
// the last day, and has not come back.
func (g *Gossip) Left(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	r, ok := g.roster.gone[name]
	return ok && r.fate == left
}

// refused waits until the first refusal that a node has noted is for a reason.
func (n *node) refused(why error) {
	n.t.Helper()
	n.until("a refusal is noted", func() bool {
		r := n.refusals
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.last) > 0 && errors.Is(r.last[0], why)
	})
}
