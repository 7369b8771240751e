package cluster

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// The methods of this file put one message each into the frame for a member. They do
// nothing for this node itself and for instance 0. asks means that an answer is
// expected.

func (c *Core) sendAnnounce(t *turn, to peer.Instance, a peer.Announce) {
	c.send(t, to, 40, false, func(_ *link, f *peer.Frame) { f.Announces = append(f.Announces, a) })
}

func (c *Core) sendClaim(t *turn, to peer.Instance, q peer.Claim, asks bool) {
	c.send(t, to, 40, asks, func(_ *link, f *peer.Frame) { f.Claims = append(f.Claims, q) })
}

func (c *Core) sendAnswer(t *turn, to peer.Instance, a peer.Answer) {
	c.send(t, to, 120, false, func(_ *link, f *peer.Frame) { f.Answers = append(f.Answers, a) })
}

func (c *Core) sendRevoke(t *turn, to peer.Instance, r peer.Revoke, asks bool) {
	c.send(t, to, 40, asks, func(_ *link, f *peer.Frame) { f.Revokes = append(f.Revokes, r) })
}

func (c *Core) sendAck(t *turn, to peer.Instance, a peer.Ack) {
	c.send(t, to, 60, false, func(_ *link, f *peer.Frame) { f.Acks = append(f.Acks, a) })
}

// sendStatus sends a reply without a decision.
func (c *Core) sendStatus(t *turn, to peer.Instance, r peer.Reply) {
	c.send(t, to, 60, false, func(_ *link, f *peer.Frame) { f.Replies = append(f.Replies, r) })
}

// sendBatch sends a batch with the counters that the given keys have now. The parts of a
// snapshot or a push go after everything else.
func (c *Core) sendBatch(t *turn, to peer.Instance, b *peer.Batch, keys []uint64) {
	add := func(l *link, f *peer.Frame) {
		for i := range min(table.Ahead, len(keys)) {
			c.table.PrefetchKey(int(b.Partition), keys[i])
		}
		for i, hi := range keys {
			if next := i + table.Ahead; next < len(keys) {
				c.table.PrefetchKey(int(b.Partition), keys[next])
			}
			l.addKey(t, b.Partition, f, hi)
		}
		b.Keys = uint32(len(keys))
		f.Batches = append(f.Batches, *b)
	}
	if b.Kind == peer.Snapshot || b.Kind == peer.Push {
		c.sendLarge(t, to, 100+60*len(keys), add)
		return
	}
	c.send(t, to, 100+100*len(keys), true, add)
}

// addKey appends the counters of a key to a frame; l.mu is held.
func (l *link) addKey(t *turn, partition uint16, f *peer.Frame, hi uint64) {
	t.c.fault(partition)
	first := true
	t.c.table.ExportKey(int(partition), hi, t.at, func(e table.Entry) {
		f.Entries = append(f.Entries, peer.Entry{
			Hi: e.Hi, Lo: e.Lo, Limit: l.limitIndex(f, e.Limit), First: first,
			Time: int64(e.State.Time), Until: int64(e.State.Until), A: e.State.A, B: e.State.B,
			Words: append([]uint64(nil), e.Words...),
		})
		l.draft.size += 8 * len(e.Words)
		first = false
	})
	if first {
		f.Entries = append(f.Entries, peer.Entry{Hi: hi, First: true, Gone: true})
	}
}

// limitIndex returns the index of a limit in a frame, and appends the limit if
// necessary. l.mu is held.
func (l *link) limitIndex(f *peer.Frame, lim *limiter.Limit) uint16 {
	d := l.draft
	if d.last == lim {
		return d.lastAt
	}
	i, ok := d.limits[lim]
	if !ok {
		if d.limits == nil {
			d.limits = make(map[*limiter.Limit]uint16)
		}
		i = uint16(len(f.Limits))
		f.Limits = append(f.Limits, limitToPeer(lim))
		d.limits[lim] = i
	}
	d.last, d.lastAt = lim, i
	return i
}
