package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
)

// CutLinks closes a member's links and keeps its gossip, so that it sees the others and
// cannot ask them.
func CutLinks(n *weir.Node) { n.Cluster().(*member).links.Close() }

// Saves returns how often a node has saved.
func Saves(n *weir.Node) uint64 { return n.Cluster().(*member).keeper.count.saves.Load() }

// onNetwork opens a member on another machine than this one.
type onNetwork struct {
	*Config
	network
}

func (o onNetwork) OpenMember(ctx context.Context, n *engine.Node) (engine.Decider, weir.Cluster, error) {
	m, err := o.Config.open(ctx, n, o.network)
	if err != nil {
		return nil, nil, err
	}
	return m.decider, m, nil
}

// OpenBehind opens a node whose machine's clock is behind.
func OpenBehind(t *testing.T, c weir.Config, by time.Duration) *weir.Node {
	t.Helper()
	return openOn(t, c, network{skew: -limiter.Tick(by / limiter.TickDuration)})
}

// OpenImpatient opens a node that waits so long for a disk at its end.
func OpenImpatient(t *testing.T, c weir.Config, within time.Duration) *weir.Node {
	t.Helper()
	return openOn(t, c, network{saveWithin: within})
}

func openOn(t *testing.T, c weir.Config, on network) *weir.Node {
	t.Helper()
	c.Cluster = onNetwork{c.Cluster.(*Config), on}
	n, err := weir.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
