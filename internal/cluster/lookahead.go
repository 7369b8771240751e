package cluster

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// lookahead prefetches the counters of the keys that a frame updates, table.Ahead keys
// before they are applied, and the ids of its batches.
type lookahead struct {
	table   *table.Table
	frame   *peer.Frame
	batch   int    // batch of entry
	left    uint32 // keys of that batch still to come
	entry   int
	started bool
	ids     int // of the frame, that were prefetched
}

// next prefetches the given number of further keys; the first call table.Ahead more.
func (l *lookahead) next(keys int) {
	if !l.started {
		l.started = true
		keys += table.Ahead
		if len(l.frame.Batches) > 0 {
			l.left = l.frame.Batches[0].Keys
		}
	}
	for ; l.entry < len(l.frame.Entries); l.entry++ {
		e := &l.frame.Entries[l.entry]
		if !e.First {
			continue
		}
		for l.left == 0 {
			if l.batch++; l.batch >= len(l.frame.Batches) {
				return
			}
			l.left = l.frame.Batches[l.batch].Keys
		}
		if keys == 0 {
			return
		}
		keys--
		l.left--
		l.table.PrefetchKey(int(l.frame.Batches[l.batch].Partition), e.Hi)
	}
}

// nextIDs prefetches ids before batch i is applied, in two steps: where those of the batch lie that comes table.Ahead
// batches later, and what is read there for those of one half as far ahead, see [table.Table.PrefetchID]. Before the
// first batch it does so for all up to these.
func (l *lookahead) nextIDs(i int) {
	all, from := l.frame.Batches, i
	switch {
	case len(l.frame.IDs) == 0:
		return
	case i == 0:
		from = -table.Ahead
	}
	for ; from <= i; from++ {
		if next := from + table.Ahead; next < len(all) && all[next].IDs > 0 {
			l.table.PrefetchIDs(int(all[next].Partition))
		}
		next := from + table.Ahead/2
		if next < 0 || next >= len(all) {
			continue
		}
		for n := min(l.ids+int(all[next].IDs), len(l.frame.IDs)); l.ids < n; l.ids++ {
			l.table.PrefetchID(int(all[next].Partition), l.frame.IDs[l.ids].Hi)
		}
	}
}

// prefetch prefetches the counters of a check that this node is going to decide.
func (d *decider) prefetch(t *turn, charge *arith.Charge) {
	defer t.Catch()
	for i := range charge.Len() {
		k := charge.Key(i)
		if d.parts.owner(k) == t.c.self {
			id := table.PartitionOf(k)
			d.parts.touch(id)
			d.table.PrefetchKey(id, k.Hash.Hi)
			if charge.ID != nil && k.Cost > 0 {
				d.table.PrefetchIDs(id)
			}
		}
	}
}

// prefetchIDs prefetches the ids of a check that this node is going to decide, some checks after prefetch.
func (d *decider) prefetchIDs(t *turn, charge *arith.Charge) {
	if charge.ID == nil {
		return
	}
	defer t.Catch()
	for i := range charge.Len() {
		if k := charge.Key(i); k.Cost > 0 && d.parts.owner(k) == t.c.self {
			d.table.PrefetchID(table.PartitionOf(k), table.IDOf(k, charge.ID.ID).Hi)
		}
	}
}

func (in *intake) prefetch(keys []peer.Key, from, to int) {
	for i := from; i < min(to, len(keys)); i++ {
		k := &keys[i]
		id := table.PartitionOfHash(k.Lo, k.Closed)
		in.parts.touch(id)
		in.table.PrefetchKey(id, k.Hi)
	}
}
