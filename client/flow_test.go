package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Many goroutines share one stream, and each key is allowed exactly what its limit
// says: no answer is lost, doubled or given to another caller.
func TestManyCallers(t *testing.T) {
	const callers, users, each = 64, 10, 50
	c := open(t, client.Config{Addrs: []string{serve(t, newNode(t, hour), "", nil).addr}, Timeout: long})
	var allowed [users]atomic.Int64
	var asking sync.WaitGroup
	for i := range callers {
		asking.Go(func() {
			var d limiter.Decision
			for j := range each {
				u := (i + j) % users
				if err := c.CheckInto(t.Context(), request(fmt.Sprint("user-", u)), &d); err != nil {
					t.Error(err)
					return
				}
				if d.Len() != 1 || d.Limit(0).Limit.Name() != "hour" || d.Rule != "all" || d.Source != limiter.SourceOwner {
					t.Errorf("%+v", &d)
				}
				if d.Allowed {
					allowed[u].Add(1)
				} else if d.RetryAfter <= 0 || d.BlockedBy() == nil {
					t.Errorf("denied without a reason: %+v", &d)
				}
			}
		})
	}
	asking.Wait()
	for u := range allowed { // each was asked for callers*each/users = 320 times
		if got := allowed[u].Load(); got != 100 {
			t.Errorf("user %d was allowed %d times", u, got)
		}
	}
}

// Messages are sent at once while fewer than two are on their way, else when a reply
// comes, with all that was asked for meanwhile, up to what a message may have.
func TestBatching(t *testing.T) {
	got, reply := make(chan int), make(chan struct{})
	l := play(t, func(stream weirv1.Limiter_CheckStreamServer) error {
		received := make(chan *weirv1.CheckColumns, 10)
		go func() {
			defer close(received)
			for {
				m, err := stream.Recv()
				if err != nil {
					return
				}
				if n := len(m.PathLengths); n > 0 { // the first has none
					got <- n
				}
				received <- m
			}
		}()
		for m := range received {
			if len(m.PathLengths) > 0 {
				select {
				case <-reply:
				case <-stream.Context().Done():
					continue
				}
			}
			if err := stream.Send(allow(m)); err != nil {
				continue
			}
		}
		return nil
	})
	c := open(t, client.Config{Addrs: []string{l.Addr().String()}, Timeout: long, MaxMessage: 4})
	var asking sync.WaitGroup
	ask := func(n int) {
		rs, ds := make([]limiter.Request, n), make([]limiter.Decision, n)
		asking.Go(func() {
			if err := c.CheckBatchInto(t.Context(), rs, ds); err != nil {
				t.Error(err)
			}
			for i := range ds {
				if !ds[i].Allowed {
					t.Errorf("check %d of %d is denied", i, n)
				}
			}
		})
	}
	ask(1)
	if n := <-got; n != 1 {
		t.Fatalf("the first message has %d checks", n)
	}
	ask(1)
	if n := <-got; n != 1 {
		t.Fatalf("the second message has %d checks", n)
	}
	// Two are on their way, so these six, which come one by one, wait: for a message of
	// four and one of two.
	for i := range 6 {
		ask(1)
		eventually(t, "another check waits", func() bool { return c.Stats().Pending == 3+i })
	}
	for _, want := range []int{4, 2} {
		reply <- struct{}{}
		if n := <-got; n != want {
			t.Errorf("after a reply a message has %d checks, want %d", n, want)
		}
	}
	reply <- struct{}{}
	reply <- struct{}{}
	asking.Wait()
}

