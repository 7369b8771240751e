package table

// give assigns a block of words to a slot that has none.
func (t *Table) give(p *partition, s *slot, ref uint32, class uint8) {
	s.words, s.class = ref, class
	bytes := int64(classWords(class)) * wordBytes
	t.countWords(p, s.limit, bytes)
	if !t.sentWords(p, s, bytes) {
		t.belongsBytes(p, t.keyOf(s.lo, t.registry.limit(s.limit)), bytes)
	}
}

// free returns the words of a slot to the slab.
func (t *Table) free(p *partition, s *slot) {
	if s.words != 0 {
		t.slab.put(s.words, s.class)
		s.words = 0
		bytes := int64(classWords(s.class)) * wordBytes
		t.countWords(p, s.limit, -bytes)
		if !t.sentWords(p, s, -bytes) {
			t.belongsBytes(p, t.keyOf(s.lo, t.registry.limit(s.limit)), -bytes)
		}
	}
}

// countWords adds bytes, which may be negative, to the count of words of a limit's
// counters.
func (t *Table) countWords(p *partition, limit uint16, bytes int64) {
	t.copies[p.number].words += bytes
	if c := t.registry.count(limit); c != nil {
		c.share.add(0, bytes)
	}
}
