package transport_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// asks counts the calls that a node gets.
type asks struct {
	*weir.Node
	alone, together atomic.Int64
}

func (a *asks) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	a.alone.Add(1)
	return a.Node.CheckInto(ctx, r, d)
}

func (a *asks) PeekInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	a.alone.Add(1)
	return a.Node.PeekInto(ctx, r, d)
}

func (a *asks) PeekBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision, peeks []bool) error {
	a.together.Add(1)
	return a.Node.PeekBatchInto(ctx, rs, ds, peeks)
}

// plain hides what a decider can do besides the methods of a Decider.
type plain struct{ transport.Decider }

// TestPeeksAreAskedTogether: a message with peeks is one question to the node, as one with
// checks only is. A decider that cannot take it so is asked one by one, to the same effect.
func TestPeeksAreAskedTogether(t *testing.T) {
	const n = 50
	for _, together := range []bool{true, false} {
		by := new(asks)
		s := newServer(t, fixed, func(o *transport.Options) {
			by.Node = o.Decider.(*weir.Node)
			o.Decider = by
			if !together {
				o.Decider = plain{by}
			}
		})
		asked := func(what string, allowed int) {
			t.Helper()
			if allowed != n {
				t.Errorf("%s: %d of %d are allowed", what, allowed, n)
			}
			alone, all := by.alone.Swap(0), by.together.Swap(0)
			if together && (alone != 0 || all != 1) || !together && (alone != n || all != 0) {
				t.Errorf("%s, together %t: the node was asked %d times for one and %d times for all", what, together, alone, all)
			}
		}
		columns, err := s.api.CheckStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := columns.Send(&weirv1.CheckColumns{Costs: make([]int64, n), RuleCosts: many(n), Peek: true}); err != nil {
			t.Fatal(err)
		}
		out, err := columns.Recv()
		if err != nil {
			t.Fatal(err)
		}
		allowed := 0
		for _, f := range out.GetFlags() {
			allowed += int(f) & int(weirv1.DecisionFlag_DECISION_FLAG_ALLOWED)
		}
		asked("columns", allowed)

		// Of the others every second one is a check, of another user.
		batch := &weirv1.CheckBatchRequest{}
		var body []string
		for i := range n {
			batch.Checks = append(batch.Checks, &weirv1.CheckRequest{User: fmt.Sprint("grpc", i), Peek: i%2 == 0})
			body = append(body, fmt.Sprintf(`{"user":"http%d","peek":%t}`, i, i%2 == 0))
		}
		got, err := s.api.CheckBatch(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		allowed = 0
		for _, r := range got.GetResults() {
			if r.GetDecision().GetAllowed() {
				allowed++
			}
		}
		asked("a batch over gRPC", allowed)
		reply := s.post(t, "/v1/check/batch", `{"checks":[`+strings.Join(body, ",")+`]}`)
		asked("a batch over HTTP", strings.Count(reply.body, `"allowed":true`))
		if keys := s.node.Stats().Keys; keys != n {
			t.Errorf("%d keys are counted, want one for each of the %d checks", keys, n)
		}
	}
}

// many returns the first n numbers.
func many(n uint32) (out []uint32) {
	for i := range n {
		out = append(out, i)
	}
	return out
}
