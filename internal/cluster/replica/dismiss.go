package replica

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
)

// retirees are members with copies that the owner does not need any more: each was heir, or
// was to become heir.
type retirees []retiree

type retiree struct {
	member peer.Instance
	told   bool // to drop its copy
}

// maxRetired bounds the retirees of an ownership. Beyond it the oldest is forgotten, and
// keeps its copy until the partition has a later epoch.
const maxRetired = 8

// add records that a member has a copy that is not needed once there is an heir.
func (r *retirees) add(member peer.Instance) {
	r.recall(member)
	if len(*r) == maxRetired {
		*r = slices.Delete(*r, 0, 1)
	}
	*r = append(*r, retiree{member: member})
}

// recall forgets a member, because it is to become heir.
func (r *retirees) recall(member peer.Instance) {
	for i := range *r {
		if (*r)[i].member == member {
			*r = slices.Delete(*r, i, i+1)
			return
		}
	}
}

// again records that a member must be told again: its connection is new, and it may not have heard, or
// it has taken a copy since.
func (r retirees) again(member peer.Instance) {
	for i := range r {
		if r[i].member == member {
			r[i].told = false
		}
	}
}

// dismiss tells the retirees of an owner to drop their copies, if it has an heir and no other
// member is to become heir.
func (r retirees) dismiss(t *Step, o *Ownership) {
	if o.heir == nil || o.next != nil {
		return
	}
	for i := range r {
		if !r[i].told {
			r[i].told = true
			t.sendRevoke(r[i].member, peer.Revoke{Partition: o.id, Epoch: o.held.epoch, Drop: true}, false)
		}
	}
}
