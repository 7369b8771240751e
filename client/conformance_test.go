package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// subject is a node that is asked by a client. The suite moves its clock and changes
// its rules behind the client's back.
type subject struct {
	*client.Client
	node *weir.Node
	now  *atomic.Int64
}

func (s *subject) SetTime(t limiter.Tick) { s.now.Store(int64(t)) }

func (s *subject) SetRules(yaml string) error { return s.node.SetRules([]byte(yaml)) }

func (s *subject) Reset(ctx context.Context, r limiter.Request) error {
	_, err := s.Client.Reset(ctx, r)
	return err
}

// LimitsConcurrency implements [limitertest.Concurrent].
func (*subject) LimitsConcurrency() {}

// Amend implements [limitertest.Amender].
func (s *subject) Amend(ctx context.Context, r limiter.Request, a limiter.Settling) (limiter.Amended, error) {
	used, err := r.Cost.Value(unnamed(a.Named))
	if err != nil {
		return limiter.Amended{}, err
	}
	var out limiter.Amended
	switch {
	case a.Extend:
		out, err = s.Extend(ctx, r)
	case used == 0 && a.IgnoreUnknown && !a.Named:
		out, err = s.Cancel(ctx, r)
	default:
		out, err = s.Settle(ctx, r, int64(used), func(to *limiter.Settling) { *to = a })
	}
	if errors.Is(err, client.ErrSettled) {
		out.State = limiter.AmendSettled
		_, of, _ := strings.Cut(err.Error(), "the id stands for ")
		_, err = fmt.Sscanf(of, "%d units for good", &out.First)
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

// Refund hides that of the client from the suite: only decisions of CheckWithReceipt have
// receipts, and these are good for ten minutes, while the suite takes back what is older.
func (*subject) Refund() {}

// batchSubject asks for everything in batches, with a request that is invalid before
// it and a peek's worth of nothing after it.
type batchSubject struct{ *subject }

func (s *batchSubject) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	rs := []limiter.Request{{Path: "/", Rule: "there is none"}, *r, {Path: "/nothing", Cost: limiter.Units(0)}}
	ds := make([]limiter.Decision, 3)
	err := s.CheckBatchInto(ctx, rs, ds)
	*d = ds[1]
	bad, ok := err.(*client.BatchError) //nolint:errorlint // it is returned as it is
	if !ok {
		return err
	}
	for i, at := range bad.Index {
		if at == 1 {
			return bad.Errs[i]
		}
	}
	return nil
}

var (
	_ limitertest.Peeker  = (*subject)(nil)
	_ limitertest.Amender = (*subject)(nil)
)

// C3: the suite that every decider passes, over a client, one by one and in
// batches.
func TestConformance(t *testing.T) {
	if raceDetector && testing.Short() {
		t.Skip("one caller, many times slower under the race detector; make wire runs it")
	}
	fresh := func(tb testing.TB, rules string) *subject {
		s := &subject{now: new(atomic.Int64)}
		s.SetTime(limitertest.Start())
		var err error
		s.node, err = weir.Open(context.Background(), weir.Config{
			Rules: []byte(rules), Now: func() time.Time { return limiter.Tick(s.now.Load()).Time() },
		})
		if err != nil {
			tb.Fatalf("%v in\n%s", err, rules)
		}
		tb.Cleanup(func() {
			if err := s.node.Close(); err != nil {
				tb.Error(err)
			}
		})
		s.Client = open(tb, client.Config{Addrs: []string{serve(tb, s.node, "", refunds).addr}, EveryLimit: true,
			Timeout: long})
		return s
	}
	t.Run("Check", func(t *testing.T) {
		one := func(tb testing.TB, rules string) limitertest.Subject { return fresh(tb, rules) }
		if raceDetector {
			limitertest.Transcripts(t, one) // the rest is arithmetic, and not this package's
			return
		}
		limitertest.Run(t, one)
	})
	t.Run("CheckBatch", func(t *testing.T) {
		limitertest.Transcripts(t, func(tb testing.TB, rules string) limitertest.Subject {
			return &batchSubject{fresh(tb, rules)}
		})
	})
}
