package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/weirtest"
)

// holders are concurrent users of one budget, and what they know of it together. What they count
// is at no instant more than what is charged: they add after an answer, and take off before they
// ask for it.
type holders struct {
	node      *weirtest.Node
	limit     int64
	used      atomic.Int64 // settled and held
	short     atomic.Int64 // how much estimates were too low
	abandoned atomic.Int64 // held, by who is gone
	denied    atomic.Int64 // checks
}

// hold makes one reservation, and ends it as luck has it.
func (h *holders) hold(rng *rand.Rand, id string, low bool) error {
	ctx := context.Background()
	estimate := 1 + rng.Int64N(20)
	r := weir.Request{User: "ada", ID: id, Hold: time.Minute, Cost: weir.Units(estimate)}
	d, err := h.node.Check(ctx, r)
	if err != nil || !d.Allowed {
		h.denied.Add(1)
		return err
	}
	if n, most := h.used.Add(estimate), h.limit+h.short.Load(); n > most {
		return fmt.Errorf("%d are settled and held, of %d", n, most)
	}
	if rng.IntN(4) == 0 {
		r.Cost = weir.Units(estimate + 5)
		switch a, err := h.node.Extend(ctx, r); {
		case err != nil:
			return err
		case a.State == weir.AmendDone:
			estimate += 5
			if n, most := h.used.Add(5), h.limit+h.short.Load(); n > most {
				return fmt.Errorf("%d are settled and held after an extension, of %d", n, most)
			}
		}
	}
	actual := rng.Int64N(estimate + 1)
	switch {
	case rng.IntN(5) == 0:
		h.abandoned.Add(estimate)
		return nil
	case low && rng.IntN(5) == 0:
		actual = estimate + rng.Int64N(10)
		h.short.Add(actual - estimate)
	}
	h.used.Add(actual - estimate)
	for again := range 1 + rng.IntN(3) { // a client that heard no answer asks again
		a, err := h.node.Settle(ctx, r, actual)
		if want := weir.AmendDone; err != nil || again == 0 && a.State != want || again > 0 && a.State != weir.AmendRepeated {
			return fmt.Errorf("settled with %d for the %dth time: %+v, %w", actual, again, a, err)
		}
	}
	if _, err := h.node.Settle(ctx, r, actual+1); !errors.Is(err, weir.ErrSettled) {
		return fmt.Errorf("settled with another number: %w", err)
	}
	return nil
}

// At no instant more is settled and held than the limit, if no estimate is too low, and else more
// by what they were too low in sum. A settlement counts once however often it is made, and what is
// abandoned comes back when its hold is over.
func TestReservationsAreBounded(t *testing.T) {
	for _, callers := range []int{10, 1000} {
		for _, algorithm := range []string{"fixed_window", "sliding_log", "token_bucket"} {
			for _, low := range []bool{false, true} {
				t.Run(fmt.Sprint(callers, algorithm, low), func(t *testing.T) {
					h := &holders{limit: 5000, node: weirtest.New(t,
						fmt.Sprintf("version: 1\nrules: [{name: budget, key: [user], limits: [{limit: 5000, window: 24h, algorithm: "+
							"%s}]}]\n", algorithm))}
					var all sync.WaitGroup
					for c := range callers {
						all.Go(func() {
							rng := rand.New(rand.NewPCG(7, uint64(c)))
							for i := range 2000 / callers {
								if err := h.hold(rng, fmt.Sprint(c, "-", i), low); err != nil {
									t.Error(err)
								}
							}
						})
					}
					all.Wait()
					h.left(t, max(h.limit-h.used.Load(), 0))
					if h.denied.Load() == 0 {
						t.Errorf("nothing was denied, with %d of %d used: the bound was not met", h.used.Load(), h.limit)
					}
					h.node.Advance(time.Minute)
					if d, err := h.node.Peek(t.Context(), limiter.Request{User: "ada"}); err != nil {
						t.Error(d, err)
					}
					if algorithm != "token_bucket" { // of a bucket comes back what has not leaked since
						h.left(t, max(h.limit-h.used.Load()+h.abandoned.Load(), 0))
					}
					if s := h.node.Stats(); s.Holds != 0 || h.abandoned.Load() == 0 || s.HoldsExpired == 0 {
						t.Errorf("%d holds, %d expired, %d abandoned units", s.Holds, s.HoldsExpired, h.abandoned.Load())
					}
				})
			}
		}
	}
}

func (h *holders) left(t *testing.T, want int64) {
	t.Helper()
	d, err := h.node.Peek(t.Context(), limiter.Request{User: "ada"})
	if err != nil || int64(d.Limit(0).Remaining) != want {
		t.Errorf("%d are left, want %d, %v", d.Limit(0).Remaining, want, err)
	}
}

// settlements counts what an observer is told of reservations.
type settlements struct{ told []string }

func (s *settlements) observer() *weir.Observer {
	return &weir.Observer{Settled: func(rule string, extended bool, state limiter.AmendState) {
		s.told = append(s.told, fmt.Sprint(rule, " ", extended, " ", state))
	}}
}

// An observer learns of each settlement, also of one that is refused.
func TestSettleObserver(t *testing.T) {
	seen := &settlements{}
	n := weirtest.Open(t, weir.Config{Observer: seen.observer(),
		Rules: []byte("version: 1\nrules: [{name: a, match: {path: ^/a}, limits: [{limit: 9, window: 1m}]}]\n")})
	ctx, r := t.Context(), weir.Request{Path: "/a", ID: "1", Hold: time.Second, Cost: weir.Units(5)}
	if d, err := n.Check(ctx, r); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	for _, cost := range []int64{7, 10} {
		r.Cost = weir.Units(cost)
		if _, err := n.Extend(ctx, r); err != nil {
			t.Error(err)
		}
	}
	for i, actual := range []int64{3, 3, 4} {
		if _, err := n.Settle(ctx, r, actual); (err != nil) != (i == 2) {
			t.Error(actual, err)
		}
	}
	for _, bad := range []weir.Request{{Path: "/a"}, {Path: "/b", ID: "1"}} { // without an id, or without a rule
		_, _ = n.Cancel(ctx, bad)
	}
	if want := []string{"a true done", "a true denied", "a false done", "a false repeated",
		"a false settled"}; !slices.Equal(seen.told, want) {
		t.Errorf("told %q, want %q", seen.told, want)
	}
}
