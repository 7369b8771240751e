//go:build linux

package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
)

const (
	// rushEnough batches that a node has admitted whole are enough to show, if it
	// ends then, whether their copies were told before.
	rushEnough = 8
	// rushWithin is how long they are waited for.
	rushWithin = 200 * time.Millisecond
)

// batch asks a node about a key, and notes who decided. It tells whether all was
// admitted, by the node itself.
func (c *Cold) batch(ctx context.Context, n *fleet.Node, k *coldKey) (whole bool) {
	whole = true
	for _, o := range c.load.many(ctx, n, k.rule, []string{k.key}, question{User: k.key}) {
		if o.Counted() && len(o.Owners) == 1 {
			k.owner = o.Owners[0]
		}
		whole = whole && o.Counted() && o.Outcome == history.Allowed && k.owner == n.Name
	}
	return whole
}

// Rush asks a node about all keys at once that it decides itself and that are not
// left alone, and calls then as soon as it has admitted enough of them: what it
// admitted last nobody else may know of yet.
func (c *Cold) Rush(ctx context.Context, n *fleet.Node, then func() error) error {
	whole := make(chan struct{}, len(c.keys))
	var asking sync.WaitGroup
	for i := range c.keys {
		if k := &c.keys[i]; !k.quiet && k.owner == n.Name {
			asking.Go(func() {
				if c.batch(ctx, n, k) {
					whole <- struct{}{}
				}
			})
		}
	}
	late := time.NewTimer(rushWithin)
	defer late.Stop()
	for seen, waiting := 0, true; waiting && seen < rushEnough; {
		select {
		case <-whole:
			seen++
		case <-late.C:
			waiting = false
		case <-ctx.Done():
			waiting = false
		}
	}
	err := then()
	asking.Wait()
	return err
}

// Fresh makes keys that nobody has asked about, of the rules of a policy that never
// recover, and has each used up at one side, and then at the next. Later they are
// keys as the others.
func (c *Cold) Fresh(ctx context.Context, policy string, sides ...[]*fleet.Node) {
	for i := range c.load.plan.rules {
		r := &c.load.plan.rules[i]
		for k := range coldKeys {
			if r.Once && !r.Several && !r.Lent && r.Policy == policy {
				c.keys = append(c.keys, coldKey{fresh: true, rule: r.Name,
					key: fmt.Sprintf("%s-fresh-%s-%d", c.load.plan.prefix, r.Name, k)})
			}
		}
	}
	for _, nodes := range sides {
		c.ask(ctx, nodes, coldRest+1, func(k *coldKey) bool { return k.fresh })
	}
}
