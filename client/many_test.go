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

// The reply to a full message under the most limits that a check can have is read. If it
// were too large, each check would be sent again, and counted twice.
func TestLargeReplies(t *testing.T) {
	text := "version: 1\nrules:\n"
	for rule := range 16 {
		text += fmt.Sprintf("  - {name: rule-%d, key: [rule, user], continue: true, limits: [", rule)
		for limit := range limiter.MaxLimits {
			text += fmt.Sprintf("{name: %s-%d, limit: 1000000, window: 1h, algorithm: fixed_window},", strings.Repeat("n", 50),
				limit)
		}
		text += "]}\n"
	}
	node := newNode(t, text)
	c := open(t, client.Config{Addrs: []string{serve(t, node, "", nil).addr}, Timeout: long, EveryLimit: true})
	const n = client.MaxMessage
	rs, ds := make([]limiter.Request, n), make([]limiter.Decision, n)
	for i := range rs {
		rs[i].User = strings.Repeat("u", client.MaxMessageBytes/n)
	}
	if err := c.CheckBatchInto(t.Context(), rs, ds); err != nil {
		t.Fatal(err)
	}
	if d := &ds[n-1]; d.Len() != 256 || d.Limit(0).Remaining != 1_000_000-n {
		t.Errorf("the last of %d checks has %d limits, and %d are left", n, d.Len(), d.Limit(0).Remaining)
	}
}

// asked counts the calls of a node's methods, and fails the batches after some.
type asked struct {
	*weir.Node
	alone, batches atomic.Int64
	most           int64 // batches that are decided
}

func (a *asked) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	a.alone.Add(1)
	return a.Node.CheckInto(ctx, r, d)
}

func (a *asked) CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	if a.batches.Add(1) > a.most {
		return context.DeadlineExceeded
	}
	return a.Node.CheckBatchInto(ctx, rs, ds)
}

// The requests of a batch that bring their own limits travel together, in order, and each
// has its own answer. After a message that is not answered the rest is not sent: a batch
// does not wait once for each request.
func TestBatchesWithLimits(t *testing.T) {
	l := limitertest.Limit(t, limiter.Spec{Limit: 2, Window: time.Hour, Algorithm: limiter.FixedWindow})
	const n = 25
	batch := func() ([]limiter.Request, []limiter.Decision) {
		rs, ds := make([]limiter.Request, n), make([]limiter.Decision, n)
		for i := range rs {
			rs[i] = limiter.Request{Path: "/", User: fmt.Sprint(i / 5), Limits: []*limiter.Limit{l}}
		}
		rs[7] = *request("ada") // without limits of its own
		rs[8].Cost = limiter.Units(-1)
		return rs, ds
	}
	by := &asked{Node: newNode(t, hour), most: 4}
	s := serve(t, by, "", func(o *options) { o.AllowRequestLimits = true })
	c := open(t, client.Config{Addrs: []string{s.addr}, Timeout: long, MaxMessage: 10})
	eventually(t, "the node is up", func() bool { return c.Stats().Up == 1 })
	rs, ds := batch()
	var bad *client.BatchError
	if err := c.CheckBatchInto(t.Context(), rs, ds); !errors.As(err, &bad) || fmt.Sprint(bad.Index) != "[8]" ||
		!errors.Is(bad.Errs[0], client.ErrInvalid) {
		t.Fatal(err)
	}
	for i := range ds {
		if want := i%5 < 2 || i == 7; ds[i].Allowed != want {
			t.Errorf("request %d: allowed %t", i, ds[i].Allowed)
		}
	}
	if alone, all := by.alone.Load(), by.batches.Load(); alone != 0 || all != 4 {
		t.Errorf("the node was asked %d times for one and %d times for several, want 4 times for several", alone, all)
	}
	rs, ds = batch()
	if err := c.CheckBatchInto(t.Context(), rs[10:], ds[10:]); !errors.As(err, &bad) || len(bad.Errs) != n-10 {
		t.Fatal(err)
	}
	for i, err := range bad.Errs {
		if sent := i < 10; errors.Is(err, client.ErrUnanswered) != sent || errors.Is(err, client.ErrUnavailable) == sent {
			t.Errorf("request %d, sent %t: %v", i, sent, err)
		}
	}
	if all := by.batches.Load(); all != 5 {
		t.Errorf("%d calls, want one that is not answered and no other", all-4)
	}
}
