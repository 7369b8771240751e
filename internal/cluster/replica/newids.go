package replica

import "github.com/weirlimit/weir/limiter/table"

// newIDs are the ids of which some copy lacks that they came. The store has the ids of a partition in the order in
// which they came, and counts them. So the changes since a batch are those that came after a number: nothing is noted
// for each, and nothing is searched. An id that had its place already, or changes later, is a dirty key.
type newIDs struct {
	cuts []idCut // by ascending sequence: of batches that some copy lacks
	base uint64  // how many had come with the last batch that every copy has, or before
	n    int     // charges with new ids in the batches of cuts
	open int     // and in the batch that is being collected
	some bool    // an id may have come in that batch
}

// idCut is how many ids had come when a batch was closed, and how many charges with new ids are in it.
type idCut struct {
	seq, came uint64
	n         int
}

// start forgets all: no copy lacks an id, or each that will be made has them all.
func (d *newIDs) start(o *Ownership) {
	*d = newIDs{cuts: d.cuts[:0], base: o.node.Store.ExportIDs(int(o.id), 0, 0, nil)}
}

// cut records that the present sequence has all ids that came. It is not called for a batch without any.
func (d *newIDs) cut(o *Ownership) {
	d.cuts = append(d.cuts, idCut{o.held.seq, o.node.Store.ExportIDs(int(o.id), 0, 0, nil), d.open})
	d.n, d.open, d.some = d.n+d.open, 0, false
}

// charges returns how many charges with new ids some copy lacks.
func (d *newIDs) charges() int { return d.n + d.open }

// after returns the number after which the ids came that a copy lacks which has the batches up to seq.
func (d *newIDs) after(seq uint64) uint64 {
	after, some := d.base, false
	for _, c := range d.cuts {
		if c.seq <= seq {
			after = c.came
		} else if c.n > 0 {
			some = true
		}
	}
	if !some {
		return table.NoIDs // others are dirty keys
	}
	return after
}

// forget drops the ids that every copy has: those of batches up to seq.
func (d *newIDs) forget(seq uint64) {
	i := 0
	for ; i < len(d.cuts) && d.cuts[i].seq <= seq; i++ {
		d.base = d.cuts[i].came
		d.n -= d.cuts[i].n
	}
	d.cuts = append(d.cuts[:0], d.cuts[i:]...)
}

// forgetCopied drops the changes that every copy has.
func (o *Ownership) forgetCopied() {
	copied := o.copied()
	o.dirty.forget(copied)
	o.ids.forget(copied)
}
