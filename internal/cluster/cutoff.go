package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// cutOff reports whether this node is isolated from all other members: for replica.GoneAfter no
// other member has been in the view, no link is up, and other members count. Until one
// is back, nothing that needs another member can succeed.
func (c *Core) cutOff(now limiter.Tick) bool {
	if at := c.aloneAt.Load(); at == 0 || now-limiter.Tick(at) < replica.GoneAfter || c.view.Load().Known == 1 {
		return false
	}
	return !c.mesh.AnyUp()
}

// hopeless reports whether a check would wait in vain: this node is cut off, and a key
// belongs to a closed partition that this node does not own and cannot own without a
// majority.
func (o *op) hopeless(t *turn) bool {
	if o.kind != opCheck || !o.c.cutOff(t.now) {
		return false
	}
	for i := range o.charge.Len() {
		if p := o.c.part(o.charge.Key(i)); p != nil && p.closed && peer.Instance(p.to.Load()) != o.c.self {
			return true
		}
	}
	return false
}

// stuck is hopeless for a check whose partitions are all owned here, and locked: its
// reply would be withheld, and the heir's acknowledgement cannot come.
func (c *Core) stuck(t *turn, k *limiter.Charge) bool {
	if k.Peek || !c.cutOff(t.now) {
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
