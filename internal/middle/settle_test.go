package middle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// slow is a decider whose checks reach it after their callers have hung up.
type slow struct {
	mu   sync.Mutex
	held map[string]bool // the reservations that it has, by id
}

func (s *slow) Settle(_ context.Context, r limiter.Request, _ int64,
	_ ...limiter.SettleOption) (limiter.Amended, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.held[r.ID] {
		return limiter.Amended{State: limiter.AmendUnknown}, nil
	}
	delete(s.held, r.ID)
	return limiter.Amended{}, nil
}

func (s *slow) reserve(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[id] = true
}

func (s *slow) reserved() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// A reservation that is made only after its caller has hung up, and after it was cancelled, is cancelled once more.
// Many at a time are.
func TestHangingUpLeavesNoReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		decider := &slow{held: map[string]bool{}}
		var c Core[func(), func(), func()]
		if err := c.Settle(time.Minute, false, func() {}); err != nil {
			t.Fatal(err)
		}
		if err := c.Complete(decider, "", false, nil); err != nil {
			t.Fatal(err)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		hangUp()
		for i := range 400 {
			c.Settling.GivenUp(ctx, &limiter.Request{ID: fmt.Sprint(i), Hold: time.Minute}, ctx.Err())
			decider.reserve(fmt.Sprint(i))
		}
		time.Sleep(2 * cancelAgain)
		synctest.Wait()
		if n := decider.reserved(); n > 0 {
			t.Errorf("%d reservations stay", n)
		}
		// What was certainly not reserved is not cancelled.
		decider.reserve("1")
		c.Settling.GivenUp(ctx, &limiter.Request{ID: "1", Hold: time.Minute}, errors.Join(limiter.ErrInvalid))
		if synctest.Wait(); decider.reserved() != 1 {
			t.Error("a request that is not valid was cancelled")
		}
	})
}
