package resp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// tracer notes the spans of commands, and that the node was asked within each.
type tracer struct {
	decider
	mu    sync.Mutex
	spans []string
	asked []int // by span
}

type spanKey struct{}

func (o *tracer) Serve(ctx context.Context, method, parent, state string) (_ context.Context, _ string,
	end func(string)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.spans)
	o.spans, o.asked = append(o.spans, method+parent+state), append(o.asked, 0)
	return context.WithValue(ctx, spanKey{}, n), "", func(code string) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.spans[n] += fmt.Sprint(" ", code, " ", o.asked[n] > 0)
	}
}

func (o *tracer) within(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n, ok := ctx.Value(spanKey{}).(int); ok { // else it looks for a flush, for all that follows
		o.asked[n]++
	}
}

func (o *tracer) PeekBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision, peeks []bool) error {
	o.within(ctx)
	return o.decider.PeekBatchInto(ctx, rs, ds, peeks)
}

func (o *tracer) Reset(ctx context.Context, r limiter.Request) (int, error) {
	o.within(ctx)
	return o.decider.Reset(ctx, r)
}

// What the node decides for a client is within a span: that of a command alone, or of the
// checks that are decided together, with the code of the last reply. Other commands have none.
func TestTraces(t *testing.T) {
	var o *tracer
	f := start(t, func(s *Options) {
		o = &tracer{decider: s.Config.Decider.(decider)}
		s.Config.Decider, s.Config.Tracer = o, o
	})
	c := f.dial(t)
	for range 2 {
		c.ask("CL.THROTTLE k 0 1 60")
	}
	c.ask("PING")
	c.ask("WEIR.RESET /towns USER ada")
	c.ask("EVALSHA " + scriptAllowAtMost + " 1 k 5 5 60 3")
	c.send(strings.Repeat(encode("WEIR.CHECK /towns USER ada"), 2) + encode("PING"))
	for range 3 {
		c.read()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	want := []string{"RESP CL.THROTTLE OK true", "RESP CL.THROTTLE DENIED true", "RESP WEIR.RESET OK true",
		"RESP EVALSHA OK true", "RESP batch OK true"}
	if !slices.Equal(o.spans, want) {
		t.Errorf("spans %q, want %q", o.spans, want)
	}
}
