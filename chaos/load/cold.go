//go:build linux

package load

import (
	"context"
	"fmt"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/internal/loadgen"
)

const (
	// coldKeys of each rule that never recovers: enough that most members own, or
	// have a copy of, dozens of them.
	coldKeys = 90
	// coldAtOnce is how many of them are asked about at a time.
	coldAtOnce = 24
	// coldRest batches use up what the first one left of a key, and more.
	coldRest = 3
)

// Cold is keys that are partly used up before something breaks. One half is left
// alone until all is mended, so that only what copies and owners pass on keeps
// their counts; the other is asked about when the scenario says so. In the end all
// are used up: what was forgotten shows as admitted too much, what was made up as
// denied too early.
type Cold struct {
	load *Load
	keys []coldKey
}

type coldKey struct {
	rule, key string
	quiet     bool   // it is left alone until all is mended
	fresh     bool   // it was first asked about while something was broken
	owner     string // who decided it last, as far as is known
}

// Cold makes such keys, and has each asked about once, of the nodes given in turn.
func (l *Load) Cold(ctx context.Context, nodes []*fleet.Node) *Cold {
	c := &Cold{load: l}
	for i := range l.plan.rules {
		r := &l.plan.rules[i]
		for k := range coldKeys {
			if r.Once && !r.Several && !r.Lent {
				c.keys = append(c.keys, coldKey{rule: r.Name, key: fmt.Sprintf("%s-cold-%s-%d", l.plan.prefix, r.Name, k),
					quiet: k%2 == 0})
			}
		}
	}
	c.ask(ctx, nodes, 1, func(*coldKey) bool { return true })
	return c
}

// Ask has the keys that are not left alone asked about, so many times each.
func (c *Cold) Ask(ctx context.Context, times int, nodes ...*fleet.Node) {
	c.ask(ctx, nodes, times, func(k *coldKey) bool { return !k.quiet })
}

// UseUp has all keys asked about until they are used up.
func (c *Cold) UseUp(ctx context.Context, nodes []*fleet.Node) {
	c.ask(ctx, nodes, coldRest, func(*coldKey) bool { return true })
}

func (c *Cold) ask(ctx context.Context, nodes []*fleet.Node, times int, which func(*coldKey) bool) {
	var keys []*coldKey
	for i := range c.keys {
		if k := &c.keys[i]; which(k) {
			keys = append(keys, k)
		}
	}
	_ = loadgen.Each(len(keys), coldAtOnce, func(i int) error {
		for j := range times {
			if ctx.Err() == nil {
				c.batch(ctx, nodes[(i+j)%len(nodes)], keys[i])
			}
		}
		return nil // each check ends by itself
	})
}
