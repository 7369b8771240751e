package table

import (
	"errors"
	"fmt"
)

// check verifies the invariants of a partition.
func (p *partition) check() error {
	if err := p.slots.check(); err != nil {
		return err
	}
	if err := p.table.ring(p).check(); err != nil {
		return err
	}
	for _, pos := range p.table.ring(p).byPlace() {
		if at := p.table.ring(p).at(pos).Time; at > p.clock && int64(at) < p.expiry.Load() {
			return fmt.Errorf("an id ends at %d, before the partition's bound %d", at, p.expiry.Load())
		}
	}
	for i := range p.slots.size {
		s := p.slots.at(i)
		if s.limit == 0 {
			continue
		}
		l := p.table.registry.limit(s.limit)
		if at := s.state.EmptyAt(l, p.table.words(s)); at > p.clock && int64(at) < p.expiry.Load() {
			return fmt.Errorf("slot %d recovers at %d, before the partition's bound %d", i, at, p.expiry.Load())
		}
	}
	return nil
}

// check verifies the order of the slots and that each can be reached.
func (t *slots) check() error {
	used, last := 0, uint64(0)
	for i := range t.size {
		s := t.at(i)
		if s.limit == 0 {
			continue
		}
		used++
		if s.place < last {
			return fmt.Errorf("slot %d is out of order", i)
		}
		last = s.place
		if at, found := t.find(s.place, s.lo); !found || at != i {
			return fmt.Errorf("slot %d is not found, or found at %d", i, at)
		}
		first, found := t.findKey(s.place)
		if !found || t.inRun(first, s.place, s.lo) != s || first > 0 && t.at(first-1).place == s.place &&
			t.at(first-1).limit != 0 {
			return fmt.Errorf("slot %d is not found by its key, or found from %d", i, first)
		}
		if near := t.findNear(s.place, s.lo); near != s && (near != nil || i > t.home(s.place)) {
			return fmt.Errorf("slot %d is not found behind its home", i)
		}
	}
	switch {
	case used != t.used:
		return fmt.Errorf("%d slots are taken, %d are counted", used, t.used)
	case t.size > 0 && t.at(t.size-1).limit != 0:
		return errors.New("the last slot is taken")
	case t.size > blockSlots && t.size > t.even()+limitFor(t.even())+blockSlots:
		return fmt.Errorf("%d slots, of which %d are for entries that are spread evenly", t.size, t.even())
	}
	return nil
}

// check verifies the invariants of the ring.
func (g *idRing) check() error {
	at := g.byPlace()
	for _, pos := range at {
		if e := &g.ring[pos]; g.find(e.place, e.lo) != pos {
			return fmt.Errorf("the id at %d is not found", pos)
		}
	}
	indexed, free := 0, 0
	wide := g.wide()
	for i := range g.elements(wide) {
		switch e := g.element(i, wide); {
		case e == 0:
			free++
		case !g.stale(e) && g.ring[g.position(e&g.mask()-1)].state.Time != idGone:
			indexed++
		}
	}
	if len(at) != g.used() || indexed != g.used() || len(g.index) != indexSize(len(g.ring)) ||
		free == 0 && len(g.ring) > 0 {
		return fmt.Errorf("%d ids, and %d in an index of %d, %d free; %d are counted in a ring of %d", len(at), indexed,
			len(g.index), free, g.used(), len(g.ring))
	}
	return nil
}
