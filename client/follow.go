package client

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/waiting"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// follow reads the files of certificates again until the context ends. When they have
// changed it connects to all nodes anew: a node refuses a caller whose certificate has
// expired, also on a connection that was made before.
func (c *Client) follow(ctx context.Context) {
	tick := time.NewTicker(c.config.poll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if c.credentials.Poll() {
			c.renew(ctx)
		}
	}
}

// pollDefault is how often the files are read.
const pollDefault = certs.Every

// renew replaces the connection of each node. Streams move after the messages in flight are
// answered.
func (c *Client) renew(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	for _, n := range c.nodes {
		conn, err := c.dial(n.addr)
		if err != nil {
			continue // the old one stays: options that were valid once are
		}
		old := n.conn
		n.conn, n.api, n.renewed = conn, weirv1.NewLimiterClient(conn), true
		n.notify()
		c.streams.Go(func() { c.retire(ctx, old) })
	}
}

// retire closes a connection when the calls on it have ended: a call of its own ends within
// the timeout, and a stream moves before that.
func (c *Client) retire(ctx context.Context, old *grpc.ClientConn) {
	_ = waiting.Sleep(ctx, 2*c.config.Timeout)
	_ = old.Close() // it is closed once, so that it cannot fail
}

// latest returns the node's calls, on the newest connection. The caller does not hold the lock.
func (n *node) latest() weirv1.LimiterClient {
	n.client.mu.Lock()
	defer n.client.mu.Unlock()
	return n.api
}

// begin returns the calls for a new stream, which is on the newest connection.
func (n *node) begin() weirv1.LimiterClient {
	n.client.mu.Lock()
	defer n.client.mu.Unlock()
	n.renewed = false
	return n.api
}

// moves reports whether the present stream is to end, because there is a newer connection.
func (n *node) moves() bool {
	n.client.mu.Lock()
	defer n.client.mu.Unlock()
	return n.renewed
}