// Checks with different rules, and checks and peeks, travel in different messages, and
// each gets its own answer.
func TestKinds(t *testing.T) {
	c := open(t, client.Config{Timeout: long, Addrs: []string{serve(t, newNode(t, `
version: 1
rules:
  - {name: one, match: {path: "^/towns"}, limits: [1/hour]}
  - {name: two, match: {attributes: {plan: free}}, key: [user, "attr:plan"], limits: [2/hour]}
`), "", nil).addr}})
	ctx := t.Context()
	var d limiter.Decision
	check := func(ask func(context.Context, *limiter.Request, *limiter.Decision) error, r *limiter.Request, allowed bool,
		rule string) {
		t.Helper()
		if err := ask(ctx, r, &d); err != nil || d.Allowed != allowed || d.Rule != rule {
			t.Errorf("%+v: %v, %+v", r, err, &d)
		}
	}
	check(c.PeekInto, request("ada"), true, "one")
	check(c.CheckInto, request("ada"), true, "one")
	check(c.PeekInto, request("ada"), false, "one")
	check(c.CheckInto, &limiter.Request{Path: "/towns", User: "ada", Rule: "two",
		Attributes: map[string]string{"plan": "free"}}, true, "two")
	check(c.CheckInto, &limiter.Request{Path: "/x", User: "ada",
		Attributes: map[string]string{"plan": "free", "": "x", "none": ""}, Cost: limiter.Units(1)}, true, "two")
	check(c.CheckInto, &limiter.Request{Path: "/x", User: "ada", Attributes: map[string]string{"plan": "free"}}, false,
		"two")
	check(c.CheckInto, &limiter.Request{Path: "/x"}, true, "")
	check(c.CheckInto, &limiter.Request{}, true, "")
	if d.Source != limiter.SourceNone {
		t.Errorf("%+v", &d)
	}
	check(c.CheckInto, &limiter.Request{Path: "/towns", User: "bob", Cost: limiter.Units(2)}, false, "one")
	if !d.Never || d.Limit(0).Cost != 2 {
		t.Errorf("%+v", &d)
	}
	l := limitertest.Limit(t, limiter.Spec{Limit: 3, Window: time.Minute, Algorithm: limiter.TokenBucket, Burst: 5})
	own := &limiter.Request{User: "ada", Limits: []*limiter.Limit{l}, Cost: limiter.Units(5)}
	check(c.CheckInto, own, true, "request")
	check(c.PeekInto, own, false, "request")
	if d.Len() != 1 || d.Limit(0).Limit.Capacity() != 5 || d.Limit(0).Remaining != 0 {
		t.Errorf("%+v", &d)
	}
	if n, err := c.Reset(ctx, *own); n != 1 || err != nil {
		t.Error(n, err)
	}
	check(c.CheckInto, own, true, "request")
}

// In one batch each request gets its own answer, whatever its columns and however
// many there are.
func TestCheckBatch(t *testing.T) {
	node := newNode(t, hour)
	c := open(t, client.Config{Addrs: []string{serve(t, node, "", nil).addr}, Timeout: long})
	const n = 2500 // several messages
	rs, ds := make([]limiter.Request, n), make([]limiter.Decision, n)
	for i := range rs {
		rs[i] = *request(fmt.Sprint("user-", i))
		switch i % 7 {
		case 1:
			rs[i].Cost = limiter.Units(int64(i%5 + 2))
		case 2:
			rs[i].Group, rs[i].IP = "g", "10.0.0.1"
		case 3:
			rs[i].Attributes = map[string]string{fmt.Sprint("a", i%40): "v"} // more names than a message takes
		case 4:
			rs[i].Method = "POST"
		}
	}
	rs[5].Rule, rs[6].Cost = "none", limiter.Units(-1)
	err := c.CheckBatchInto(t.Context(), rs, ds)
	var bad *client.BatchError
	if !errors.As(err, &bad) || fmt.Sprint(bad.Index) != "[5 6]" || !errors.Is(bad.Errs[0], client.ErrInvalid) ||
		!errors.Is(bad.Errs[1], client.ErrInvalid) {
		t.Fatal(err)
	}
	if len(bad.Errs) != 2 || !strings.Contains(bad.Error(), "request 5 of the batch") {
		t.Error(bad)
	}
	for i := range ds {
		want := uint64(99)
		if i%7 == 1 {
			want = 100 - uint64(i%5+2)
		}
		if i == 5 || i == 6 {
			if ds[i].Allowed {
				t.Errorf("request %d has no decision and is allowed", i)
			}
			continue
		}
		if !ds[i].Allowed || ds[i].Limit(0).Remaining != want {
			t.Fatalf("request %d: %+v, want %d remaining", i, ds[i].Limit(0), want)
		}
	}
	if s := node.Stats(); s.Keys-int(s.IDs) != n-2 || s.IDs != n-2 {
		t.Errorf("there are %d counters, %d of them of ids", s.Keys, s.IDs)
	}
	if err := c.CheckBatchInto(t.Context(), rs, ds[1:]); !errors.Is(err, client.ErrInvalid) {
		t.Error(err)
	}
	if err := c.CheckBatchInto(t.Context(), nil, nil); err != nil {
		t.Error(err)
	}
}

