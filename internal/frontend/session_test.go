package frontend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// maker is a decider whose checks are each the first of a key, but for those whose path is "bad", which fail.
type maker struct{ limit *limiter.Limit }

func newMaker(t *testing.T) maker {
	t.Helper()
	l := limitertest.Limit(t, limiter.Spec{Limit: 5, Window: time.Minute})
	return maker{l}
}

func (m maker) CheckInto(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
	if r.Path == "bad" {
		return limiter.ErrInvalid
	}
	d.Clear()
	d.Grow(1)
	*d.Limit(0) = limiter.LimitDecision{Limit: m.limit, Allowed: true, Cost: 1, Remaining: m.limit.Capacity() - 1}
	d.Allowed = true
	return nil
}

func (m maker) PeekInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return m.CheckInto(ctx, r, d)
}

func (m maker) CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	return oneByOne(ctx, m, rs, ds, make([]bool, len(rs)))
}

func (maker) Reset(context.Context, limiter.Request) (int, error) { return 0, limiter.ErrUnanswered }

func (maker) Settle(_ context.Context, r limiter.Request, _ int64, _ ...limiter.SettleOption) (limiter.Amended, error) {
	return limiter.Amended{State: limiter.AmendCharged, Keys: 2, Known: known(r)}, nil
}

// known is how many keys of a settlement had counters before.
func known(r limiter.Request) int { return len(r.Path) }

func (maker) Extend(context.Context, limiter.Request) (limiter.Amended, error) {
	return limiter.Amended{State: limiter.AmendDone}, nil
}

// purse is a caller that may do everything, and keeps what its budget of new keys is charged with.
type purse struct {
	Caller
	spent []int
}

func (*purse) Name() string                           { return "shop" }
func (*purse) Tenant() string                         { return "mall" }
func (*purse) CountsKeys() bool                       { return true }
func (p *purse) SpendKeys(n int)                      { p.spent = append(p.spent, n) }
func (p *purse) Identify(Credentials) (Caller, error) { return p, nil }
func (p *purse) spends(t *testing.T, what string, n ...int) {
	t.Helper()
	if !slices.Equal(p.spent, n) {
		t.Errorf("%s: the budget of new keys is charged with %v, want %v", what, p.spent, n)
	}
	p.spent = nil
}

// Whatever decides charges the budget of new keys: each decision at once, or all that are gathered together. What only
// looks charges nothing, nor does what fails.
func TestWhatDecidesSpendsKeys(t *testing.T) {
	p := new(purse)
	s, err := New(Config{Decider: newMaker(t), Access: p}, Protocol{}).Identify(nil, Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	var d limiter.Decision
	rs, ds := []limiter.Request{{}, {Path: "bad"}, {}}, make([]limiter.Decision, 3)
	check := func(peek bool) { _ = s.Check(t.Context(), &rs[0], &d, peek) }
	decide := func(peeks []bool) {
		some, ok := errors.AsType[*limiter.BatchError](s.Decide(t.Context(), rs, ds, peeks))
		if !ok || !slices.Equal(some.Index, []int{1}) {
			t.Errorf("the errors of a batch: %v", some)
		}
	}
	check(false)
	p.spends(t, "a check", 1)
	check(true)
	p.spends(t, "a peek")
	decide(nil)
	p.spends(t, "a batch", 2)
	decide([]bool{true, false, false})
	p.spends(t, "a batch with a peek", 1)
	_ = s.Peek(t.Context(), rs, ds)
	p.spends(t, "a batch of peeks")
	_, _ = s.Settle(t.Context(), rs[0], 1)
	p.spends(t, "a settlement that charges", 2)
	_, _ = s.Settle(t.Context(), limiter.Request{Path: "1"}, 1)
	p.spends(t, "a settlement that charges one key that is known", 1)
	_, _ = s.Settle(t.Context(), limiter.Request{Path: "12"}, 1)
	p.spends(t, "a settlement that charges known keys")
	_, _ = s.Extend(t.Context(), rs[0])
	p.spends(t, "an extension")
	spend := s.Gather()
	check(false)
	decide(nil)
	p.spends(t, "what is gathered")
	spend()
	p.spends(t, "the end of the gathering", 3)
	check(false)
	p.spends(t, "a check after it", 1)
}

type told []string

func (e *told) Audited(x AuditEvent) {
	*e = append(*e, fmt.Sprint(x.Action, " ", x.Outcome, " ", x.Caller, "/", x.Tenant, " ", x.From, " ", x.Over, " ",
		x.Why))
}

// The audit is told of each refusal, and of what became of all else that is accounted. The text of what is not valid
// has parts of the request, and is left out.
func TestAccounts(t *testing.T) {
	var e told
	s, _ := New(Config{Access: new(purse), Audit: &e}, Protocol{Over: "x"}).Identify(Address("here"), Credentials{})
	for _, err := range []error{nil, fmt.Errorf("%w: a secret", limiter.ErrInvalid), ForbiddenError("no"),
		limiter.ErrUnanswered} {
		s.Account("check", false, err)
		s.Account("reset", true, err)
	}
	want := told{
		"reset done shop/mall here x ", "reset failed shop/mall here x ", "check refused shop/mall here x no",
		"reset refused shop/mall here x no", "reset failed shop/mall here x " + limiter.ErrUnanswered.Error(),
	}
	if !slices.Equal(e, want) {
		t.Errorf("%q", e)
	}
}
