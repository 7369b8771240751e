package table

import (
	"fmt"
)

// checkCounts holds what is counted of bytes, limits and shares against the slots.
func (t *Table) checkCounts() error {
	slots, held := make(map[uint16]int64), int64(0)
	bytes, blocks := make(map[uint16]int64), make(map[uint32]uint8)
	keys, lent := int64(0), int64(0)
	for i := range t.parts {
		p, words := &t.parts[i], int64(0)
		if len(p.slots.blocks) > 0 {
			held += int64(len(p.slots.blocks[0])) * slotBytes
		}
		held += t.ring(p).bytes()
		if n := int64(t.ring(p).used()); n > 0 {
			keys, slots[t.ring(p).number] = keys+n, slots[t.ring(p).number]+n
		}
		for j := range p.slots.size {
			s := p.slots.at(j)
			if s.limit == 0 {
				continue
			}
			keys++
			slots[s.limit]++
			if s.words == 0 {
				continue
			}
			if _, twice := blocks[s.words]; twice {
				return fmt.Errorf("partition %d, slot %d: block %d is used twice", i, j, s.words)
			}
			blocks[s.words] = s.sizeClass()
			n := int64(classWords(s.sizeClass())) * wordBytes
			words, bytes[s.limit] = words+n, bytes[s.limit]+n
		}
		if t.copies[i].words != words {
			return fmt.Errorf("partition %d has %d bytes of words, and %d are counted", i, words, t.copies[i].words)
		}
		lent += t.copies[i].bytes
	}
	if keys != t.room.keys.Load() || lent != t.room.copiedBytes.Load() {
		return fmt.Errorf("%d keys and %d bytes of copies, counted are %d and %d", keys, lent, t.room.keys.Load(),
			t.room.copiedBytes.Load())
	}
	if err := t.registry.check(slots, bytes); err != nil {
		return err
	}
	if err := t.room.slab.check(blocks); err != nil {
		return err
	}
	ordinary := 0
	for i := range t.parts {
		for _, b := range t.parts[i].slots.blocks[min(1, len(t.parts[i].slots.blocks)):] {
			if at, _ := t.room.arena.find(b); at < 0 {
				ordinary++
			}
		}
	}
	if held += int64(ordinary)*blockBytes + int64(len(t.room.arena.chunks))*chunkBytes; held != t.room.arena.held.Load() {
		return fmt.Errorf("slots have %d bytes, counted are %d", held, t.room.arena.held.Load())
	}
	return nil
}

func (r *registry) check(slots, bytes map[uint16]int64) error {
	requests, foreign, zoned := 0, 0, 0
	taken := make(map[string]*[3]int64)
	for key, id := range r.byKey {
		c := r.count(id)
		if c == nil {
			continue
		}
		if c.slots.Load() != slots[id] || slots[id] == 0 || c.key != key {
			return fmt.Errorf("limit %d has %d counters, %d are counted", id, slots[id], c.slots.Load())
		}
		if c.origin == ofZone {
			zoned++
		}
		switch {
		case c.share != nil:
			s := taken[key.share]
			if s == nil {
				s = new([3]int64)
				taken[key.share] = s
			}
			s[0], s[1], s[2] = s[0]+slots[id], s[1]+bytes[id], s[2]+1
		case c.origin == ofZone:
		case c.origin == ofRequest:
			requests++
			fallthrough
		default:
			foreign++
		}
	}
	own := numbers{}
	for _, of := range r.of {
		own.requests, own.zoned = own.requests+of.requests, own.zoned+of.zoned
	}
	if zoned != r.zoned || own.zoned != zoned || own.requests != requests {
		return fmt.Errorf("%d limits in zones and %d of requests; counted are %d, and of those who made them %+v", zoned,
			requests, r.zoned, own)
	}
	if requests != r.requests || foreign != r.foreign || len(taken) != len(r.shares) {
		return fmt.Errorf("%d limits of requests, %d foreign and %d shares; counted are %d, %d and %d", requests, foreign,
			len(taken), r.requests, r.foreign, len(r.shares))
	}
	for name, s := range r.shares {
		if got := [3]int64{s.keys.Load(), s.bytes.Load(), int64(s.ids)}; taken[name] == nil || got != *taken[name] {
			return fmt.Errorf("rule %s has %v counters, bytes and limits, counted are %v", name, taken[name], got)
		}
	}
	if len(r.byKey)+len(r.free) > maxLimits {
		return fmt.Errorf("%d numbers are in use and %d free", len(r.byKey), len(r.free))
	}
	for id := range slots {
		if l := r.limit(id); l == nil {
			return fmt.Errorf("limit %d is in use and has no number", id)
		}
	}
	return nil
}

// check verifies that the blocks in use, with their classes, and the free ones make up
// all chunks, and each lies in one.
func (s *slab) check(used map[uint32]uint8) error {
	have := s.chunks.Load()
	if have == nil {
		return nil
	}
	in, large := make(map[uint32]uint32), make(map[uint32]bool)
	for ref, class := range used {
		n := ref >> chunkBits
		if int(n) >= len(*have) || len((*have)[n]) < classWords(class) {
			return fmt.Errorf("block %d is in no chunk", ref)
		}
		if in[n]++; classWords(class) > chunkWords/2 {
			large[n] = true
		}
	}
	held, open := int64(0), make(map[uint32]uint8)
	for class := range s.open {
		for at, n := range s.open[class] {
			if _, twice := open[n]; twice || s.about[n].opened != at {
				return fmt.Errorf("chunk %d is listed wrongly", n)
			}
			open[n] = uint8(class)
		}
	}
	for i, c := range *have {
		held += int64(len(c)) * wordBytes
		if len(c) != chunkWords || large[uint32(i)] {
			continue
		}
		a, n := &s.about[i], uint32(i)
		class, listed := open[n]
		if a.used != in[n] || listed != (a.used < chunkUnits>>class) && listed {
			return fmt.Errorf("chunk %d has %d blocks, counted are %d (listed: %v)", i, in[n], a.used, listed)
		}
		if !listed {
			continue
		}
		free := uint32(0)
		for at := a.free; at != 0; free++ {
			ref := n<<chunkBits | (at-1)<<class
			if _, taken := used[ref]; taken || free > chunkUnits {
				return fmt.Errorf("block %d is free and in use, or free twice", ref)
			}
			at = uint32(s.block(ref, class)[0])
		}
		if a.cut != free+a.used {
			return fmt.Errorf("chunk %d: %d blocks are cut, %d used, %d free", i, a.cut, a.used, free)
		}
	}
	if held != s.held.Load() {
		return fmt.Errorf("chunks have %d bytes, counted are %d", held, s.held.Load())
	}
	return nil
}
