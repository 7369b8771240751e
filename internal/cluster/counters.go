package cluster

import (
	"fmt"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// ExportCounters calls f with the table under a partition's lock, if this node owns it, and reports whether it does.
func (c *Core) ExportCounters(part int, f func(*table.Table, limiter.Tick)) (mine bool) {
	t := c.begin()
	defer t.end()
	defer t.Catch()
	c.partitions.at(t, uint16(part), func(r *replica.Replica, _ *replica.Step) {
		if mine = r.Own() != nil && r.Info(t.Now).Role == peer.Owned; mine {
			f(c.table, t.At)
		}
	})
	return mine
}

// ImportCounter imports a counter, if this node owns its partition. Copies get it as they get charges.
func (c *Core) ImportCounter(part int, of func(limiter.Tick) (table.Entry, bool), replace, dry bool) (
	did engine.Imported, err error) {
	t := c.begin()
	defer t.end()
	defer t.Catch()
	if part < 0 || part >= len(c.partitions.byID) || c.partitions.byID[part] == nil {
		return engine.ImportedElsewhere, fmt.Errorf("%w: there is no partition %d", limiter.ErrInvalid, part)
	}
	p := c.partitions.byID[part]
	p.run(t, func(r *replica.Replica, s *replica.Step) {
		if r.Own() == nil || r.Info(t.Now).Role != peer.Owned || r.Own().Behind() {
			return
		}
		var e table.Entry
		did, e, err = engine.ImportInto(c.table, t.At, part, of, replace, dry)
		if err == nil && did >= engine.ImportedAdded && !dry {
			r.Own().Imported(s, e.Hi)
		}
	})
	return did, err
}
