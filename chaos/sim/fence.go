package sim

import (
	"fmt"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter/table"
)

// fence is what the nodes of a run are to its partitions, as it was last looked at. Only a turn of a node changes what
// it is to a partition, so after an event only the nodes that had one are looked at.
type fence struct {
	touched []*Node // since then; a node may be there twice
	claims  map[*Node][]claim
}

// claim is what a node is to a partition, see [cluster.Core.Claim].
type claim struct {
	role        peer.Role
	epoch       peer.Epoch
	heir        peer.Instance
	appointment uint32
}

// touch notes that a node has a turn.
func (f *fence) touch(n *Node) { f.touched = append(f.touched, n) }

// changed reports whether a node has become something else to the partition number i of a run.
func (f *fence) changed(n *Node, i int) bool {
	if f.claims == nil {
		f.claims = make(map[*Node][]claim)
	}
	all := f.claims[n]
	if len(all) == 0 {
		all = make([]claim, len(n.w.parts))
		f.claims[n] = all
	}
	var c claim
	c.role, c.epoch, c.heir, c.appointment = n.core.Claim(n.w.parts[i])
	changed := c != all[i]
	all[i] = c
	return changed
}

// invariants hold after every event.
func (w *World) invariants() error {
	for _, n := range w.fence.touched {
		for i, id := range w.parts {
			if !w.fence.changed(n, i) || w.split && id < table.Partitions {
				continue // an available partition may be owned on each side
			}
			if err := w.oneFenced(id); err != nil {
				return err
			}
		}
	}
	w.fence.touched = w.fence.touched[:0]
	return nil
}

// oneFenced: at most one owner of a partition can obtain acknowledgements.
func (w *World) oneFenced(id int) error {
	owners := 0
	for _, n := range w.nodes {
		if n.alive {
			if role, _, heir, _ := n.core.Claim(id); role == peer.Owned && heir != 0 {
				owners++
			}
		}
	}
	if owners < 2 { // as after almost every event
		return nil
	}
	owner := ""
	for _, n := range w.nodes {
		if !n.alive {
			continue
		}
		role, epoch, of, appointment := n.core.Claim(id)
		h := w.node(of)
		if role != peer.Owned || h == nil || !h.alive {
			continue
		}
		if role, e, _, a := h.core.Claim(id); role != peer.Heir || e != epoch || a != appointment {
			continue
		}
		if owner != "" {
			return fmt.Errorf("partition %d: %s and %s can both obtain acknowledgements", id, owner, n.name)
		}
		owner = n.name
	}
	return nil
}
