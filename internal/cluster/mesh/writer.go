package mesh

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Writer is what one goroutine says to other members during one turn. A method for a
// message puts it into the frame for its member; it does nothing for this node itself
// and for instance 0. [Writer.Flush] tells the network at the end of the turn. A Writer
// may be used again for later turns.
type Writer struct {
	// Expects means that an answer is expected, so that a tick is needed, see
	// [Mesh.Watch]. The caller clears it.
	Expects bool

	mesh    *Mesh
	wakes   []*link // with frames for the network; those before done are nil
	done    int
	last    *link // the link to which a request was written last
	lost    []Lost
	replies replies
	acks    acks
}

// acks are acknowledgements for one member that will share a frame.
type acks struct {
	to   peer.Instance
	list []peer.Ack
}

// maxAcks is the most acknowledgements that are collected before they are sent.
const maxAcks = 256

// Lost is a request of this node that could not be delivered to a member: the member did
// not execute it.
type Lost struct {
	ID uint64
	To peer.Instance
}

// Begin starts a turn.
func (w *Writer) Begin(m *Mesh) { w.mesh = m }

// End ends a turn. What was written must have been flushed.
func (w *Writer) End() { w.last = nil }

// Pending reports whether anything waits for [Writer.Flush].
func (w *Writer) Pending() bool {
	return len(w.wakes)+len(w.acks.list)+len(w.replies.list)+len(w.lost) > 0
}

// Flush sends the collected acknowledgements and decisions, and then tells the network about one link with
// frames. It reports false if there is no such link.
func (w *Writer) Flush() bool {
	w.sendAcks()
	w.sendReplies()
	for w.done < len(w.wakes) {
		l := w.wakes[w.done]
		w.wakes[w.done] = nil // so that a panic does not leave it there
		w.done++
		if l != nil {
			w.flush(l)
			return true
		}
	}
	w.wakes, w.done = w.wakes[:0], 0
	return false
}

// Lost removes and returns the next request that could not be delivered.
func (w *Writer) Lost() (x Lost, ok bool) {
	if len(w.lost) == 0 {
		return Lost{}, false
	}
	x = w.lost[0]
	w.lost = w.lost[1:]
	return x, true
}

// wake records that a link has something to send. Its lock is held.
func (w *Writer) wake(l *link) {
	if !l.awake {
		l.awake = true
		w.wakes = append(w.wakes, l)
	}
}

// write runs add, under the lock of a member's link, on the control frame, or on the
// frame of bulk. bytes is roughly what add appends. expects means that an answer is
// expected. If add panics, the frame is restored.
func (w *Writer) write(to peer.Instance, bytes int, bulk, expects bool, add func(*draft, *peer.Frame)) {
	m := w.mesh
	if to == 0 || to == m.config.Self {
		return
	}
	l := m.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	d, f := l.out.frame(bulk, bytes, func() *peer.Frame { return m.frame(to) })
	before, whole := *f, false
	defer func() {
		if !whole {
			*f = before
			d.forget()
		}
	}()
	add(d, f)
	whole = true
	l.line.expects = l.line.expects || expects
	w.wake(l)
	w.Expects = w.Expects || expects
}

// Announce says who owns a partition.
func (w *Writer) Announce(to peer.Instance, a peer.Announce) {
	w.write(to, 40, false, false, func(_ *draft, f *peer.Frame) { f.Announces = append(f.Announces, a) })
}

// Claim sends a claim or a question. expects means that an answer is expected.
func (w *Writer) Claim(to peer.Instance, c peer.Claim, expects bool) {
	w.write(to, 40, false, expects, func(_ *draft, f *peer.Frame) { f.Claims = append(f.Claims, c) })
}

// Answer answers a claim or a question.
func (w *Writer) Answer(to peer.Instance, a peer.Answer) {
	w.write(to, 120, false, false, func(_ *draft, f *peer.Frame) { f.Answers = append(f.Answers, a) })
}

