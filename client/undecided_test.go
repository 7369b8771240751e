package client_test

import (
	"context"
	"errors"
	"testing"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
)

// A decision that is used again never allows what an error left undecided.
func TestAnErrorLeavesNoEarlierAnswer(t *testing.T) {
	s := serve(t, newNode(t, hour), "", nil)
	c := open(t, client.Config{Addrs: []string{s.addr}, Timeout: long})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	good, bad := request("ada"), request("ada")
	bad.Path = string(make([]byte, limiter.MaxFieldBytes+1))
	ds := make([]limiter.Decision, 2)
	check := func(what string, want error, of int, ask func() error) {
		t.Helper()
		for i := range ds {
			if err := c.CheckInto(t.Context(), good, &ds[i]); err != nil || !ds[i].Allowed {
				t.Fatal(err, ds[i])
			}
		}
		if err := ask(); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		for i := range ds[:of] {
			if d := &ds[i]; d.Allowed || d.Len() > 0 || d.Rule != "" {
				t.Errorf("%s: decision %d is still %+v", what, i, d)
			}
		}
	}
	check("too long", client.ErrInvalid, 1, func() error { return c.CheckInto(t.Context(), bad, &ds[0]) })
	check("peek, too long", client.ErrInvalid, 1, func() error { return c.PeekInto(t.Context(), bad, &ds[0]) })
	check("ended", context.Canceled, 1, func() error { return c.CheckInto(ended, good, &ds[0]) })
	check("batch, ended", context.Canceled, 2, func() error {
		return c.CheckBatchInto(ended, []limiter.Request{*good, *good}, ds)
	})
	check("batch of another length", client.ErrInvalid, 2, func() error {
		return c.CheckBatchInto(t.Context(), []limiter.Request{*good}, ds)
	})
}
