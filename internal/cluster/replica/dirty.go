package replica

// dirtyKey is a key with changes that some copy lacks. old and new are the units that
// were answered and that the heir has not acknowledged: new those of the batch newSeq,
// old those of earlier batches, up to oldSeq.
type dirtyKey struct {
	hi       uint64
	last     uint64 // stamp of the last change
	oldSeq   uint64
	newSeq   uint64
	old, new uint64
}

// dirtyKeys are the dirty keys of a partition, in the order of their first change. A
// pointer to one is valid until a key is added or dropped.
type dirtyKeys struct {
	list []dirtyKey
	// index is a hash table with linear probing: each slot has a key's index in list
	// plus 1, or 0 if it is free. It is not used for up to fewDirty keys. Its length is
	// a power of two, at least twice that of list.
	index []int32
}

// fewDirty is the number of keys up to which a scan of list is faster than the index.
const fewDirty = 6

const leastIndex = 32

// find returns a key, or nil. The pointer is valid until a key is added or dropped.
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

// add adds a key that is not in the list yet.
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

// keep drops the keys for which stays returns false.
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

// clear drops all keys.
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

// enter adds the i-th key to the index, which must have a free slot.
func (d *dirtyKeys) enter(i int) {
	mask := uint64(len(d.index) - 1)
	at := d.list[i].hi & mask
	for d.index[at] != 0 {
		at = (at + 1) & mask
	}
	d.index[at] = int32(i + 1)
}

// Behind reports whether so many keys and ids have changed that no check with an id is decided
// until the heir has them: all of them go into one frame.
func (o *changes) Behind() bool { return len(o.dirty.list)+o.ids.charges() >= maxChanged }

// unacknowledged returns how many units a key has answered that the heir has not
// acknowledged.
func (d *dirtyKeys) unacknowledged(hi uint64) uint64 {
	if k := d.find(hi); k != nil {
		return k.old + k.new
	}
	return 0
}

// acknowledged records that the heir has all changes up to seq.
func (d *dirtyKeys) acknowledged(seq uint64) {
	for i := range d.list {
		k := &d.list[i]
		if k.oldSeq <= seq {
			k.old = 0
		}
		if k.newSeq <= seq {
			k.old, k.new = 0, 0
		}
	}
}

// forget drops the keys whose changes every copy has: those up to seq.
func (d *dirtyKeys) forget(seq uint64) {
	d.keep(func(k *dirtyKey) bool { return k.last > seq || k.old+k.new > 0 })
}
