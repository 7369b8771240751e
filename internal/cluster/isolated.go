package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/limiter"
)

// isolated reports whether this node is isolated from all other members: for replica.GoneAfter no
// other member has been in the view, no link is up, and other members count. Until one
// is back, nothing that needs another member can succeed.
func (c *Core) isolated(now limiter.Tick) bool {
	if at := c.aloneAt.Load(); at == 0 || now-limiter.Tick(at) < replica.GoneAfter || c.view.Load().Known == 1 {
		return false
	}
	return !c.mesh.AnyUp()
}

// pointless reports whether a check whose partitions are all owned here, and locked,
// would wait in vain because this node is isolated: its
// reply would be withheld, and the heir's acknowledgement cannot come.
func (c *Core) pointless(t *turn, k *limiter.Charge) bool {
	if k.Peek || !c.isolated(t.Now) {
		return false
	}
	for i := range k.Len() {
		key := k.Key(i)
		if p := c.part(key); p != nil && p.closed && key.Cost > 0 && !p.r.RoomFor(t.inputs(), key) {
			return true
		}
	}
	return false
}
