package cluster

import (
	"fmt"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// identified returns an error if a request insists on its id, is a reservation or a lease, or has a cost or
// a limit above limiter.NarrowUnits, and a member runs a version without these. An optional id is
// left out then.
func (m *member) identified(r *limiter.Request, c *arith.Charge) error {
	v := m.core.View()
	if r.Lent && !v.Speaks(peer.LeaseWire) {
		return m.outdated(peer.LeaseWire, "lends nothing", "ask for each check")
	}
	if v.Speaks(peer.IDWire) {
		return nil
	}
	if c.Wide() {
		return m.outdated(peer.IDWire, "counts no units above 4294967295", "ask for less")
	}
	if c.ID == nil {
		return nil
	}
	held := c.ID.Hold > 0
	c.ID = nil
	if r.IDOptional && !held {
		return nil
	}
	return m.outdated(peer.IDWire, "remembers no ids", "leave out the id")
}

// outdated returns an error that names a member whose version lacks something.
func (m *member) outdated(wire uint16, lacks, instead string) error {
	v := m.core.View()
	for i := range v.Members {
		if o := &v.Members[i]; o.Wire < wire {
			return fmt.Errorf("%w: member %q runs version %q, which %s: upgrade it, or %s", limiter.ErrInvalid, o.Name,
				o.Version, lacks, instead)
		}
	}
	return fmt.Errorf("%w: this node sees no members yet, and a version before this one %s: ask again, or %s",
		limiter.ErrInvalid, lacks, instead)
}
