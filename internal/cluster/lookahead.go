package cluster

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// lookahead prefetches the counters of the keys that a frame updates, table.Ahead keys
// before they are applied.
type lookahead struct {
	table   *table.Table
	frame   *peer.Frame
	limits  []*limiter.Limit // of the frame
	batch   int              // batch of entry
	left    uint32           // keys of that batch still to come
	entry   int
	started bool
	// ids are those among the last keys that are ids. They are prefetched in two steps, see [table.PrefetchID].
	ids [table.Ahead / 2]struct {
		part int
		hi   uint64
	}
	at uint // where the next key lies in ids
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
		part, id := int(l.frame.Batches[l.batch].Partition), &l.ids[l.at%uint(len(l.ids))]
		l.at++
		if id.hi != 0 {
			l.table.PrefetchID(id.part, id.hi)
		}
		id.part, id.hi = part, 0
		if int(e.Limit) < len(l.limits) && !e.Gone && l.limits[e.Limit].Algorithm() == arith.Remembered {
			id.hi = e.Hi
			l.table.PrefetchIDs(part)
		} else {
			l.table.PrefetchKey(part, e.Hi)
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

// prefetch prefetches the counters of keys[from:to].
func (in *intake) prefetch(keys []peer.Key, from, to int) {
	for i := from; i < min(to, len(keys)); i++ {
		k := &keys[i]
		id := table.PartitionOfHash(k.Lo, k.Closed)
		in.parts.touch(id)
		in.table.PrefetchKey(id, k.Hi)
	}
}
