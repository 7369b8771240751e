package mesh

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// The bounds of what waits for one member.
const (
	maxFrame       = 192 << 10 // bytes of a control frame
	maxBulk        = 48 << 10  // bytes of a frame of snapshots
	maxRequests    = 1000      // checks in one frame
	maxNames       = 1000      // names of keys in one frame
	maxNotes       = 16        // notes in one frame
	maxNoteFrames  = 8         // full frames with notes
	maxFrames      = 1 << 12   // full frames, for each kind of frame
	maxControlSize = 64 << 20  // bytes of control messages
	maxRelayed     = 256       // frames to be relayed, by this node or by the member
	maxRelayedSize = 32 << 20  // bytes of frames of others that are to be relayed to the member
)

// outbox is what waits for one member. The lock of its link guards it.
type outbox struct {
	control  lane // everything except requests and bulk
	requests lane // checks and refunds
	bulk     lane // snapshots and pushes, sent after everything else

	controlSize int           // approximate bytes of the full control frames
	rule        *limiter.Rule // rule of the last check put into requests; nil if none
	ruleAt      uint16        // its index in the frame

	relayed     []*peer.Frame // frames of other members, to be relayed to this member
	relayedSize int           // approximate bytes of relayed
	carried     []*peer.Frame // frames to other members, to be relayed by this member
}

// lane is the frames of one kind: the full ones, oldest first, and the one that is being
// filled, nil if there is none.
type lane struct {
	full    []*peer.Frame
	filling *peer.Frame
	draft   draft // of filling
}

// draft describes a frame that is being filled.
type draft struct {
	size   int // in bytes, roughly
	limits map[*limiter.Limit]uint16
	last   *limiter.Limit // the limit that was added or found last
	lastAt uint16

	frame *peer.Frame       // where addEntry appends
	empty bool              // no entry was added for the present key
	visit func(table.Entry) // addEntry, bound once and not for each key
	// visitID is addID, or addIDEntry for a receiver that knows no ids but as keys.
	visitID, visitKey func(table.ID)
	ofIDs             *limiter.Limit // of those that are sent as keys; nil before the first
}

// forget clears the index of the frame's limits. Later ones are appended again.
func (d *draft) forget() {
	clear(d.limits)
	d.last = nil
}

// limitIndex returns the index of a limit in a frame, and appends the limit if
// necessary.
func (d *draft) limitIndex(f *peer.Frame, limit *limiter.Limit) uint16 {
	if d.last == limit {
		return d.lastAt
	}
	i, ok := d.limits[limit]
	if !ok {
		if d.limits == nil {
			d.limits = make(map[*limiter.Limit]uint16)
		}
		i = uint16(len(f.Limits))
		f.Limits = append(f.Limits, limitToPeer(limit))
		d.limits[limit] = i
	}
	d.last, d.lastAt = limit, i
	return i
}

// frame returns the control frame, or that of bulk, with room for the given number of
// bytes. create makes an empty frame.
func (o *outbox) frame(bulk bool, bytes int, create func() *peer.Frame) (*draft, *peer.Frame) {
	n, most := &o.control, maxFrame
	if bulk {
		n, most = &o.bulk, maxBulk
	}
	if n.filling != nil && n.draft.size+bytes > most {
		if bulk {
			o.closeBulk()
		} else {
			o.closeControl()
		}
	}
	if n.filling == nil {
		n.filling = create()
		n.draft.size = 0
		n.draft.forget()
	}
	n.draft.size += bytes
	return &n.draft, n.filling
}

// notes returns how many full frames have notes.
func (l *link) notes() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.out.bulk.full {
		if len(f.Notes) > 0 {
			n++
		}
	}
	return n
}

func (o *outbox) closeBulk() {
	if o.bulk.filling != nil && len(o.bulk.full) < maxFrames {
		o.bulk.full = append(o.bulk.full, o.bulk.filling)
	}
	o.bulk.filling = nil
}

func (o *outbox) closeControl() {
	if f := o.control.filling; f != nil && !f.Empty() {
		o.queue(f)
	}
	o.control.filling = nil
}

func (o *outbox) closeRequests() {
	if f := o.requests.filling; f != nil && !f.Empty() && len(o.requests.full) < maxFrames {
		o.requests.full = append(o.requests.full, f)
	}
	o.requests.filling = nil
}

