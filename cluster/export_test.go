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
func Saves(n *weir.Node) uint64 { return n.Cluster().(*member).keeper.saves.Load() }

// behind opens a member whose machine's clock is behind.
type behind struct {
	*Config
	by time.Duration
}

func (b behind) OpenMember(ctx context.Context, n *engine.Node) (engine.Decider, weir.Cluster, error) {
	m, err := b.Config.open(ctx, n, network{skew: -limiter.Tick(b.by / limiter.TickDuration)})
	return m, m, err
}

// OpenBehind opens a node whose machine's clock is behind.
func OpenBehind(t *testing.T, c weir.Config, by time.Duration) *weir.Node {
	t.Helper()
	c.Cluster = behind{c.Cluster.(*Config), by}
	n, err := weir.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