// Revoke sends a revocation. expects means that an answer is expected.
func (w *Writer) Revoke(to peer.Instance, r peer.Revoke, expects bool) {
	w.write(to, 40, false, expects, func(_ *draft, f *peer.Frame) { f.Revokes = append(f.Revokes, r) })
}

// Ack acknowledges a batch or a revocation. Acknowledgements for one member share a frame,
// which is sent at the end of the turn or earlier.
func (w *Writer) Ack(to peer.Instance, a peer.Ack) {
	if q := &w.acks; q.to != to || len(q.list) == maxAcks {
		w.sendAcks()
		q.to = to
	}
	w.acks.list = append(w.acks.list, a)
}

// sendAcks puts the collected acknowledgements into a frame.
func (w *Writer) sendAcks() {
	list := w.acks.list
	if len(list) == 0 {
		return
	}
	w.acks.list = list[:0] // first, so that a panic does not make them be sent for ever
	w.write(w.acks.to, 60*len(list), false, false, func(_ *draft, f *peer.Frame) { f.Acks = append(f.Acks, list...) })
}

// Status sends a reply without a decision.
func (w *Writer) Status(to peer.Instance, r peer.Reply) {
	w.write(to, 60, false, false, func(_ *draft, f *peer.Frame) { f.Replies = append(f.Replies, r) })
}

// Known says what this node knows of members.
func (w *Writer) Known(to peer.Instance, known []peer.Known) {
	w.write(to, 64*len(known), false, false, func(_ *draft, f *peer.Frame) { f.Known = append(f.Known, known...) })
}

// Name sends the name of a key. It is dropped if too many names are in the frame.
func (w *Writer) Name(to peer.Instance, n peer.Name) {
	w.write(to, 32+len(n.Text), false, false, func(_ *draft, f *peer.Frame) {
		if len(f.Names) < maxNames {
			f.Names = append(f.Names, n)
		}
	})
}

// SendNote sends a note to a member in direct reach. It reports false if the member is not, or has too many notes to
// take.
func (w *Writer) SendNote(to peer.Instance, n peer.Note) (sent bool) {
	if !w.mesh.Reachable(to) || w.mesh.link(to).notes() >= maxNoteFrames {
		return false
	}
	w.write(to, 32+len(n.Text), true, false, func(_ *draft, f *peer.Frame) {
		if sent = len(f.Notes) < maxNotes; sent {
			f.Notes = append(f.Notes, n)
		}
	})
	return sent
}

// Spread says what is new about members to all that are in direct reach, but for those that know it; nil: none does.
func (w *Writer) Spread(news []peer.Known, knows func(peer.Instance) bool) {
	if len(news) == 0 {
		return
	}
	for _, l := range w.mesh.links.Load().list {
		if l.up.Load() && (knows == nil || !knows(l.to)) {
			w.Known(l.to, news)
		}
	}
}

// Expelled says which members are expelled.
func (w *Writer) Expelled(to peer.Instance, all []peer.Expulsion) {
	w.write(to, 128*len(all), false, false, func(_ *draft, f *peer.Frame) { f.Expelled = append(f.Expelled, all...) })
}

// SpreadExpelled says which members are expelled to all that are in direct reach, except one.
func (w *Writer) SpreadExpelled(news []peer.Expulsion, except peer.Instance) {
	for _, l := range w.mesh.links.Load().list {
		if l.up.Load() && l.to != except {
			w.Expelled(l.to, news)
		}
	}
}

