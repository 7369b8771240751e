package weir_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine"
)

// settling is a membership that becomes ready after some questions, or never does.
type settling struct {
	membership
	asked, after int
	reason       error
}

func (m *settling) OpenMember(context.Context, *engine.Node) (engine.Decider, weir.Cluster, error) {
	return m, m, nil
}

func (m *settling) Ready() error {
	if m.asked++; m.after > 0 && m.asked > m.after {
		return nil
	}
	return m.reason
}

// WaitReady returns when the node is ready, when it never will be, and when the context
// ends; then it says why the node is not.
func TestWaitReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func(after int, reason error) *weir.Node {
			n, err := weir.Open(t.Context(), weir.Config{Cluster: &settling{after: after, reason: reason}})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := open(100, weir.ErrJoining).WaitReady(ctx); err != nil {
			t.Errorf("a node that becomes ready: %v", err)
		}
		if err := open(0, weir.ErrLeaving).WaitReady(ctx); !errors.Is(err, weir.ErrLeaving) || ctx.Err() != nil {
			t.Errorf("one that leaves: %v", err)
		}
		closed := open(0, weir.ErrJoining)
		if err := closed.Close(); err != nil {
			t.Fatal(err)
		}
		if err := closed.WaitReady(ctx); !errors.Is(err, weir.ErrClosed) || ctx.Err() != nil {
			t.Errorf("one that is closed: %v", err)
		}
		if err := open(0, weir.ErrSettling).WaitReady(ctx); !errors.Is(err, weir.ErrSettling) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one that never is: %v", err)
		}
	})
}
