package weir

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// Placement is what a client needs to find out which member should be asked about a
// request: see [Node.Placement]. It is shared and must not be changed.
type Placement struct {
	// View is a number of all that follows, not 0. Members that see the same, and have
	// the same rules, have the same number.
	View uint64
	// Members are those that are joining, active or leaving, by name.
	Members []PlacementMember
	// Owners has, for each partition of the key space, 1 + the index in Members of
	// the one that should own it, 0 for nobody. Partitions are counted as
	// table.PartitionOf does, modulo their number.
	Owners []uint16
	// Rules is the rules file in force, and Seeds what keys the hash of its counters.
	// Whoever has the seeds can construct two keys that share a counter.
	Rules, Seeds []byte
}

// PlacementMember is a member in a [Placement].
type PlacementMember struct {
	Name     string
	GRPCAddr string // where clients ask it, empty if it does not say
}

// ruleText is the file that rules were made of.
type ruleText struct {
	set  *rules.Set
	file []byte
}

// placed is a placement and what it was made of.
type placed struct {
	view      *cluster.View
	text      *ruleText
	placement *Placement
}

// Placement returns which member should be asked for what, as this node sees it now;
// nil in a node that is in no cluster, or knows nothing yet. It is made anew when
// the members or the rules have changed, and otherwise is two looks at pointers.
func (n *Node) Placement() *Placement {
	if n.member == nil {
		return nil
	}
	view, text := n.member.core.View(), n.text.Load()
	if view == nil || text == nil {
		return nil
	}
	if have := n.placed.Load(); have != nil && have.view == view && have.text == text {
		return have.placement
	}
	p := newPlacement(view, text)
	n.placed.Store(&placed{view, text, p})
	return p
}

func newPlacement(view *cluster.View, text *ruleText) *Placement {
	p := &Placement{Owners: make([]uint16, table.Partitions), Rules: text.file, Seeds: text.set.Seeds()}
	h := fnv.New64a()
	write := func(b []byte) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	for _, m := range view.Members {
		p.Members = append(p.Members, PlacementMember{m.Name, m.GRPCAddr})
		write([]byte(m.Name))
		write([]byte(m.GRPCAddr))
	}
	var owners []byte
	for i := range p.Owners {
		p.Owners[i] = uint16(view.RingOwner(i) + 1)
		owners = binary.LittleEndian.AppendUint16(owners, p.Owners[i])
	}
	write(owners)
	write(p.Rules)
	write(p.Seeds)
	p.View = max(h.Sum64(), 1)
	return p
}
