package client_test

import (
	"errors"
	"testing"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
)

// A client takes a charge back with the receipt of its check, once.
func TestRefund(t *testing.T) {
	n := newNode(t, "version: 1\nrules: [{name: a, key: [user], limits: [10/hour]}]\n")
	s := serve(t, n, "", func(o *transport.Options) { o.AllowRefunds = true })
	strict := serve(t, n, "", nil)
	c, ctx := open(t, client.Config{Addrs: []string{s.addr}}), t.Context()
	r := limiter.Request{User: "ada", Cost: limiter.Units(3)}
	d, err := c.CheckWithReceipt(ctx, r)
	if err != nil || !d.Allowed || d.Receipt.Sealed() == "" || d.Limit(0).Remaining != 7 {
		t.Fatalf("%+v, %v", d, err)
	}
	for range 2 {
		if err := c.Refund(ctx, r, d.Receipt); err != nil {
			t.Fatal(err)
		}
		if p, err := c.Peek(ctx, r); err != nil || p.Limit(0).Remaining != 10 {
			t.Errorf("%+v, %v", p, err)
		}
	}
	r.User = "bob"
	if err := c.Refund(ctx, r, d.Receipt); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("another's receipt: %v", err)
	}
	if d, err = c.Check(ctx, r); err != nil || d.Receipt != (limiter.Receipt{}) {
		t.Errorf("%+v, %v", d, err)
	}
	if err := c.Refund(ctx, r, d.Receipt); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("no receipt: %v", err)
	}
	other := open(t, client.Config{Addrs: []string{strict.addr}})
	if _, err := other.CheckWithReceipt(ctx, r); !errors.Is(err, client.ErrDenied) {
		t.Errorf("a receipt that is not allowed: %v", err)
	}
	if err := other.Refund(ctx, r, limiter.SealedReceipt("x")); !errors.Is(err, client.ErrDenied) {
		t.Errorf("a refund that is not allowed: %v", err)
	}
}
