package cluster

import (
	"fmt"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// lendable returns an error if a request is a lease, and a member runs a version without these.
func (x *decider) lendable(r *limiter.Request) error {
	if !r.Lent {
		return nil
	}
	v := x.member.core.View()
	if v.Speaks(peer.LeaseWire) {
		return nil
	}
	for i := range v.Members {
		if o := &v.Members[i]; o.Wire < peer.LeaseWire {
			return fmt.Errorf("%w: member %q runs version %q, which lends nothing: upgrade it, or ask for each check",
				limiter.ErrInvalid, o.Name, o.Version)
		}
	}
	return fmt.Errorf("%w: this node sees no members yet, and a version before this one lends nothing: ask again, or "+
		"ask for each check", limiter.ErrInvalid)
}
