package cluster

import (
	"context"
	"net"
	"net/netip"

	"github.com/weirlimit/weir/internal/cluster/gossip"
	"github.com/weirlimit/weir/limiter"
)

// network is what tests in virtual time put in the place of the machine's network. A nil
// function means the machine's.
type network struct {
	skew    limiter.Tick // of the machine's clock
	listen  func(ctx context.Context, addr string) (net.Listener, error)
	dial    func(ctx context.Context, addr string) (net.Conn, error)
	gossip  gossip.Listen
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)
}
