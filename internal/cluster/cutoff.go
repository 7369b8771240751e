package cluster

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// cutOff tells whether this node is all that is left of several members: for a
// second nobody else has been in view, and there is no connection to anybody. Then
// nothing that needs another member's word comes about before one is back.
func (c *Core) cutOff(now limiter.Tick) bool {
	if at := c.aloneAt.Load(); at == 0 || now-limiter.Tick(at) < goneAfter || c.view.Load().Known == 1 {
		return false
	}
	for _, l := range c.links.Load().list {
		l.mu.Lock()
		up := l.up
		l.mu.Unlock()
		if up {
			return false
		}
	}
	return true
}

// hopeless tells whether waiting for the decision of a check is in vain: this node
// is cut off, and one of the keys is of a closed partition that it does not own, and
// cannot come to own without a majority.
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

// stuck tells the same where all partitions are owned here, and locked: a reply
// would be withheld, and its heir's word cannot come.
func (c *Core) stuck(t *turn, k *limiter.Charge) bool {
	if k.Peek || !c.cutOff(t.now) {
		return false
	}
	for i := range k.Len() {
		key := k.Key(i)
		if p := c.part(key); p != nil && p.closed && key.Cost > 0 && !p.roomFor(key) {
			return true
		}
	}
	return false
}
