package cluster

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter/arith"
)

// Tracer records spans. Its methods may be called from many goroutines, under a partition's
// lock, and must neither block nor call the core.
type Tracer interface {
	// Start begins a span below parent. It returns what names the span, for spans below it,
	// and its end. A second call of the end does nothing.
	Start(parent *arith.TraceContext, name string) (own *arith.TraceContext, end func())
}

// The names of spans.
const (
	SpanForward = "weir.forward"       // a check that another member is to decide, until it is decided
	SpanDecide  = "weir.decide"        // a check that this node decides, for its own caller or for another member
	SpanBatch   = "weir.batch"         // checks that are decided together, wherever
	SpanHeir    = "weir.wait_for_heir" // a reply that waits for the heir's acknowledgement
)

// maxTraced is how many checks of a batch are traced at other members.
const maxTraced = 16

// traced begins the span of a check of this node, and returns its end.
func (c *Core) traced(charge *arith.Charge) (end func()) {
	name := SpanForward
	if to, one := c.calls.Owner(charge); one && to == c.self {
		name = SpanDecide
	}
	charge.Trace, end = c.config.Tracer.Start(charge.Trace, name)
	return end
}

// tracedMany begins the span of a batch, of which the first charges have a trace, and returns
// its end.
func (c *Core) tracedMany(charges []arith.Charge) (end func()) {
	own, end := c.config.Tracer.Start(charges[0].Trace, SpanBatch)
	for i := range charges {
		charges[i].Trace = nil
		if i < maxTraced {
			charges[i].Trace = own
		}
	}
	return end
}

// traces begins the span of a check of another member, whose charge gets it. It returns the
// span's end; nil if this node does not trace.
func (t *turn) traces(charge *arith.Charge, from *peer.Trace) (end func()) {
	if t.c.config.Tracer == nil {
		return nil
	}
	parent := arith.TraceContext{TraceHi: from.TraceHi, TraceLo: from.TraceLo, Span: from.Span}
	charge.Trace, end = t.c.config.Tracer.Start(&parent, SpanDecide)
	return end
}
