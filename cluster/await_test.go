package cluster_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

const closedHundred = `version: 1
defaults: {on_unreachable: closed}
rules: [{name: towns, match: {path: "^/towns"}, limits: [{name: day, limit: 100, window: 1d, algorithm: fixed_window, align: first_hit}]}]
`

// cutOff opens two members that see each other by gossip and have no link: what one owns
// the other cannot take over, as that takes a majority under closed. It returns one of
// them, and a request about a key of the other's.
func cutOff(t *testing.T, deadline time.Duration) (*weir.Node, *weir.Request) {
	t.Helper()
	if raceDetector {
		t.Skip("long under the race detector; make wire runs it")
	}
	a := memberConfig("node-1", closedHundred)
	part(a).Deadline = deadline
	first := open(t, a)
	second := open(t, memberConfig("node-2", closedHundred, gossipAddr(first)))
	together(t, []*weir.Node{first, second})
	r := &weir.Request{Path: "/towns"}
	var d weir.Decision
	for u := 'a'; ; u++ {
		r.User = string(u)
		if err := first.CheckInto(t.Context(), r, &d); err != nil {
			t.Fatal(err)
		}
		if d.Limit(0).Owner == "node-2" {
			break
		}
	}
	cluster.CutLinks(first)
	return first, r
}

// brief is a context that ends as soon as something waits for its end.
type brief struct {
	context.Context
	once  sync.Once
	ended chan struct{}
}

func (b *brief) Done() <-chan struct{} {
	b.once.Do(func() { close(b.ended) })
	return b.ended
}

func (b *brief) Err() error {
	select {
	case <-b.ended:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A caller that waits for an unreachable owner waits no longer than its context, and the
// error says what is not known.
func TestContextsEndTheWait(t *testing.T) {
	node, r := cutOff(t, time.Minute)
	var d weir.Decision
	for name, ask := range map[string]func(ctx context.Context) error{
		"Check": func(ctx context.Context) error { return node.CheckInto(ctx, r, &d) },
		"Peek":  func(ctx context.Context) error { return node.PeekInto(ctx, r, &d) },
		"Refund": func(ctx context.Context) error {
			return node.Refund(ctx, *r, arith.NewReceipt(arith.ReceiptFields{Epoch: 1, Charged: 1, Set: 1}))
		},
		"Reset": func(ctx context.Context) error { _, err := node.Reset(ctx, *r); return err },
		"CheckBatch": func(ctx context.Context) error {
			ds := make([]weir.Decision, 2)
			err := node.CheckBatchInto(ctx, []weir.Request{*r, {Path: "/other"}}, ds)
			var bad *weir.BatchError
			if !strings.Contains(err.Error(), "may have been") {
				return err
			}
			if !errors.As(err, &bad) || len(bad.Index) != 1 || bad.Index[0] != 0 || ds[0].Allowed || !ds[1].Allowed {
				t.Errorf("a batch: %v, %+v", err, ds)
			}
			return err
		},
	} {
		ctx := &brief{Context: t.Context(), ended: make(chan struct{})}
		if err := ask(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "may have been") {
			t.Errorf("%s: %v", name, err)
		}
		if err := ask(ctx); !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "may have been") {
			t.Errorf("%s with a context that has ended: %v", name, err)
		}
	}
}

// A reset or refund without an answer fails, and the error names its key.
func TestResetsThatNobodyAnswers(t *testing.T) {
	node, r := cutOff(t, 100*time.Millisecond)
	_, reset := node.Reset(t.Context(), *r)
	refund := node.Refund(t.Context(), *r, arith.NewReceipt(arith.ReceiptFields{Epoch: 1, Charged: 1, Set: 1}))
	for what, err := range map[string]error{"reset": reset, "refund": refund} {
		if !errors.Is(err, weir.ErrUnanswered) || !strings.Contains(err.Error(), what) ||
			!strings.Contains(err.Error(), `"/towns:`+r.User) {
			t.Errorf("a %s: %v", what, err)
		}
	}
}

// A check that has a time of its own to wait for others is answered by the policy then, and without
// an error.
func TestThePolicyAnswersInTheTimeOfACheck(t *testing.T) {
	node, r := cutOff(t, time.Minute)
	long, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ctx := engine.WithPatience(long, time.Now().Add(20*time.Millisecond))
	ds := make([]weir.Decision, 2)
	if err := node.CheckInto(ctx, r, &ds[0]); err != nil || ds[0].Allowed || ds[0].Source != limiter.SourceFallbackClosed {
		t.Errorf("%v, %+v, want a denial by the policy", err, ds[0])
	}
	if err := node.CheckBatchInto(ctx, []weir.Request{*r, {Path: "/other"}}, ds); err != nil || ds[0].Allowed ||
		ds[0].Source != limiter.SourceFallbackClosed || !ds[1].Allowed {
		t.Errorf("a batch whose time is over: %v, %+v, want a denial by the policy, and one without a rule", err, ds)
	}
}
