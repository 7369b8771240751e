package cluster

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter/table"
)

// placed is a placement with the view and the text that it was made from.
type placed struct {
	view      *view.View
	text      *engine.Text
	placement *weir.Placement
}

// Placement implements [weir.Cluster].
func (m *member) Placement() *weir.Placement {
	view, text := m.core.View(), m.Text.Load()
	if view == nil || text == nil {
		return nil
	}
	if have := m.placed.Load(); have != nil && have.view == view && have.text == text {
		return have.placement
	}
	p := newPlacement(view, text)
	m.placed.Store(&placed{view, text, p})
	return p
}

func newPlacement(view *view.View, text *engine.Text) *weir.Placement {
	p := &weir.Placement{Owners: make([]uint16, table.Partitions), Rules: text.File, Seeds: text.Set.Seeds()}
	h := fnv.New64a()
	write := func(b []byte) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	for _, m := range view.Members {
		p.Members = append(p.Members, weir.PlacementMember{Name: m.Name, GRPCAddr: m.GRPCAddr})
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
