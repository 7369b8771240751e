package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// The forms that return a decision decide as those that write into the caller's memory.
func TestForms(t *testing.T) {
	ctx, s := t.Context(), serve(t, newNode(t, "version: 1\nrules: [{name: all, key: [rule, user], limits: [2/hour]}]\n"),
		"", nil)
	c := open(t, client.Config{Addrs: []string{s.addr}, Timeout: long})
	for i, want := range []bool{true, true, false} {
		p, err := c.Peek(ctx, *request("ada"))
		if err != nil || p.Allowed != want {
			t.Errorf("peek %d: %v, %+v", i, err, p)
		}
		d, err := c.Check(ctx, *request("ada"))
		if err != nil || d.Allowed != want {
			t.Errorf("check %d: %v, %+v", i, err, d)
		}
	}
	ds, err := c.CheckBatch(ctx, []limiter.Request{*request("bob"), {Rule: "unknown"}, *request("bob"), *request("bob")})
	if bad, ok := errors.AsType[*client.BatchError](err); !ok || len(bad.Index) != 1 || bad.Index[0] != 1 {
		t.Errorf("the error of the batch is %v", err)
	}
	for i, want := range []bool{true, false, true, false} {
		if ds[i].Allowed != want {
			t.Errorf("request %d of the batch: allowed %t", i, ds[i].Allowed)
		}
	}
	l := limitertest.Limit(t, limiter.Spec{Limit: 1, Window: time.Hour})
	for i, want := range []bool{true, false} {
		if d, err := c.Allow(ctx, "key", l); err != nil || d.Allowed != want {
			t.Errorf("Allow %d: %v, %+v", i, err, d)
		}
	}
	if d, err := c.Allow(ctx, "key"); !errors.Is(err, client.ErrInvalid) || d.Allowed {
		t.Errorf("Allow without limits: %v, %+v", err, d)
	}
	brief := limitertest.Limit(t, limiter.Spec{Limit: 1, Window: 30 * time.Millisecond})
	for i := range 3 {
		if d, err := c.Wait(ctx, limiter.Request{Path: "waits", Limits: []*limiter.Limit{brief}}); err != nil || !d.Allowed {
			t.Errorf("Wait %d: %v, %+v", i, err, d)
		}
	}
	soon, end := context.WithTimeout(ctx, 10*time.Minute)
	defer end()
	if d, err := c.Wait(soon, *request("ada")); !errors.Is(err, limiter.ErrWait) ||
		!errors.Is(err, context.DeadlineExceeded) || d.RetryAfter == 0 {
		t.Errorf("Wait for an hour within ten minutes: %v, %+v", err, d)
	}
	if d, err := c.Check(ctx, limiter.Request{Rule: "unknown"}); !errors.Is(err, client.ErrInvalid) || d.Allowed {
		t.Errorf("Check of what is invalid: %v, %+v", err, d)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if ds, err := c.CheckBatch(ctx, make([]limiter.Request, 2)); err == nil || len(ds) != 2 || ds[0].Allowed ||
		ds[1].Allowed {
		t.Errorf("CheckBatch after Close: %v, %+v", err, ds)
	}
}
