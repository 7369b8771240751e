package limitertest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// nodeSubject is a node as an embedder opens it, with a clock that the suite
// moves.
type nodeSubject struct {
	*weir.Node
	now limiter.Tick
}

func newNodeSubject(tb testing.TB, rulesYAML string) limitertest.Subject {
	tb.Helper()
	s := &nodeSubject{now: limitertest.Start()}
	node, err := weir.Open(context.Background(), weir.Config{
		Rules: []byte(rulesYAML),
		Now:   func() time.Time { return s.now.Time() },
	})
	if err != nil {
		tb.Fatalf("%v in\n%s", err, rulesYAML)
	}
	tb.Cleanup(func() {
		if err := node.Close(); err != nil {
			tb.Error(err)
		}
	})
	s.Node = node
	return s
}

func (s *nodeSubject) SetTime(t limiter.Tick) { s.now = t }

func (s *nodeSubject) SetRules(yaml string) error { return s.Node.SetRules([]byte(yaml)) }

func (s *nodeSubject) Reset(ctx context.Context, r limiter.Request) error {
	_, err := s.Node.Reset(ctx, r)
	return err
}

// Amend implements [limitertest.Amender].
func (s *nodeSubject) Amend(ctx context.Context, r limiter.Request, a limiter.Settling) (out limiter.Amended,
	err error) {
	if a.Extend {
		out, err = s.Node.Extend(ctx, r)
	} else {
		units, _ := r.Cost.Value(unnamed(a.Named))
		out, err = s.Node.Settle(ctx, r, int64(units), func(to *limiter.Settling) { *to = a })
	}
	if errors.Is(err, limiter.ErrSettled) {
		err = nil
	}
	return out, err
}

// unnamed returns what is used if a request does not say it; 0 if attributes are named.
func unnamed(named bool) uint64 {
	if named {
		return 0
	}
	return 1
}

// LimitsConcurrency implements [limitertest.Concurrent].
func (*nodeSubject) LimitsConcurrency() {}

// A subject that could not refund, peek or name keys would have parts of the
// suite skipped.
var (
	_ limitertest.Refunder   = (*nodeSubject)(nil)
	_ limitertest.Peeker     = (*nodeSubject)(nil)
	_ limitertest.KeyNamer   = (*nodeSubject)(nil)
	_ limitertest.Amender    = (*nodeSubject)(nil)
	_ limitertest.Concurrent = (*nodeSubject)(nil)
)

// C3, C4: the suite that every decider passes, over a node whose clock stands
// still until the suite moves it.
func TestNodeConforms(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make wire runs it")
	}
	limitertest.Run(t, newNodeSubject)
}

// B4: at 250 requests/s for an hour that starts on the hour, 10/second and
// 120/minute and 240/hour as fixed windows admit exactly 240.
func TestAnHourOfRequestsAdmitsTheHoursLimit(t *testing.T) {
	s := newNodeSubject(t, `
version: 1
rules:
  - {name: b, limits: [10/second, 120/minute, 240/hour], algorithm: fixed_window}
`)
	r := limiter.Request{Path: "/", User: "ada"}
	var d limiter.Decision
	admitted := 0
	for i := range limiter.Tick(3600 * 250) {
		s.SetTime(noon + i*4*limiter.Millisecond)
		if err := s.CheckInto(context.Background(), &r, &d); err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			admitted++
		}
	}
	if admitted != 240 {
		t.Errorf("an hour admits %d, want 240", admitted)
	}
}
