package weir

import (
	"context"

	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/rules"
)

// Calls counts the checks that a node asks of its decider. Err is what batches by other alternatives return.
type Calls struct {
	engine.Decider
	Checks, Batches int
	Err             error
}

// CountCalls counts the checks of a node from now on.
func CountCalls(n *Node) *Calls {
	c := &Calls{Decider: n.decider}
	n.decider = c
	return c
}

func (c *Calls) Check(ctx context.Context, set *rules.Set, r *Request, d *Decision, peek bool) error {
	c.Checks++
	return c.Decider.Check(ctx, set, r, d, peek)
}

func (c *Calls) CheckBatch(ctx context.Context, set *rules.Set, rs []Request, ds []Decision,
	peeks engine.Peeks) (engine.Undecided, error) {
	if c.Batches++; c.Err != nil && c.Batches%2 == 0 {
		return engine.Undecided{}, c.Err
	}
	return c.Decider.CheckBatch(ctx, set, rs, ds, peeks)
}

// Seeds returns what keys the hash of a node's counters.
func Seeds(n *Node) []byte { return n.node.Rules.Load().Seeds() }
