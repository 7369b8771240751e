package weir

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// readyEvery is how often WaitReady asks.
const readyEvery = 20 * time.Millisecond

// WaitReady waits until [Node.Ready] returns nil. It returns an error if the context ends
// first, which wraps the context's error and the reason why the node is not ready. It
// returns the reason at once if the node will not be ready any more: [ErrClosed], or an
// error that wraps [ErrLeaving].
func (n *Node) WaitReady(ctx context.Context) error {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		reason := n.Ready()
		if reason == nil || errors.Is(reason, ErrClosed) || errors.Is(reason, ErrLeaving) {
			return reason
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("weir: the context ended before the node was ready: %w: %w", ctx.Err(), reason)
		}
	}
}