// queue adds a frame to the full control frames. It reports false if there is no room: a
// member that asks much and reads nothing can make only a bounded amount wait. One frame
// is always accepted, however large the counter in it.
func (o *outbox) queue(f *peer.Frame) bool {
	size := weight(f)
	if n := len(o.control.full); n >= maxFrames || n > 0 && o.controlSize+size > maxControlSize {
		return false
	}
	o.control.full = append(o.control.full, f)
	o.controlSize += size
	return true
}

// accept queues a frame that a relay was to get, to be sent directly. It reports false
// if there is no room.
func (o *outbox) accept(f *peer.Frame) bool {
	if len(f.Checks)+len(f.Refunds) == 0 {
		return o.queue(f.Clone()) // other relays may have the same frame
	}
	if len(o.requests.full) >= maxFrames {
		return false
	}
	o.requests.full = append(o.requests.full, f)
	return true
}

// take removes and returns the next frame to send, nil if there is none.
func (o *outbox) take(requests bool) *peer.Frame {
	switch {
	case len(o.carried) > 0:
		return shift(&o.carried)
	case len(o.relayed) > 0:
		f := shift(&o.relayed)
		o.relayedSize -= weight(f)
		return f
	case len(o.control.full) > 0:
		f := shift(&o.control.full)
		o.controlSize -= weight(f)
		return f
	case o.control.filling != nil && !o.control.filling.Empty():
		return o.control.cut()
	case requests && len(o.requests.full) > 0:
		return shift(&o.requests.full)
	case requests && o.requests.filling != nil && !o.requests.filling.Empty():
		return o.requests.cut()
	case len(o.bulk.full) > 0:
		return shift(&o.bulk.full)
	case o.bulk.filling != nil:
		return o.bulk.cut()
	}
	return nil
}

// cut removes and returns the frame that is being filled.
func (n *lane) cut() *peer.Frame {
	f := n.filling
	n.filling = nil
	return f
}

func shift(q *[]*peer.Frame) *peer.Frame {
	f := (*q)[0]
	(*q)[0] = nil
	if *q = (*q)[1:]; len(*q) == 0 {
		*q = nil
	}
	return f
}

// all removes and returns all frames of this node, for relays: the connection is down.
func (o *outbox) all() []*peer.Frame {
	o.closeControl()
	o.closeRequests()
	o.closeBulk()
	out := slices.Concat(o.control.full, o.requests.full, o.bulk.full)
	o.control.full, o.requests.full, o.bulk.full, o.controlSize = nil, nil, nil, 0
	return out
}

// detour returns the frames to send by a relay because the connection is suspect.
// Control messages are sent both ways, as duplicates are harmless. Requests are sent
// only by the relay, as they must not be executed twice, if asks says that it takes them.
func (o *outbox) detour(asks bool) (carried []*peer.Frame) {
	if f := o.control.filling; f != nil && !f.Empty() {
		o.closeControl()
		if n := len(o.control.full); n > 0 {
			carried = append(carried, o.control.full[n-1].Clone())
		}
	}
	if !asks {
		return carried
	}
	o.closeRequests()
	carried = append(carried, o.requests.full...)
	o.requests.full = nil
	return carried
}

// queued returns how many frames wait.
func (o *outbox) queued() int {
	n := len(o.relayed) + len(o.carried)
	for _, of := range []*lane{&o.control, &o.requests, &o.bulk} {
		if n += len(of.full); of.filling != nil && !of.filling.Empty() {
			n++
		}
	}
	return n
}

// weight returns roughly how many bytes of memory a frame takes.
func weight(f *peer.Frame) int {
	n := 1<<10 + 40*len(f.IDs) +
		128*(len(f.Claims)+len(f.Answers)+len(f.Announces)+len(f.Revokes)+len(f.Batches)+len(f.Acks)+
			len(f.Checks)+len(f.Keys)+len(f.Refunds)+len(f.Replies)+len(f.Results)+len(f.Limits)+len(f.Known)+len(f.Entries))
	for i := range f.Entries {
		n += 8 * len(f.Entries[i].Words)
	}
	for i := range f.Rules {
		n += 128 * (1 + len(f.Rules[i].Limits))
	}
	for i := range f.Names {
		n += 64 + len(f.Names[i].Text)
	}
	for i := range f.Notes {
		n += 64 + len(f.Notes[i].Text)
	}
	for i := range f.Explained {
		for j := range f.Explained[i].Limits {
			l := &f.Explained[i].Limits[j]
			n += 128 + len(l.Arithmetic) + 64*len(l.State) + 24*len(l.Counts)
		}
	}
	return n
}
