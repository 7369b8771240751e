package mesh

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Collector fills frames with counters for who has no link: a disk. The zero value with Counters is ready for use. It
// is not safe for concurrent use.
type Collector struct {
	Counters *table.Table

	// Frame is what was collected since the last Clear.
	Frame peer.Frame
	draft draft
}

// Keys adds the counters that keys of a partition have now, until the frame has about most bytes, and returns how
// many of the keys it has added: one at least. [Collector.Batch] makes a batch of them. at is the time of the counters.
func (c *Collector) Keys(partition uint16, keys []uint64, at limiter.Tick, most int) (n int) {
	d := c.begin()
	for n < len(keys) && (n == 0 || c.Size() < most) {
		if next := n + table.Ahead; next < len(keys) {
			c.Counters.PrefetchKey(int(partition), keys[next])
		}
		d.empty = true
		c.Counters.ExportKey(int(partition), keys[n], at, d.visit)
		c.end(keys[n])
		n++
	}
	d.frame = nil
	return n
}

// begin begins to add the counters of keys.
func (c *Collector) begin() *draft {
	d := &c.draft
	if d.visit == nil {
		d.visit = d.addEntry
	}
	d.frame, d.size = &c.Frame, d.size+100
	return d
}

func (c *Collector) end(hi uint64) {
	if c.draft.empty {
		c.Frame.Entries = append(c.Frame.Entries, peer.Entry{Hi: hi, First: true, Gone: true})
	}
}

// lookedAt is at how many keys [Collector.Charged] looks for each that it may add: that takes a short time.
const lookedAt = 8

// Charged is Keys for those of a partition that were charged since the last call, or for all, up to so many of them,
// from a place on, see [table.ExportCharged]. It adds none if it has looked at many others.
func (c *Collector) Charged(partition uint16, from uint64, all bool, at limiter.Tick, keys, most int) (
	n int, next uint64, more bool) {
	d := c.begin()
	looked, last := 0, uint64(0)
	d.empty = false
	next, more = c.Counters.ExportCharged(int(partition), from, at, func(hi uint64, is bool) (yes, stop bool) {
		c.end(last)
		if d.empty = false; looked == lookedAt*keys || n == keys || n > 0 && c.Size() >= most {
			return false, true
		}
		looked++
		if yes = all || is; yes {
			last, d.empty = hi, true
			n++
		}
		return yes, false
	}, d.visit)
	c.end(last)
	d.frame = nil
	return n, next, more
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
