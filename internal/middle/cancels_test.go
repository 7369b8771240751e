package middle

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// What is unknown, or not answered, is cancelled once more, by what the request was at first.
func TestCancelsAgain(t *testing.T) {
	for _, wait := range []bool{false, true} {
		cancelsAgain(t, wait)
	}
}

func cancelsAgain(t *testing.T, wait bool) {
	for name, test := range map[string]struct {
		state limiter.AmendState
		err   error
		want  int
	}{"done": {limiter.AmendDone, nil, 1}, "unknown": {limiter.AmendUnknown, nil, 2},
		"failed": {limiter.AmendDone, errors.New("a test"), 2}} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex // guards at: Wait may leave a cancellation in the background
			var at []time.Time
			c := NewCancels(func(ctx context.Context, r limiter.Request, actual int64,
				opts ...limiter.SettleOption) (limiter.Amended, error) {
				mu.Lock()
				at = append(at, time.Now())
				mu.Unlock()
				if r.ID != "1" || r.Attributes["a"] != "b" || actual != 0 || !limiter.Settlement(opts...).IgnoreUnknown ||
					ctx.Err() != nil {
					t.Errorf("%s: %+v, %d, %v, %v", name, r, actual, limiter.Settlement(opts...), ctx.Err())
				}
				return limiter.Amended{State: test.state}, test.err
			})
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			q := limiter.Request{ID: "1", Attributes: map[string]string{"a": "b"}}
			if wait {
				c.Wait(ctx, &q)
				mu.Lock()
				n := len(at)
				mu.Unlock()
				if n != 1 {
					t.Errorf("%s: %d cancellations when Wait returned", name, n)
				}
			} else {
				c.Begin(ctx, &q)
			}
			clear(q.Attributes)
			q.ID = "2"
			time.Sleep(2 * cancelWithin)
			synctest.Wait()
			if len(at) != test.want || len(at) == 2 && at[1].Sub(at[0]) != cancelAgain {
				t.Errorf("%s: cancelled at %v", name, at)
			}
		})
	}
}

// There are so many cancellations at a time, and each ends in its time.
func TestCancelsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began atomic.Int64
		c := NewCancels(func(ctx context.Context, _ limiter.Request, _ int64, _ ...limiter.SettleOption) (limiter.Amended,
			error) {
			began.Add(1)
			<-ctx.Done()
			return limiter.Amended{}, ctx.Err()
		})
		for range maxCancels + 10 {
			c.Begin(t.Context(), new(limiter.Request))
		}
		synctest.Wait()
		if n := began.Load(); n != maxCancels {
			t.Errorf("%d began, want %d", n, maxCancels)
		}
		time.Sleep(cancelWithin)
		synctest.Wait()
		c.Begin(t.Context(), new(limiter.Request))
		synctest.Wait()
		if n := began.Load(); n != maxCancels+1 || len(c.under) != 1 {
			t.Errorf("after their time %d began, %d are under way", n, len(c.under))
		}
		time.Sleep(cancelWithin)
	})
}
