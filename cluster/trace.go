package cluster

import (
	"context"

	"github.com/weirlimit/weir/limiter/arith"
)

// Tracer records spans of checks that are traced: weir.forward while another member is to decide a
// check, weir.decide while a member decides one, weir.wait_for_heir while a reply waits for the
// heir's acknowledgement, and weir.batch for the checks of a batch, of which 16 are traced
// further. Its methods are called from many goroutines, under locks, and must not block.
type Tracer interface {
	// Parent returns the span that the context of a check belongs to, nil if the check is not
	// traced.
	Parent(ctx context.Context) *arith.TraceContext
	// Start begins a span below parent, which another member may have begun. It returns what
	// names the span, and its end. A second call of the end must do nothing.
	Start(parent *arith.TraceContext, name string) (own *arith.TraceContext, end func())
}
