package table

// give assigns a block of words to a slot that has none.
func (p *partition) give(s *slot, ref uint32, class uint8) {
	s.words, s.class = ref, class|s.class&charged
	bytes := int64(classWords(class)) * wordBytes
	p.countWords(s.limit, bytes)
	if !p.sentWords(s, bytes) {
		p.belongsBytes(keyLo(s.lo, p.table.registry.limit(s.limit)), bytes)
	}
}

// free returns the words of a slot to the slab.
func (p *partition) free(s *slot) {
	if s.words != 0 {
		p.table.room.slab.put(s.words, s.sizeClass())
		s.words = 0
		bytes := int64(classWords(s.sizeClass())) * wordBytes
		p.countWords(s.limit, -bytes)
		if !p.sentWords(s, -bytes) {
			p.belongsBytes(keyLo(s.lo, p.table.registry.limit(s.limit)), -bytes)
		}
	}
}

// countWords adds bytes, which may be negative, to the count of words of a limit's
// counters.
func (p *partition) countWords(limit uint16, bytes int64) {
	p.table.copies[p.number].words += bytes
	if c := p.table.registry.count(limit); c != nil {
		c.share.add(0, bytes)
	}
}
