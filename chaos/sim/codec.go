package sim

import (
	"fmt"

	"github.com/weirlimit/weir/internal/peer"
)

// Frames travel as the bytes of a link: a frame that the real codec does not take
// fails the run, and so does a node that goes on using the memory of a frame.

// maxSent bounds the bytes that the nodes send in a run. A run needs 6 MB at most.
const maxSent = 256 << 20

// encode returns the bytes of a frame that a node sends.
func (w *World) encode(n *Node, f *peer.Frame) []byte {
	var b []byte
	if k := len(w.buffers); k > 0 {
		b, w.buffers = w.buffers[k-1], w.buffers[:k-1]
	}
	w.frames++
	b, err := w.codec.Append(b[:0], f)
	if err != nil {
		w.fail(fmt.Errorf("%s sends a frame that cannot be encoded: %w", n.name, err))
	}
	if w.sent += len(b); w.sent > maxSent {
		w.fail(fmt.Errorf("the nodes have sent %d bytes: they repeat something without end", w.sent))
	}
	return b
}

// deliver hands a node the frame that bytes are, and takes the bytes back.
func (w *World) deliver(n *Node, from peer.Instance, b []byte) {
	err := w.codec.Read(b, func(f *peer.Frame) {
		if sender := f.From; !f.Relayed && sender != from || f.Relayed && f.Via != from {
			w.fail(fmt.Errorf("%s gets a frame of %s that says it is from %s", n.name, from, sender))
		}
		if w.watchPart > 0 {
			w.logf("      %s -> %s: for %s relayed %v n %d got %d checks %d replies %d batches %d acks %d claims %d",
				w.node(from).name, n.name,
				w.node(f.To).name, f.Relayed, f.Number, f.Got, len(f.Checks), len(f.Replies), len(f.Batches), len(f.Acks),
				len(f.Claims))
		}
		n.core.Deliver(f)
		scribble(f)
	})
	if err != nil {
		w.fail(fmt.Errorf("%s gets a frame of %s that a link refuses: %w", n.name, w.node(from).name, err))
	}
	w.buffers = append(w.buffers, b)
}

// scribble overwrites what a link uses again once a frame was delivered.
func scribble(f *peer.Frame) {
	for i := range f.Entries {
		for j := range f.Entries[i].Words {
			f.Entries[i].Words[j] = 0xdead_beef_dead_beef
		}
		f.Entries[i] = peer.Entry{Hi: 0xdead}
	}
	for i := range f.Keys {
		f.Keys[i] = peer.Key{Rule: 0xdead}
	}
	for i := range f.Batches {
		f.Batches[i] = peer.Batch{Partition: 0xdead}
	}
	for i := range f.Results {
		f.Results[i] = peer.Result{Never: true}
	}
}

// fail ends the run with the first thing that went wrong.
func (w *World) fail(err error) {
	if w.failed == nil {
		w.failed = err
	}
}
