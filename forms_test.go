package weir_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter/limitertest"
)

const formRules = "version: 1\nrules: [{name: all, match: {path: ^/all}, key: [user], limits: [2/minute, 100/hour]}]\n"

// The forms that return a decision decide as those that write into the caller's memory.
func TestFormsAgree(t *testing.T) {
	ctx, at := t.Context(), &clock{time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)}
	returned, written := open(t, weir.Config{Rules: []byte(formRules), Now: at.now}),
		open(t, weir.Config{Rules: []byte(formRules), Now: at.now})
	r := weir.Request{Path: "/all", User: "ada"}
	for i := range 4 {
		var p, d weir.Decision
		if err := errors.Join(written.PeekInto(ctx, &r, &p), written.CheckInto(ctx, &r, &d)); err != nil {
			t.Fatal(err)
		}
		peeked, err := returned.Peek(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		checked, err := returned.Check(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		if peeked.Allowed != (i < 2) || checked.Allowed != peeked.Allowed {
			t.Errorf("check %d: allowed %t, a peek before it %t", i, checked.Allowed, peeked.Allowed)
		}
		if one, other := returned.Answer(&r, &checked), written.Answer(&r, &d); !reflect.DeepEqual(one, other) {
			t.Errorf("check %d: returned %+v, written %+v", i, one, other)
		}
		if one, other := returned.Answer(&r, &peeked), written.Answer(&r, &p); !reflect.DeepEqual(one, other) {
			t.Errorf("peek %d: returned %+v, written %+v", i, one, other)
		}
	}
	rs := []weir.Request{{Path: "/all", User: "bob"}, {Rule: "unknown"}, {Path: "/all", User: "bob"},
		{Path: "/all", User: "bob"}}
	ds, err := returned.CheckBatch(ctx, rs)
	if bad, ok := errors.AsType[*weir.BatchError](err); !ok || len(bad.Index) != 1 || bad.Index[0] != 1 {
		t.Errorf("the error of the batch is %v", err)
	}
	var allowed []bool
	for _, d := range ds {
		allowed = append(allowed, d.Allowed)
	}
	if want := []bool{true, false, true, false}; !slices.Equal(allowed, want) {
		t.Errorf("the batch: allowed %v, want %v", allowed, want)
	}
}

// A decision that is returned with an error allows nothing.
func TestErrorsReturnNoDecision(t *testing.T) {
	n := open(t, weir.Config{Rules: []byte(formRules), Now: (&clock{time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)}).now})
	if d, err := n.Check(t.Context(), weir.Request{Rule: "unknown"}); !errors.Is(err, weir.ErrInvalid) || d.Allowed {
		t.Errorf("Check: allowed %t, %v", d.Allowed, err)
	}
	if d, err := n.Peek(t.Context(), weir.Request{Rule: "unknown"}); !errors.Is(err, weir.ErrInvalid) || d.Allowed {
		t.Errorf("Peek: allowed %t, %v", d.Allowed, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if ds, err := n.CheckBatch(ended, make([]weir.Request, 2)); !errors.Is(err, context.Canceled) || ds != nil {
		t.Errorf("CheckBatch after its context: %d decisions, %v", len(ds), err)
	}
}

// Allow counts a key by the limits that come with it, beside whatever rules there are.
func TestAllow(t *testing.T) {
	ctx, at := t.Context(), &clock{time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)}
	n := open(t, weir.Config{Rules: []byte(formRules), Now: at.now})
	minute, hour := limit(t, 1, time.Minute), limit(t, 3, time.Hour)
	for i, want := range []bool{true, false} {
		if d, err := n.Allow(ctx, "/all", minute, hour); err != nil || d.Allowed != want || d.Len() != 2 {
			t.Errorf("%d: %v, %+v", i, err, d)
		}
	}
	if d, err := n.Allow(ctx, "other", minute); err != nil || !d.Allowed {
		t.Errorf("another key: %v, %+v", err, d)
	}
	// The request that the documentation names is the same counter.
	r := weir.Request{Path: "other", Limits: []*weir.Limit{minute}}
	if d, err := n.Peek(ctx, r); err != nil || d.Allowed {
		t.Errorf("the same as a request: %v, %+v", err, d)
	}
	if reset, err := n.Reset(ctx, r); err != nil || reset != 1 {
		t.Errorf("%d counters were reset: %v", reset, err)
	}
	if d, err := n.Allow(ctx, "other", minute); err != nil || !d.Allowed {
		t.Errorf("after the reset: %v, %+v", err, d)
	}
	if d, err := n.Allow(ctx, "/all"); !errors.Is(err, weir.ErrInvalid) || d.Allowed {
		t.Errorf("without limits: %v, %+v", err, d)
	}
	if _, err := n.Allow(ctx, strings.Repeat("k", 8193), minute); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("a key of 8193 bytes: %v", err)
	}
}

// Wait returns when the check is allowed, and says at once if that cannot be.
func TestWait(t *testing.T) {
	n := open(t, weir.Config{})
	brief, long := limit(t, 1, 30*time.Millisecond), limit(t, 1, time.Hour)
	r := weir.Request{Path: "k", Limits: []*weir.Limit{brief}}
	for i := range 3 {
		if d, err := n.Wait(t.Context(), r); err != nil || !d.Allowed || d.Len() != 1 {
			t.Errorf("%d: %v, %+v", i, err, d)
		}
	}
	r.Cost = weir.Units(2)
	if d, err := n.Wait(t.Context(), r); !errors.Is(err, weir.ErrWait) || errors.Is(err, context.DeadlineExceeded) ||
		!d.Never {
		t.Errorf("more than the limit: %v, %+v", err, d)
	}
	soon, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	r = weir.Request{Path: "k", Limits: []*weir.Limit{long}}
	if d, err := n.Wait(soon, r); err != nil || !d.Allowed {
		t.Errorf("the first of an hour: %v, %+v", err, d)
	}
	if d, err := n.Wait(soon, r); !errors.Is(err, weir.ErrWait) || !errors.Is(err, context.DeadlineExceeded) ||
		d.RetryAfter <= time.Minute {
		t.Errorf("the second of an hour, within a minute: %v, %+v", err, d)
	}
	if _, err := n.Wait(soon, weir.Request{Rule: "unknown"}); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("an unknown rule: %v", err)
	}
}

func limit(tb testing.TB, n int64, window time.Duration) *weir.Limit {
	tb.Helper()
	l := limitertest.Limit(tb, weir.Spec{Limit: n, Window: window})
	return l
}
