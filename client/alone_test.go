package client

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// scripted is a node that is called. Its calls end with err; if that is nil, when their
// context ends or closed is closed.
type scripted struct {
	weirv1.LimiterClient
	unsent bool // calls are not sent
	err    error
	closed chan struct{}
	calls  int
}

func (s *scripted) Reset(ctx context.Context, _ *weirv1.ResetRequest, opts ...grpc.CallOption) (*weirv1.ResetResponse,
	error) {
	s.calls++
	for _, o := range opts {
		if p, ok := o.(grpc.PeerCallOption); ok && !s.unsent {
			p.PeerAddr.Addr = &net.TCPAddr{}
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	select {
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-s.closed:
		return nil, status.Error(codes.Canceled, "the connection is closing")
	}
}

// TestACallIsBounded: a unary call that was sent and is not answered may have been carried
// out, also if Close ends it. One that was not sent promises that it was not. The first node
// is waited for as long as one node may take, if another can be asked.
func TestACallIsBounded(t *testing.T) {
	all := []error{ErrUnanswered, ErrUnavailable, ErrClosed}
	for name, row := range map[string]struct {
		nodes []scripted
		close time.Duration // when the client is closed; 0: it is not
		took  time.Duration
		wraps []error // of all
		calls int
	}{
		"silent":                {[]scripted{{}}, 0, 10 * time.Second, []error{ErrUnanswered}, 1},
		"not reached":           {[]scripted{{unsent: true}}, 0, 10 * time.Second, []error{ErrUnavailable}, 1},
		"closed":                {[]scripted{{}}, time.Second, time.Second, []error{ErrUnanswered, ErrClosed}, 1},
		"closed before it left": {[]scripted{{unsent: true}}, time.Second, time.Second, []error{ErrClosed}, 1},
		"closed with another":   {[]scripted{{}, {}}, time.Second, time.Second, []error{ErrUnanswered, ErrClosed}, 1},
		"both are silent":       {[]scripted{{}, {}}, 0, 10 * time.Second, []error{ErrUnanswered}, 2},
		"closed at the other": {[]scripted{{}, {}}, 5 * time.Second, 5 * time.Second, []error{ErrUnanswered, ErrClosed},
			2},
		"silent, then refused": {[]scripted{{}, {err: status.Error(codes.Unavailable, "not now")}}, 0, 4 * time.Second,
			[]error{ErrUnanswered}, 2},
		"not reached, then found": {[]scripted{{unsent: true}, {}}, 0, 10 * time.Second, []error{ErrUnanswered}, 2},
		"neither is reached": {[]scripted{{unsent: true}, {unsent: true}}, 0, 10 * time.Second, []error{ErrUnavailable},
			2},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := bench()
			c.config.Timeout, c.attempt, c.nodes = 10*time.Second, 4*time.Second, nil
			closed, calls := make(chan struct{}), 0
			for i := range row.nodes {
				s := &row.nodes[i]
				s.closed = closed
				c.nodes = append(c.nodes, &node{client: c, index: i, addr: "there", condition: up, api: s})
			}
			if row.close > 0 {
				time.AfterFunc(row.close, func() {
					c.mu.Lock()
					c.closed = true
					c.mu.Unlock()
					close(closed)
				})
			}
			begun := time.Now()
			_, err := c.Reset(t.Context(), limiter.Request{Path: "/"})
			if took := time.Since(begun); took != row.took {
				t.Errorf("%s: it took %v, want %v", name, took, row.took)
			}
			for i := range row.nodes {
				calls += row.nodes[i].calls
			}
			if calls != row.calls {
				t.Errorf("%s: %d calls, want %d", name, calls, row.calls)
			}
			for _, kind := range all {
				if wants := slices.Contains(row.wraps, kind); errors.Is(err, kind) != wants {
					t.Errorf("%s: %v; wraps %q: %t", name, err, kind, !wants)
				}
			}
		})
	}
}

// TestCloseAtTheSecondAttempt: a check that was sent twice before Close ends it says both.
func TestCloseAtTheSecondAttempt(t *testing.T) {
	c, n := bench()
	ended := make(chan error, 1)
	synctest.Test(t, func(t *testing.T) {
		go func() { ended <- c.ask(t.Context(), &limiter.Request{Path: "/"}, new(limiter.Decision), false) }()
		for attempt := range 2 {
			synctest.Wait()
			c.release(n.next())
			c.closed = attempt == 1
			n.land(n.reason(t.Context(), context.Canceled), false)
		}
		synctest.Wait()
	})
	if err := <-ended; !errors.Is(err, ErrUnanswered) || !errors.Is(err, ErrClosed) {
		t.Errorf("%v does not say that the client is closed and the check may have been counted", err)
	}
}
