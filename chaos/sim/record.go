package sim

import (
	"fmt"
	"io"

	"github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// The record of a run is what nodes do, as text: every event, every frame as the
// bytes of a link, and every answer to a client, each with its virtual time in
// milliseconds since the start. Two programs with equal records behave alike. It has
// no names that only the code uses, so that they may change: events are numbers. What
// leaves no frame, event or answer is not in it either: a timer that fires and does
// nothing, a wake-up that finds no frame.
//
// A record to be read has the lines of the trace as well, each after a #.

// recordLine writes one line of the record. An error of the writer fails the run.
func (w *World) recordLine(line string) {
	if _, err := io.WriteString(w.record, line+"\n"); err != nil {
		w.fail(fmt.Errorf("the record cannot be written: %w", err))
	}
}

// recordEvent writes an event, if there is a record.
func (w *World) recordEvent(n *Node, e cluster.Event, partition int) {
	if w.record != nil {
		w.recordLine(fmt.Sprintf("%11.3f %s event %d of %d", float64(w.now-epoch)/1000, n.name, int(e), partition))
	}
}

// recordFrame writes a frame that a node sends, if there is a record.
func (w *World) recordFrame(n *Node, to peer.Instance, b []byte) {
	if w.record != nil {
		w.recordLine(fmt.Sprintf("%11.3f %s => %s %x", float64(w.now-epoch)/1000, n.name, w.node(to).name, b))
	}
}

// recordAnswer writes the whole of a decision that a client gets, if there is a
// record.
func (w *World) recordAnswer(n *Node, d *limiter.Decision) {
	if w.record == nil {
		return
	}
	receipt := d.Receipt
	if arith.Fields(&receipt).Parts != nil { // the answers of the owners, in their frames, have those of the parts
		receipt = limiter.Receipt{}
	}
	line := fmt.Sprintf("%11.3f %s decides %q: allowed %t never %t shadow %t source %v wait %d block %t receipt "+
		"{Epoch:%d Time:%d Charged:%d Set:%d}",
		float64(w.now-epoch)/1000, n.name, d.Rule, d.Allowed, d.Never, d.ShadowDenied, d.Source, limiter.Span(d.RetryAfter),
		arith.BlockBegan(d),
		arith.Fields(&receipt).Epoch, arith.Fields(&receipt).Time, arith.Fields(&receipt).Charged, arith.Fields(&receipt).Set)
	for i := range d.Len() {
		l := d.Limit(i)
		line += fmt.Sprintf("; %s key %d/%d by %q: allowed %t never %t blocked %t overflow %t cost %d remaining %d reset "+
			"%d wait %d",
			l.FullName(), l.Key, l.KeyIndex, l.Owner, l.Allowed, l.Never, l.Blocked, l.Overflow, l.Cost, l.Remaining,
			limiter.Span(l.ResetAfter), limiter.Span(l.RetryAfter))
	}
	w.recordLine(line)
}