// fill returns a request of n bytes in all, in attributes.
func fill(n int) *limiter.Request {
	r := &limiter.Request{Cost: limiter.Units(0), Attributes: map[string]string{}}
	for i := 0; n > 0; i++ {
		name := string(rune('a' + i))
		size := min(n-len(name), limiter.MaxFieldBytes)
		r.Attributes[name] = strings.Repeat("v", size)
		n -= len(name) + size
	}
	return r
}

// A request that would make nodes refuse its whole message is refused by itself.
func TestInvalid(t *testing.T) {
	c := open(t, client.Config{Addrs: []string{serve(t, newNode(t, hour), "", nil).addr}, Timeout: long})
	many := map[string]string{}
	for i := range 17 {
		many[fmt.Sprint(i)] = "v"
	}
	var d limiter.Decision
	for name, r := range map[string]*limiter.Request{
		"attributes":     {Attributes: many},
		"attribute name": {Attributes: map[string]string{"\xff": "v"}},
		"rule name":      {Rule: "\xff"},
		"no such rule":   {Rule: "none"},
		"size of all":    fill(client.MaxMessageBytes + 1),
		"size of one":    {Path: strings.Repeat("/", limiter.MaxFieldBytes+1)},
		"cost":           {Cost: limiter.Units(limiter.MaxUnits + 1)},
	} {
		if err := c.CheckInto(t.Context(), r, &d); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, every := range []bool{false, true} {
		c := open(t, client.Config{Addrs: []string{serve(t, newNode(t, hour), "", nil).addr}, Timeout: long,
			EveryLimit: every})
		for _, bytes := range []string{"\xff\x00", "caf\xe9", "\xed\xa0\x80"} {
			if err := c.CheckInto(t.Context(), request(bytes), &d); err != nil || !d.Allowed {
				t.Errorf("bytes that are not UTF-8, every limit %t: %v", every, err)
			}
		}
	}
	large := fill(client.MaxMessageBytes)
	if err := c.CheckInto(t.Context(), large, &d); err != nil {
		t.Errorf("as large as may be: %v", err)
	}
	no := open(t, client.Config{Timeout: long, Addrs: []string{serve(t, newNode(t, hour), "", func(o *options) {
		o.AllowReset, o.AllowRequestLimits = false, false
	}).addr}})
	if _, err := no.Reset(t.Context(), *request("ada")); !errors.Is(err, client.ErrDenied) {
		t.Error(err)
	}
	l, _ := limiter.NewLimit(limiter.Spec{Limit: 3, Window: time.Minute})
	if err := no.CheckInto(t.Context(), &limiter.Request{Limits: []*limiter.Limit{l}}, &d); !errors.Is(err,
		client.ErrDenied) {
		t.Error(err)
	}
}

// A node and a client can stand for each other.
var _ interface {
	CheckInto(ctx context.Context, r *weir.Request, d *weir.Decision) error
	PeekInto(ctx context.Context, r *weir.Request, d *weir.Decision) error
	CheckBatchInto(ctx context.Context, rs []weir.Request, ds []weir.Decision) error
	Reset(ctx context.Context, r weir.Request) (int, error)
} = (*client.Client)(nil)
