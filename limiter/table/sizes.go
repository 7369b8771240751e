package table

// How many slots a partition has, and their memory.

// full reports whether the table should grow before another entry is added.
func (t *slots) full() bool { return t.used >= limitFor(t.even()) }

// even returns the number of slots without those that were added because entries
// crowded.
func (t *slots) even() int {
	if t.homes == 0 {
		return 0
	}
	return int(t.homes) + 1 + max(4, min(int(t.homes+1)/15, 24))
}

// limitFor returns the most entries in size slots: 85 %.
func limitFor(size int) int { return size * 85 / 100 }

// sizeFor returns the number of slots for so many entries. Above blockSlots an eighth is to spare.
func sizeFor(entries int) int {
	size := minSlots
	for size < blockSlots && limitFor(size) <= entries {
		size = roundUp(size + 1)
	}
	if limitFor(size) > entries {
		return size
	}
	slots := entries*100/85 + 1
	return roundUp(slots + slots/8)
}

// roundUp returns the next size of at least n slots: a power of two, above blockSlots a
// multiple of 2 KiB, and above oneMost whole blocks. The runtime allocates these with little waste.
func roundUp(n int) int {
	switch {
	case n > oneMost:
		return (n + blockSlots - 1) &^ (blockSlots - 1)
	case n > blockSlots:
		return (3*n + blockSlots - 1) / blockSlots * blockSlots / 3
	}
	size := minSlots
	for size < n {
		size *= 2
	}
	return size
}

// resize changes the numbers of slots and homes, and keeps the first n slots; n <=
// size.
func (t *slots) resize(size, n int) {
	switch {
	case size == t.size:
	case size <= oneMost || t.size <= oneMost:
		t.move(size, n)
	case size < t.size:
		t.drop(size >> blockBits)
	default:
		t.blocks = t.arena.blocks(t.blocks, size)
	}
	t.size = size
	t.homes = uint64(size - 1 - max(4, min(size/16, 24))) // see even
}

// move copies the first n slots to new memory for size slots.
func (t *slots) move(size, n int) {
	old, first := *t, size
	if size > oneMost {
		first = blockSlots
	}
	t.first = make([]slot, first)
	t.blocks = [][]slot{t.first}
	if size > oneMost {
		t.blocks = t.arena.blocks(t.blocks, size)
	}
	for i := copy(t.first, old.first[:min(n, len(old.first))]); i < n; i++ {
		*t.at(i) = *old.at(i)
	}
	t.arena.ordinary(len(t.first) - len(old.first))
	old.drop(1)
}

// drop releases all blocks but the first n, n >= 1.
func (t *slots) drop(n int) {
	if len(t.blocks) <= n {
		return
	}
	t.arena.release(t.blocks[n:])
	clear(t.blocks[n:])
	t.blocks = t.blocks[:n]
}