// Batch sends a batch with the ids that came after a number, and the counters that the given keys have now. at is the
// time of the counters. An answer is expected. The parts of a snapshot or a push go after
// everything else.
func (w *Writer) Batch(to peer.Instance, b *peer.Batch, keys []uint64, after uint64, at limiter.Tick) {
	bytes, bulk := 100+100*len(keys), false
	if b.Kind == peer.Snapshot || b.Kind == peer.Push {
		bytes, bulk = 100+60*len(keys), true
	}
	counters, id := w.mesh.config.Counters, int(b.Partition)
	w.write(to, bytes, bulk, true, func(d *draft, f *peer.Frame) {
		for i := range min(table.Ahead, len(keys)) {
			counters.PrefetchKey(id, keys[i])
		}
		if b.Keys, b.IDs = uint32(len(keys)), 0; after != table.NoIDs { // before their keys, see Charged
			entries, ids := w.mesh.addIDs(d, f, b.Partition, after, at, w.mesh.lends(to))
			b.Keys, b.IDs = b.Keys+entries, ids
		}
		for i, hi := range keys {
			if next := i + table.Ahead; next < len(keys) {
				counters.PrefetchKey(id, keys[next])
			}
			w.mesh.addKey(d, f, b.Partition, hi, at)
		}
		f.Batches = append(f.Batches, *b)
	})
}

// addKey appends the counters of a key to a frame.
func (m *Mesh) addKey(d *draft, f *peer.Frame, partition uint16, hi uint64, at limiter.Tick) {
	if m.config.Fault != nil {
		m.config.Fault(partition)
	}
	if d.visit == nil {
		d.visit = d.addEntry
	}
	d.frame, d.empty = f, true
	m.config.Counters.ExportKey(int(partition), hi, at, d.visit)
	if d.empty {
		f.Entries = append(f.Entries, peer.Entry{Hi: hi, First: true, Gone: true})
	}
	d.frame = nil
}

// addIDs appends the ids that came to a partition after a number, and returns how many: as keys unless
// apart, for a member that speaks an earlier version.
func (m *Mesh) addIDs(d *draft, f *peer.Frame, partition uint16, after uint64, at limiter.Tick,
	apart bool) (entries, ids uint32) {
	if d.visitID == nil {
		d.visitID, d.visitKey = d.addID, d.addIDEntry
	}
	visit := d.visitID
	if !apart {
		visit = d.visitKey
	}
	hadEntries, hadIDs := len(f.Entries), len(f.IDs)
	d.frame = f
	m.config.Counters.ExportIDs(int(partition), after, at, visit)
	d.frame = nil
	entries, ids = uint32(len(f.Entries)-hadEntries), uint32(len(f.IDs)-hadIDs)
	d.size += 60*int(entries) + 40*int(ids)
	return entries, ids
}

func (d *draft) addID(i table.ID) {
	d.frame.IDs = append(d.frame.IDs, peer.ID{Hi: i.Hi, Lo: i.Lo, Time: int64(i.State.Time), Until: int64(i.State.Until),
		A: i.State.A, B: i.State.B})
}

// addIDEntry appends an id as a key.
func (d *draft) addIDEntry(i table.ID) {
	if d.ofIDs == nil {
		d.ofIDs = arith.RememberedLimit()
	}
	d.empty = true
	d.addEntry(table.Entry{Hi: i.Hi, Lo: i.Lo, Limit: d.ofIDs, State: i.State})
}

// lends reports whether a member speaks [peer.LeaseWire].
func (m *Mesh) lends(to peer.Instance) bool {
	v := m.config.View()
	if v.Speaks(peer.LeaseWire) {
		return true
	}
	member := v.Member(to)
	return member != nil && member.Wire >= peer.LeaseWire
}

// addEntry appends a counter of the present key.
func (d *draft) addEntry(e table.Entry) {
	d.frame.Entries = append(d.frame.Entries, peer.Entry{
		Hi: e.Hi, Lo: e.Lo, Limit: d.limitIndex(d.frame, e.Limit), First: d.empty,
		Time: int64(e.State.Time), Until: int64(e.State.Until), A: e.State.A, B: e.State.B,
		Words: append([]uint64(nil), e.Words...),
	})
	d.size += 8 * len(e.Words)
	d.empty = false
}
