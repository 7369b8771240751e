package walk

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/weirtest"
)

func newAsked() *asked {
	a := &asked{}
	a.now.Store(weirtest.Start().UnixMicro())
	return a
}

// open opens a node that decides by the walk's clock.
func (a *asked) open(tb testing.TB, c weir.Config) *weir.Node {
	tb.Helper()
	c.Now = a.clock
	n, err := weir.Open(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { n.Close() })
	return n
}

// A node in memory decides as the model does.
func TestWalk(t *testing.T) {
	a := newAsked()
	a.nodes = []*weir.Node{a.open(t, weir.Config{})}
	a.walk(t)
}

// Two nodes that count in Redis decide as the model does.
func TestWalkInRedis(t *testing.T) {
	a, srv := newAsked(), redistest.Start(t)
	for range 2 {
		store, err := redisstore.Open(t.Context(), redisstore.Config{Addrs: []string{srv.Socket}, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		a.nodes = append(a.nodes, a.open(t, weir.Config{Backend: store}))
	}
	a.walk(t)
}

// Three members decide as the model does, whichever is asked, with keys of several owners.
func TestWalkOnThreeMembers(t *testing.T) {
	a := members(t)
	a.walk(t)
}

// members opens the three members of a cluster.
func members(t *testing.T) *asked {
	t.Helper()
	a := newAsked()
	a.three = true
	config := func(name string, join ...string) weir.Config {
		return weir.Config{MaxKeys: 1_000_000, Cluster: &cluster.Config{
			Name: name, PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0", Join: join,
			Deadline: 30 * time.Second, // so long that no policy answers for lack of CPU
		}}
	}
	a.nodes = []*weir.Node{a.open(t, config("node-1")), nil, nil}
	var first string
	for _, m := range a.nodes[0].Cluster().Members() {
		if m.Self {
			first = m.Address
		}
	}
	var opening sync.WaitGroup
	for i := 1; i < 3; i++ {
		opening.Go(func() { a.nodes[i] = a.open(t, config(fmt.Sprint("node-", i+1), first)) })
	}
	opening.Wait()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for _, n := range a.nodes {
		for {
			s, _ := n.Cluster().Stats()
			if s.Members["active"] == 3 && s.Unsettled == 0 && n.Ready() == nil {
				break
			}
			select {
			case <-deadline.C:
				t.Fatalf("the members are not together: %+v, %v", s, n.Ready())
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return a
}
