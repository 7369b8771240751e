package table

import "github.com/weirlimit/weir/limiter"

// ExportCharged is [Table.Export] for counters of a partition from a place on, without ids: 0 is the first place, and
// next is where to go on if there are more. want is called once for each key, before its counters are visited, with the
// high half of its hash, and whether a check has charged it since the last export by ExportCharged. With stop the call
// ends before that key; otherwise yes says whether its counters are visited, of which none may count any more. want
// must not call the table either.
func (t *Table) ExportCharged(part int, from uint64, now limiter.Tick, want func(hi uint64, is bool) (yes, stop bool),
	visit func(Entry)) (next uint64, more bool) {
	p, err := t.partition(part)
	if err != nil {
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	p.arriveAll(now)
	for i := p.slots.home(from); i < p.slots.size; {
		s := p.slots.at(i)
		if s.limit == 0 || s.place < from {
			i++
			continue
		}
		place, end, is := s.place, i, uint8(0)
		for ; s.limit != 0 && s.place == place; s = p.slots.at(end) {
			is |= s.class & charged
			end++
		}
		yes, stop := want(t.order.hash(place), is != 0)
		if stop {
			return place, true
		}
		for ; i < end; i++ {
			if s = p.slots.at(i); yes {
				s.class &^= charged
				p.export(s, now, visit)
			}
		}
	}
	return 0, false
}
