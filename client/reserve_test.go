package client_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

const tokens = "version: 1\nrules: [{name: tokens, key: [user], limits: [{name: hour, limit: 700, window: 1h, " +
	"algorithm: fixed_window, align: first_hit}]}]\n"

func refunds(o *transport.Options) { o.AllowRefunds = true }

// A client reserves by whatever it checks with, and settles, extends and cancels.
func TestReservations(t *testing.T) {
	node := newNode(t, tokens)
	c, ctx := open(t, client.Config{Addrs: []string{serve(t, node, "", refunds).addr}, Timeout: long}), t.Context()
	left := func(want uint64) {
		t.Helper()
		if d, err := c.Peek(ctx, limiter.Request{User: "ada"}); err != nil || d.Limit(0).Remaining != want {
			t.Fatalf("%+v, %v, want %d left", d.Limit(0), err, want)
		}
	}
	did := func(want client.Amended) func(client.Amended, error) {
		return func(got client.Amended, err error) {
			t.Helper()
			if err != nil || got != want {
				t.Fatalf("%+v, %v, want %+v", got, err, want)
			}
		}
	}
	r := limiter.Request{User: "ada", Cost: limiter.Units(600), Hold: time.Minute}
	if d, err := c.Reserve(ctx, &r); err != nil || !d.Allowed || len(r.ID) < 16 {
		t.Fatalf("%+v, %v, %q", d, err, r.ID)
	}
	left(100)
	did(client.Amended{Estimate: 600})(c.Extend(ctx, r))
	r.Cost = limiter.Units(701)
	// it ends before there is room
	if a, err := c.Extend(ctx, r); err != nil || a.State != limiter.AmendDenied || a.RetryAfter != 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	r.Cost = limiter.Units(700)
	did(client.Amended{Estimate: 700})(c.Extend(ctx, r))
	did(client.Amended{Estimate: 700})(c.Settle(ctx, r, 100))
	did(client.Amended{State: limiter.AmendRepeated})(c.Settle(ctx, r, 100))
	left(600)
	if _, err := c.Settle(ctx, r, 7); !errors.Is(err, client.ErrSettled) ||
		!strings.Contains(err.Error(), "stands for 100 units") {
		t.Error(err)
	}

	// In one batch a check that is held beside one that is not, and one with limits of its own.
	l := limitertest.Limit(t, limiter.Spec{Limit: 5, Window: time.Hour, Algorithm: limiter.FixedWindow})
	strict := open(t, client.Config{Addrs: []string{serve(t, node, "", func(o *transport.Options) {
		o.AllowRefunds, o.AllowRequestLimits = true, true
	}).addr}, Timeout: long})
	batch := []limiter.Request{
		{User: "ada", Cost: limiter.Units(50), ID: "7", Hold: time.Minute}, {User: "ada", Cost: limiter.Units(1), ID: "8"},
		{Path: "key", Limits: []*limiter.Limit{l}, Cost: limiter.Units(4), ID: "7", Hold: time.Minute},
	}
	if ds, err := strict.CheckBatch(ctx, batch); err != nil || !ds[0].Allowed || !ds[2].Allowed {
		t.Fatalf("%+v, %v", ds, err)
	}
	left(549)
	did(client.Amended{Estimate: 50})(c.Cancel(ctx, batch[0]))
	left(599)
	if _, err := c.Cancel(ctx, batch[1]); !errors.Is(err, client.ErrSettled) {
		t.Errorf("it was not held: %v", err)
	}
	did(client.Amended{Estimate: 4})(strict.Settle(ctx, batch[2], 1))
	did(client.Amended{State: limiter.AmendUnknown})(c.Settle(ctx, limiter.Request{User: "ada", ID: "9"}, 5,
		client.IgnoreUnknown()))
	did(client.Amended{State: limiter.AmendCharged})(c.Settle(ctx, limiter.Request{User: "ada", ID: "9"}, 5))
	left(594)
	if n := node.Stats().Holds; n != 0 {
		t.Errorf("%d holds", n)
	}
}

