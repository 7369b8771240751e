package client_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
)

type everything struct{}

func (everything) Permits(string) bool { return true }

// A request with a field that no message carries is refused before it is sent, by each method: else nodes would decide
// another request than the caller's.
func TestFieldsThatAreNotSent(t *testing.T) {
	c := open(t, client.Config{Addrs: []string{serve(t, newNode(t, hour), "", refunds).addr}, Timeout: long})
	ctx := t.Context()
	for name, r := range map[string]limiter.Request{
		"Tenant": {Tenant: "acme"}, "Caller": {Caller: "ada"}, "Scope": {Scope: everything{}}, "Lent": {Lent: true},
		"Rate": {Rate: 1}, "Fast": {Fast: true},
	} {
		r.Path, r.User, r.ID, r.Hold = "/towns", "ada", "1", time.Minute
		bad := func(_ any, err error) {
			t.Helper()
			if !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
		bad(c.Check(ctx, r))
		bad(c.Peek(ctx, r))
		bad(c.CheckWithReceipt(ctx, r))
		bad(c.Reserve(ctx, &r))
		bad(c.Settle(ctx, r, 1))
		bad(c.Cancel(ctx, r))
		bad(c.Extend(ctx, r))
		bad(c.Explain(ctx, r))
		bad(c.Reset(ctx, r))
		bad(nil, c.Refund(ctx, r, limiter.SealedReceipt("x")))
		_, err := c.CheckBatch(ctx, []limiter.Request{r, *request("ada")})
		var some *client.BatchError
		if !errors.As(err, &some) || len(some.Errs) != 1 || !errors.Is(some.Errs[0], client.ErrInvalid) {
			t.Errorf("%s in a batch: %v", name, err)
		}
	}
}

// A limit that is nil, or was not made by NewLimit, is refused as a node refuses it. An option that is nil says
// nothing.
func TestNilLimitsAndOptions(t *testing.T) {
	node := newNode(t, hour)
	c, ctx := open(t, client.Config{Addrs: []string{serve(t, node, "", refunds).addr}, Timeout: long}), t.Context()
	for _, l := range []*limiter.Limit{nil, new(limiter.Limit)} {
		r := limiter.Request{Path: "/towns", Limits: []*limiter.Limit{l}}
		_, want := node.Check(ctx, r)
		for _, ask := range []func() error{
			func() error { _, err := c.Check(ctx, r); return err },
			func() error { _, err := c.Allow(ctx, "key", l); return err },
			func() error { _, err := c.Explain(ctx, r); return err },
		} {
			if err := ask(); !errors.Is(err, client.ErrInvalid) || err.Error() != want.Error() {
				t.Errorf("%v, want %v", err, want)
			}
		}
	}
	r := limiter.Request{Path: "/towns", User: "ada", Hold: time.Minute}
	if _, err := c.Reserve(ctx, &r); err != nil {
		t.Fatal(err)
	}
	if a, err := c.Settle(ctx, r, 1, nil); err != nil || a.State != limiter.AmendDone {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := node.Settle(ctx, r, 1, nil, limiter.IgnoreUnknown()); err != nil || a.State != limiter.AmendRepeated {
		t.Errorf("%+v, %v", a, err)
	}
}
