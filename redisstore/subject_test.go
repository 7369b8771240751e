package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/redisstore"
)

// patience is how long checks wait for Redis if a test says nothing else. It passes in no
// test: a busy machine may be slow.
const patience = 30 * time.Second

func openStore(tb testing.TB, c redisstore.Config) *redisstore.Store {
	tb.Helper()
	if c.Timeout == 0 {
		c.Timeout = patience
	}
	s, err := redisstore.Open(context.Background(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// newNode returns a node that decides by the store, with the server's clock.
func newNode(tb testing.TB, store *redisstore.Store, yaml string) *weir.Node {
	tb.Helper()
	node, err := weir.Open(context.Background(), weir.Config{Rules: []byte(yaml), Backend: store})
	if err != nil {
		tb.Fatalf("%v in\n%s", err, yaml)
	}
	return node
}

// subject is a node in Redis mode whose clock the suite moves.
type subject struct {
	*weir.Node
	tb  testing.TB
	now limiter.Tick
}

func newSubject(tb testing.TB, store *redisstore.Store, yaml string) *subject {
	tb.Helper()
	s := &subject{tb: tb, now: limitertest.Start()}
	var err error
	s.Node, err = weir.Open(context.Background(), weir.Config{
		Rules: []byte(yaml), Backend: store, Now: func() time.Time { return s.now.Time() },
	})
	if err != nil {
		tb.Fatalf("%v in\n%s", err, yaml)
	}
	return s
}

func (s *subject) SetTime(t limiter.Tick)     { s.now = t }
func (s *subject) SetRules(yaml string) error { return s.Node.SetRules([]byte(yaml)) }

func (s *subject) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.fromRedis(s.Node.CheckInto(ctx, r, d), d)
}

func (s *subject) PeekInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.fromRedis(s.Node.PeekInto(ctx, r, d), d)
}

// fromRedis fails the test if a policy has decided.
func (s *subject) fromRedis(err error, d *limiter.Decision) error {
	if err == nil && d.Len() > 0 && d.Source != limiter.SourceRedis {
		s.tb.Fatalf("a decision is from %s, not from Redis", d.Source)
	}
	return err
}

func (s *subject) Reset(ctx context.Context, r limiter.Request) error {
	_, err := s.Node.Reset(ctx, r)
	return err
}

// Amend implements [limitertest.Amender].
func (s *subject) Amend(ctx context.Context, r limiter.Request, a limiter.Settling) (limiter.Amended, error) {
	var out limiter.Amended
	var err error
	switch units, e := r.Cost.Value(unnamed(a.Named)); {
	case e != nil:
		return out, e
	case a.Extend:
		out, err = s.Node.Extend(ctx, r)
	default:
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
func (*subject) LimitsConcurrency() {}

// A subject that could not refund, peek or name keys would have parts of the
// suite skipped.
var (
	_ limitertest.Refunder   = (*subject)(nil)
	_ limitertest.Peeker     = (*subject)(nil)
	_ limitertest.KeyNamer   = (*subject)(nil)
	_ limitertest.Amender    = (*subject)(nil)
	_ limitertest.Concurrent = (*subject)(nil)
)