// The estimate of a reservation is raised as often as it may be. More has an error of its own, after which
// the reservation stands.
func TestRaisedTooOften(t *testing.T) {
	node := newNode(t, tokens)
	c, ctx := open(t, client.Config{Addrs: []string{serve(t, node, "", refunds).addr}, Timeout: long}), t.Context()
	r := limiter.Request{User: "ada", Cost: limiter.Units(1), Hold: time.Minute}
	if d, err := c.Reserve(ctx, &r); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	for i := int64(2); i <= limiter.MaxHoldParts+1; i++ {
		r.Cost = limiter.Units(i)
		_, err := c.Extend(ctx, r)
		if raised := errors.Is(err, client.ErrRaised); raised != (i > limiter.MaxHoldParts) || !raised && err != nil ||
			errors.Is(err, client.ErrSettled) {
			t.Fatalf("estimate %d: %v", i, err)
		}
	}
	if a, err := c.Settle(ctx, r, 7); err != nil || a.Estimate != limiter.MaxHoldParts {
		t.Errorf("%+v, %v", a, err)
	}
}

// A settlement with one number, of rules that have reserved different ones, has an error of its own, after which
// the reservation stands.
func TestCostsDiffer(t *testing.T) {
	node := newNode(t, `version: 1
defaults: {key: [user]}
rules: [{name: requests, continue: true, limits: [100/day]}, {name: tokens, limits: [4000/day], cost: {from: "attr:tokens", default: 1}}]
`)
	c, ctx := open(t, client.Config{Addrs: []string{serve(t, node, "", refunds).addr}, Timeout: long}), t.Context()
	r := limiter.Request{User: "ada", Hold: time.Minute, Attributes: map[string]string{"tokens": "2000"}}
	if d, err := c.Reserve(ctx, &r); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	if _, err := c.Settle(ctx, r, 800); !errors.Is(err, client.ErrCosts) || errors.Is(err, client.ErrSettled) ||
		!strings.Contains(err.Error(), "1 and 2000") {
		t.Errorf("%v", err)
	}
	if a, err := c.Cancel(ctx, r); err != nil || a.State != limiter.AmendDone {
		t.Errorf("%+v, %v", a, err)
	}
}

// What cannot be reserved or settled is refused as a node refuses it.
func TestBadReservations(t *testing.T) {
	node := newNode(t, tokens)
	c, ctx := open(t, client.Config{Addrs: []string{serve(t, node, "", refunds).addr}, Timeout: long}), t.Context()
	strict := open(t, client.Config{Addrs: []string{serve(t, node, "", nil).addr}, Timeout: long})
	r := limiter.Request{User: "ada", ID: "1", Hold: time.Minute}
	none := r
	none.ID = ""
	for i, test := range []struct {
		ask  func() error
		want error
	}{
		{func() error { _, err := c.Reserve(ctx, &limiter.Request{User: "ada"}); return err }, client.ErrInvalid},
		{func() error { _, err := c.Check(ctx, none); return err }, client.ErrInvalid},
		{func() error { _, err := c.Settle(ctx, limiter.Request{User: "ada"}, 1); return err }, client.ErrInvalid},
		{func() error { _, err := c.Settle(ctx, r, -1); return err }, client.ErrInvalid},
		{func() error { _, err := c.Extend(ctx, limiter.Request{User: "ada", ID: "1"}); return err }, client.ErrInvalid},
		{func() error { _, err := strict.Reserve(ctx, &r); return err }, client.ErrDenied},
		{func() error { _, err := strict.Settle(ctx, r, 1); return err }, client.ErrDenied},
		{func() error { _, err := strict.Cancel(ctx, r); return err }, client.ErrDenied},
		{func() error { _, err := strict.Extend(ctx, r); return err }, client.ErrDenied},
	} {
		if err := test.ask(); !errors.Is(err, test.want) {
			t.Errorf("%d: %v, want %v", i, err, test.want)
		}
	}
	if d, err := c.Peek(ctx, limiter.Request{User: "ada"}); err != nil || d.Limit(0).Remaining != 700 {
		t.Errorf("%+v, %v", d, err)
	}
}

// unheard is a node that settles and extends, and whose answers are lost.
type unheard struct {
	*weir.Node
	asked atomic.Int32
}

func (m *unheard) Settle(ctx context.Context, r limiter.Request, actual int64,
	opts ...limiter.SettleOption) (limiter.Amended, error) {
	m.asked.Add(1)
	_, err := m.Node.Settle(ctx, r, actual, opts...)
	panic(err)
}

