package mesh

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Collector fills frames with counters for who has no link: a disk. The zero value with Counters is ready for use. It
// is not safe for concurrent use.
type Collector struct {
	Counters Counters

	// Frame is what was collected since the last Clear.
	Frame peer.Frame
	draft draft
}

// Keys adds the counters that keys of a partition have now, until the frame has about most bytes, and returns how
// many of the keys it has added: one at least. [Collector.Batch] makes a batch of them. at is the time of the counters.
func (c *Collector) Keys(partition uint16, keys []uint64, at limiter.Tick, most int) (n int) {
	d := &c.draft
	if d.visit == nil {
		d.visit = d.addEntry
	}
	d.ids, d.size = true, d.size+100
	for n < len(keys) && (n == 0 || c.Size() < most) {
		if next := n + table.Ahead; next < len(keys) {
			c.Counters.PrefetchKey(int(partition), keys[next])
		}
		d.frame, d.empty = &c.Frame, true
		c.Counters.ExportKey(int(partition), keys[n], at, d.visit)
		if d.empty {
			c.Frame.Entries = append(c.Frame.Entries, peer.Entry{Hi: keys[n], First: true, Gone: true})
		}
		n++
	}
	d.frame = nil
	return n
}

// Batch adds a batch of the last n keys.
func (c *Collector) Batch(b peer.Batch, n int) {
	b.Keys = uint32(n)
	c.Frame.Batches = append(c.Frame.Batches, b)
}

// Cut takes back all entries but the first n: those of a batch that did not come to its end.
func (c *Collector) Cut(n int) {
	clear(c.Frame.Entries[n:]) // their words
	c.Frame.Entries = c.Frame.Entries[:n]
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
