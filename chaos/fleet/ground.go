//go:build linux

package fleet

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/weirlimit/weir/chaos/netlab"
)

// Need is what a scenario needs of where nodes run, beyond that they are started,
// paused and ended. Needs are joined by |.
type Need uint8

// The needs.
const (
	// Cuts: links between nodes are cut, in one direction or both, or ports of them
	// blocked.
	Cuts Need = 1 << iota
	// Shapes: frames are late, lost, twice or in another order.
	Shapes
	// Redis: a redis-server that can be killed and cut off.
	Redis
	// Disks: each node keeps its counters in a file system of its own, which outlasts it and can be full.
	Disks
)

// Ground is where nodes run.
type Ground interface {
	// Lacks says why the ground has not all of what is needed, "" where it has.
	Lacks(n Need) string

	// open prepares for one fleet.
	open(ctx context.Context, c *Config) (site, error)
}

// site is where the nodes of one fleet run.
type site interface {
	// dial is how clients connect.
	dial(ctx context.Context, network, address string) (net.Conn, error)
	// trusted is how clients know nodes by TLS, nil where nodes use none.
	trusted() *tls.Config
	// place gives a node a body and its URL. It is called once for each, in order,
	// before any is started.
	place(ctx context.Context, n *Node) error
	// set says what happens to what one node sends another, heal makes all links
	// whole.
	set(ctx context.Context, from, to int, l netlab.Link) error
	heal(ctx context.Context) error
	// counts tells what became of what one node sent another.
	counts(ctx context.Context, from, to int) (netlab.Counts, error)
	// keep writes the nodes' logs to the fleet's directory, unless they are there.
	keep(ctx context.Context) error
	// close takes all of it away, also nodes that still run.
	close() error
}

// body is what a node runs in.
type body interface {
	// start starts it for the run-th time.
	start(ctx context.Context, run int) error
	// alive tells whether it runs, or is paused.
	alive() bool
	// ended returns an error that wraps ErrEnded, and the end of its log, where it
	// has ended and was not told to.
	ended(ctx context.Context) (log string, err error)
	kill(ctx context.Context) error
	pause(ctx context.Context) error
	resume(ctx context.Context) error
	// leave ends it by SIGTERM, and returns when it is gone.
	leave(ctx context.Context) error
	// starve leaves it a fifth of one processor for about so many slices of 100 ms. A
	// doubt is why that cannot be seen of the processor time that it got.
	starve(ctx context.Context, slices int) (doubt, err error)
}
