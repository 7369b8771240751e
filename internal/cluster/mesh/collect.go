package mesh

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Collector fills frames with counters for who has no link: a disk. The zero value with Counters is ready for use. It
// is
// not safe for concurrent use.
type Collector struct {
	Counters Counters

	// Frame is what was collected since the last Clear.
	Frame peer.Frame
	draft draft
}

// Batch adds a batch with the counters that the given keys have now. at is the time of the counters.
func (c *Collector) Batch(b *peer.Batch, keys []uint64, at limiter.Tick) {
	d := &c.draft
	if d.visit == nil {
		d.visit = d.addEntry
	}
	d.ids, d.size = true, d.size+100
	for i, hi := range keys {
		if next := i + table.Ahead; next < len(keys) {
			c.Counters.PrefetchKey(int(b.Partition), keys[next])
		}
		d.frame, d.empty = &c.Frame, true
		c.Counters.ExportKey(int(b.Partition), hi, at, d.visit)
		if d.empty {
			c.Frame.Entries = append(c.Frame.Entries, peer.Entry{Hi: hi, First: true, Gone: true})
		}
	}
	d.frame = nil
	b.Keys = uint32(len(keys))
	c.Frame.Batches = append(c.Frame.Batches, *b)
}

// Size returns about how many bytes the frame takes.
func (c *Collector) Size() int { return c.draft.size + 60*len(c.Frame.Entries) }

// Clear empties the frame and keeps its memory.
func (c *Collector) Clear() {
	f := &c.Frame
	clear(f.Entries) // their words
	*f = peer.Frame{Entries: f.Entries[:0], Batches: f.Batches[:0], Limits: f.Limits[:0], Answers: f.Answers[:0]}
	c.draft.size = 0
	c.draft.forget()
}
