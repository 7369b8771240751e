package sim

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter/table"
)

// noteLosses counts the partitions that a crash leaves without the owner of the
// highest epoch and without its heir. If nobody decides, as an owner has given way to a claim that has not ended, it
// counts those that are left without a copy of the highest epoch. Each ownership is lost once, however many others
// crash before the partition has an owner again: with it those go that have lower epochs. One that begins then begins
// with a low epoch again, and may be lost, too.
func (w *World) noteLosses() {
	for _, id := range w.parts {
		lost := w.lost[id]
		top, keeps := w.highest(id, peer.Sealed, lost), peer.Heir
		if top == (peer.Epoch{}) {
			if w.highest(id, peer.Sealed, nil) != top {
				continue // what anybody has owned is lost
			}
			top, keeps = w.highest(id, peer.Copy, lost), peer.Copy
		}
		kept := top == (peer.Epoch{})
		for _, n := range w.live() {
			info, _ := n.core.Partition(id)
			kept = kept || info.Role >= keeps && info.Epoch == top
		}
		if kept {
			continue
		}
		if d := w.disks; d != nil && (d.cut || id >= table.Partitions) {
			d.forgets(id, w.now)
		} else {
			w.losses[id]++
		}
		for _, n := range w.nodes {
			if info, _ := n.core.Partition(id); info.Role >= peer.Copy && !top.Before(info.Epoch) {
				lost = append(lost, info.Epoch)
			}
		}
		w.lost[id] = lost
		w.logf("owner and heir of %d are lost", id)
	}
}

// highest returns the highest epoch, but for some, that a node holds a partition under, in a role or a higher one.
func (w *World) highest(id int, role peer.Role, but []peer.Epoch) (top peer.Epoch) {
	for _, n := range w.nodes {
		if info, _ := n.core.Partition(id); info.Role >= role && !slices.Contains(but, info.Epoch) {
			top = later(top, info.Epoch)
		}
	}
	return top
}

// noteRecovery counts a partition as lost where an older copy is recovered although its owner lives: the owner is cut
// off, and its heir is dead. An heir that lives takes over instead. It counts one that starts empty although its owner
// or its heir lives, and the other is dead: that happens only among members of which none has ever heard of who lives,
// since they started meanwhile.
func (w *World) noteRecovery(by *Node, id int, empty bool) {
	roles := make(map[peer.Role]peer.Epoch) // of others: the node that recovers it is in the middle of a step
	var keepers []*Node
	for _, n := range w.live() {
		if n != by {
			info, _ := n.core.Partition(id)
			roles[info.Role] = later(roles[info.Role], info.Epoch)
			if info.Role >= peer.Heir {
				keepers = append(keepers, n)
			}
		}
	}
	owner := later(roles[peer.Sealed], roles[peer.Owned])
	switch {
	case !empty && (owner == (peer.Epoch{}) || !roles[peer.Heir].Before(owner)):
		return
	case empty && (len(keepers) == 0 || w.known(keepers)):
		return
	}
	w.losses[id]++
	w.logf("the owner or the heir of %d is cut off, and the other is dead", id)
}

// known reports whether a live node has ever heard of one of some others.
func (w *World) known(others []*Node) bool {
	return slices.ContainsFunc(w.live(), func(n *Node) bool {
		return slices.ContainsFunc(others, func(o *Node) bool { return n != o && n.heardOf(o) })
	})
}

// heardOf reports whether a node has ever heard of another one.
func (n *Node) heardOf(o *Node) bool {
	listed := slices.ContainsFunc(n.members.Listed(), func(m peer.Member) bool { return m.Name == o.name })
	return listed || n.rumours[o.name] != nil
}
