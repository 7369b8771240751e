package cluster

// dirtyKey is a key with changes that some copy lacks, and the cost that was
// answered and that the heir has not acknowledged: in two parts by their
// stamps.
type dirtyKey struct {
	hi       uint64
	last     uint64 // stamp of the last change
	oldSeq   uint64
	newSeq   uint64
	old, new uint64
}

// dirtyKeys are those of a partition, in the order in which they changed first. A
// pointer to one is good until the next is added or dropped.
type dirtyKeys struct {
	list []dirtyKey
	// index has the place of each key in list, and one more, where its hash falls or
	// in the next places that were free; 0: nothing. There is none for a few keys.
	// Its length is a power of two, twice that of list at least.
	index []int32
}

// fewDirty are looked through sooner than an index.
const fewDirty = 6

const leastIndex = 32

// find returns a key, or nil. What is found or added in between makes the pointer
// invalid.
func (d *dirtyKeys) find(hi uint64) *dirtyKey {
	if len(d.list) <= fewDirty {
		for i := range d.list {
			if d.list[i].hi == hi {
				return &d.list[i]
			}
		}
		return nil
	}
	mask := uint64(len(d.index) - 1)
	for at := hi & mask; ; at = (at + 1) & mask {
		i := d.index[at]
		if i == 0 {
			return nil
		}
		if k := &d.list[i-1]; k.hi == hi {
			return k
		}
	}
}

// add adds a key that is not there.
func (d *dirtyKeys) add(k dirtyKey) *dirtyKey {
	d.list = append(d.list, k)
	switch n := len(d.list); {
	case n <= fewDirty:
	case n == fewDirty+1 || 2*n > len(d.index):
		d.rebuild()
	default:
		d.enter(n - 1)
	}
	return &d.list[len(d.list)-1]
}

// keep drops those that need not stay.
func (d *dirtyKeys) keep(stays func(*dirtyKey) bool) {
	n := 0
	for i := range d.list {
		if stays(&d.list[i]) {
			if n != i {
				d.list[n] = d.list[i]
			}
			n++
		}
	}
	if n == len(d.list) {
		return
	}
	d.list = d.list[:n]
	if n > fewDirty {
		d.rebuild()
	}
}

// clear drops all of them.
func (d *dirtyKeys) clear() { d.list = d.list[:0] }

func (d *dirtyKeys) rebuild() {
	size := leastIndex
	for size < 3*len(d.list) {
		size *= 2
	}
	if size > cap(d.index) {
		d.index = make([]int32, size)
	} else {
		d.index = d.index[:size]
		clear(d.index)
	}
	for i := range d.list {
		d.enter(i)
	}
}

// enter puts the i-th key into the index, which has room.
func (d *dirtyKeys) enter(i int) {
	mask := uint64(len(d.index) - 1)
	at := d.list[i].hi & mask
	for d.index[at] != 0 {
		at = (at + 1) & mask
	}
	d.index[at] = int32(i + 1)
}
