package cluster

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/weirlimit/weir/internal/cluster/gossip"
	"github.com/weirlimit/weir/limiter"
)

// network is what tests in virtual time put in the place of the machine's network. A nil
// function means the machine's.
type network struct {
	skew limiter.Tick // of the machine's clock
	// saveWithin is in place of the constant; 0 is not.
	saveWithin time.Duration
	listen     func(ctx context.Context, addr string) (net.Listener, error)
	dial       func(ctx context.Context, addr string) (net.Conn, error)
	gossip     gossip.Listen
	resolve    func(ctx context.Context, host string) ([]netip.Addr, error)
}
