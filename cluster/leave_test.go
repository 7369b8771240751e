package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
)

// All calls that tell a node to leave or close return, however many there are.
func TestLeaveWhileItEnds(t *testing.T) {
	ctx := context.Background()
	for name, end := range map[string]func(*weir.Node) error{
		"Leave": func(n *weir.Node) error { return n.Cluster().Leave(ctx) },
		"Close": (*weir.Node).Close,
	} {
		n := open(t, memberConfig("alone", hundred))
		check(t, n, weir.Request{Path: "/towns", User: "ada"})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := n.Cluster().Leave(ctx); err != nil && !errors.Is(err, weir.ErrClosed) {
					t.Errorf("%s: Leave: %v", name, err)
				}
			})
			all.Go(func() {
				if err := n.Cluster().HandOver(ctx); err != nil && !errors.Is(err, weir.ErrClosed) {
					t.Errorf("%s: HandOver: %v", name, err)
				}
			})
		}
		if err := end(n); err != nil && !errors.Is(err, weir.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
		all.Wait()
	}
}

// Leave waits until a handover that HandOver started has ended, so nothing is lost.
func TestLeaveWaitsForHandOver(t *testing.T) {
	nodes := three(t, hundred)
	stalls := watch(nodes...)
	const users = 300
	for u := range users {
		for range 60 {
			check(t, nodes[u%3], weir.Request{Path: "/towns", User: fmt.Sprint("user", u)})
		}
	}
	handed := make(chan error, 1)
	go func() { handed <- nodes[2].Cluster().HandOver(context.Background()) }()
	until(t, "it is leaving", func() bool { return errors.Is(nodes[2].Ready(), weir.ErrLeaving) })
	left := nodes[2].Cluster().Leave(context.Background())
	if err := <-handed; err != nil {
		t.Errorf("what was handed over while it left: %v", err)
	}
	var allowed [users]int
	for u := range users {
		for range 60 {
			if check(t, nodes[u%2], weir.Request{Path: "/towns", User: fmt.Sprint("user", u)}).Allowed {
				allowed[u]++
			}
		}
	}
	stalls.end(t)
	if left != nil && !stalls.explain(left) {
		t.Errorf("Leave: %v", left)
	}
	for i, n := range nodes[:2] {
		if s, _ := n.Cluster().Stats(); s.Events["recovered"] > 0 {
			t.Errorf("node %d went on from copies: %v", i+1, s.Events)
		}
	}
	for u, n := range allowed {
		if !stalls.near(n, 40) {
			t.Errorf("user%d: %d admitted, want the 40 that were left; %+v", u, n, stalls.count)
		}
	}
}

// The last node logs that its counters are lost; no other node does.
func TestTheLastOneSaysSo(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector; make wire runs it without, make test-long with it")
	}
	const lost = "this node's counters are lost"
	logged := func(c weir.Config) (weir.Config, *syncBuffer) {
		b := &syncBuffer{}
		c.Logger = slog.New(slog.NewTextHandler(b, nil))
		return c, b
	}
	first := open(t, memberConfig("node-1", hundred))
	config, log := logged(memberConfig("node-2", hundred, gossipAddr(first)))
	last := open(t, config)
	together(t, []*weir.Node{first, last})
	if err := first.Cluster().Leave(context.Background()); err != nil {
		t.Fatal(err)
	}
	together(t, []*weir.Node{last})
	config, others := logged(memberConfig("node-3", hundred, gossipAddr(last)))
	third := open(t, config)
	together(t, []*weir.Node{last, third})
	if err := third.Cluster().Leave(context.Background()); err != nil || strings.Contains(others.String(), lost) {
		t.Errorf("%v; with another left it says %s", err, others)
	}
	if err := last.Cluster().Leave(context.Background()); err != nil || !strings.Contains(log.String(), lost) {
		t.Errorf("%v; the last one says %s", err, log)
	}
}

// A node that leaves while it still waits for others has no counters that could be lost.
func TestWhoIsStillJoiningLosesNothing(t *testing.T) {
	var log syncBuffer
	config := memberConfig("node-1", hundred, "127.0.0.1:1") // nobody is there
	config.Cluster.(*cluster.Config).Expect = 2
	config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if err := open(t, config).Cluster().Leave(context.Background()); err != nil {
		t.Fatal(err)
	}
	if says := log.String(); !strings.Contains(says, "is leaving") || strings.Contains(says, "are lost") {
		t.Errorf("it says %s", says)
	}
}

// syncBuffer is a buffer that is safe for concurrent use.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A node that sees no more than half of the others when it leaves is not taken off the list of
// members: the other one does not become a majority by that.
func TestLeavingWithoutAMajority(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector; make wire runs it without, make test-long with it")
	}
	nodes := three(t, hundred)
	sees := func(i int, state string) bool {
		return slices.ContainsFunc(nodes[2].Cluster().Members(), func(m weir.Member) bool {
			return m.Name == fmt.Sprint("node-", i) && m.State == state
		})
	}
	if err := nodes[0].Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "node-1 is dead", func() bool { return sees(1, "dead") })
	until(t, "node-2 knows it too", func() bool { return len(alive(nodes[1])) == 2 })
	if err := nodes[1].Cluster().Leave(context.Background()); err != nil {
		t.Fatal(err)
	}
	until(t, "node-2 is dead", func() bool { return sees(2, "dead") })
}

// alive returns the members that a node sees.
func alive(n *weir.Node) (out []weir.Member) {
	for _, m := range n.Cluster().Members() {
		if m.State != "dead" {
			out = append(out, m)
		}
	}
	return out
}