func (m *unheard) Extend(ctx context.Context, r limiter.Request) (limiter.Amended, error) {
	m.asked.Add(1)
	_, err := m.Node.Extend(ctx, r)
	panic(err)
}

// A settlement whose answer is lost is sent to another node, and charges once.
func TestSettlementsAreRetried(t *testing.T) {
	node := newNode(t, tokens)
	first := &unheard{Node: node}
	c := open(t, client.Config{Addrs: []string{serve(t, first, "", refunds).addr, serve(t, node, "", refunds).addr},
		Timeout: long})
	eventually(t, "both are up", func() bool { return c.Stats().Up == 2 })
	ctx, r := t.Context(), limiter.Request{User: "ada", Cost: limiter.Units(100), Hold: time.Minute}
	if d, err := c.Reserve(ctx, &r); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	r.Cost = limiter.Units(300)
	if a, err := c.Extend(ctx, r); err != nil || a.State != limiter.AmendDone || a.Estimate != 300 {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := c.Settle(ctx, r, 250); err != nil || a.State != limiter.AmendRepeated {
		t.Errorf("%+v, %v", a, err)
	}
	// The first attempt found what the second tells, too: it is no answer that may be wrong.
	if _, err := c.Cancel(ctx, r); !errors.Is(err, client.ErrSettled) || errors.Is(err, client.ErrUnanswered) {
		t.Error(err)
	}
	if n := first.asked.Load(); n != 3 {
		t.Errorf("the first node was asked %d times, not 3", n)
	}
	if d, err := c.Peek(ctx, r); err != nil || d.Limit(0).Remaining != 450 {
		t.Errorf("%+v, %v", d, err)
	}
}

// The client takes a reply with an unknown state, or with an estimate above MaxUnits, for no answer.
func TestBadReplyToASettlement(t *testing.T) {
	for want, reply := range map[string]*weirv1.ReservationResponse{
		"state 77":         {State: 77},
		"9007199254740992": {Estimate: limiter.MaxUnits + 1},
	} {
		l := playAll(t, &script{settle: reply, stream: func(stream weirv1.Limiter_CheckStreamServer) error {
			<-stream.Context().Done()
			return nil
		}})
		c := open(t, client.Config{Addrs: []string{l.Addr().String()}, Timeout: long})
		_, err := c.Settle(t.Context(), limiter.Request{User: "ada", ID: "1"}, 1)
		if !errors.Is(err, client.ErrUnanswered) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", reply, err, want)
		}
	}
}

// What no settlement could name is not reserved: a slot that nobody can give back would stay for the whole hold.
func TestNoReservationThatCannotBeSettled(t *testing.T) {
	node := newNode(t,
		"version: 1\nrules: [{name: slots, hold: 1h, key: [group], limits: [{limit: 2, algorithm: concurrency}]}]\n")
	c := open(t, client.Config{Addrs: []string{serve(t, node, "", refunds).addr}, Timeout: long})
	for what, r := range map[string]limiter.Request{
		"user": {User: "\xff", ID: "1"}, "path": {Path: "/\xff", ID: "1"}, "id": {ID: "\xff"},
		"group":  {Group: "\xff", ID: "1"},
		"method": {Method: "\xff", ID: "1"}, "attribute": {Attributes: map[string]string{"plan": "\xff"}, ID: "1"},
	} {
		// that of the rule, of which only the node knows, and one of the request
		for _, hold := range []time.Duration{0, time.Minute} {
			r.Hold = hold
			for range 3 {
				if d, err := c.Check(t.Context(), r); !errors.Is(err, limiter.ErrInvalid) ||
					!strings.Contains(err.Error(), "UTF-8") {
					t.Fatalf("%s, %v: %+v, %v", what, hold, d, err)
				}
			}
			if _, err := c.Settle(t.Context(), r, 1); !errors.Is(err, limiter.ErrInvalid) ||
				!strings.Contains(err.Error(), "UTF-8") {
				t.Errorf("%s is settled: %v", what, err)
			}
		}
		if n, err := c.Reset(t.Context(), r); n != 0 || !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("%s is reset: %d, %v", what, n, err)
		}
	}
	if s := node.Stats(); s.Holds != 0 {
		t.Errorf("%d are held", s.Holds)
	}
}
