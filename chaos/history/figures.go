package history

import "slices"

// Figures are what a run was like for its clients.
type Figures struct {
	Asked, Allowed, Denied, ByPolicy, Refused, Unknown int
	// FaultLatency is how long after a fault began a check at a node that the fault did
	// not touch still got no answer, or one by policy, while the fault lasted. A
	// refusal counts for neither: the client asks another node.
	FaultLatency Micros
	// Recovered is how long after a fault was mended a check at any node did.
	Recovered Micros
	// Converged is how long after a fault was mended every node saw every other
	// and held what it should.
	Converged Micros
	// Excused is the part of the time, in percent, in which less is held against the
	// nodes, since the machine or one of them had stood still.
	Excused int
}

// Figures counts.
func (h *History) Figures() Figures {
	f := Figures{Asked: len(h.Ops)}
	for i := range h.Ops {
		o := &h.Ops[i]
		switch {
		case o.lost():
			f.Unknown++
		case o.Outcome == Refused:
			f.Refused++
		case o.ByPolicy():
			f.ByPolicy++
		case o.Outcome == Allowed:
			f.Allowed++
		default:
			f.Denied++
		}
		if !o.Counted() && o.Outcome != Refused {
			h.attribute(&f, o)
		}
	}
	f.Excused = h.excused()
	for i := range h.Faults {
		if t := &h.Faults[i]; t.Settled > 0 {
			f.Converged = max(f.Converged, t.Settled-t.Until)
		}
	}
	return f
}

// excused is the part of the time, in percent, in which something stood still, or had.
func (h *History) excused() int { return h.stoodSince(0) }

// stoodSince is the same of the time from then on.
func (h *History) stoodSince(from Micros) int {
	span, at := Micros(0), max(0, from)
	for _, t := range h.stood() {
		if until := min(t.Until, h.End); until > max(t.From, at) {
			span += until - max(t.From, at)
			at = until
		}
	}
	return int(100 * span / max(h.End-max(0, from), 1))
}

// attribute counts a check that was not decided for the latest fault before it.
func (h *History) attribute(f *Figures, o *Op) {
	var last *Fault
	for i := range h.Faults {
		if t := &h.Faults[i]; t.At <= o.Return && (last == nil || t.At > last.At) {
			last = t
		}
	}
	switch {
	case last == nil:
	case o.Call < last.Until:
		if !slices.Contains(last.Nodes, o.Node) {
			f.FaultLatency = max(f.FaultLatency, o.Return-last.At)
		}
	default:
		f.Recovered = max(f.Recovered, o.Return-last.Until)
	}
}
