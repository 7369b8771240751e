package sim

import (
	"fmt"
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter/table"
)

// fence is what the nodes of a run are to its partitions, as it was last looked at. Only a turn of a node changes what
// it is to a partition, so after an event only the nodes that had one are looked at.
type fence struct {
	touched []*Node // since then; a node may be there twice
	claims  map[*Node][]claim
	fenced  map[*Node]map[int]peer.Epoch // under which members owned partitions before they were fenced
	resets  map[*key]peer.Epoch          // that of the owner when the last reset of a key was answered
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

// fences notes that a node is fenced from a partition.
func (f *fence) fences(n *Node, id int) {
	if f.fenced == nil {
		f.fenced = make(map[*Node]map[int]peer.Epoch)
	}
	if f.fenced[n] == nil {
		f.fenced[n] = make(map[int]peer.Epoch)
	}
	f.fenced[n][id] = f.claimed(n, id).epoch
}

// wasReset notes that a reset of a key was answered while its owner had an epoch.
func (f *fence) wasReset(k *key, under peer.Epoch) {
	if f.resets == nil {
		f.resets = make(map[*key]peer.Epoch)
	}
	f.resets[k] = under
}

// claimed returns what a node was to a partition when it was last looked at.
func (f *fence) claimed(n *Node, id int) claim {
	if i := slices.Index(n.w.parts, id); i >= 0 && f.claims[n] != nil {
		return f.claims[n][i]
	}
	return claim{}
}

// unpushed returns the earliest epoch under which a node owned a partition that was fenced from it and has not pushed
// yet what it had; of several nodes. ok is false if there is none.
func (f *fence) unpushed(id int) (first peer.Epoch, ok bool) {
	for n, of := range f.fenced {
		e, was := of[id]
		if c := f.claimed(n, id); was && c.role == peer.Copy && c.epoch == e && (!ok || e.Before(first)) {
			first, ok = e, true
		}
	}
	return first, ok
}

// undoes notes the resets that an owner may have undone, since it has merged what another one pushed: those of later
// epochs than that of the one who pushed, and of earlier epochs than its own. It leaves out what it has reset itself,
// and knows of no other resets (docs/decisions.md, "A reset is answered when the heir has it").
func (f *fence) undoes(by *Node, id int) {
	pushed, ok := f.unpushed(id)
	own := f.claimed(by, id).epoch
	for _, k := range by.w.keys {
		if under := f.resets[k]; ok && k.part == id && pushed.Before(under) && under.Before(own) {
			k.stands = false
			by.w.logf("a reset of %s under %v may be undone by what was owned under %v", k.rule.Name, under, pushed)
		}
	}
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
