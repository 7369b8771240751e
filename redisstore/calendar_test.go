package redisstore_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/redisstore"
)

// A store whose estimate of the server's clock is wrong by days, or by years, gets
// nothing decided by wrong windows: the call is made again with the right ones.
func TestCalendarsByAWrongClock(t *testing.T) {
	s := openStore(t, redisstore.Config{Addrs: []string{startServer(t).addr()}})
	l := limitertest.Limit(t, limiter.Spec{Limit: 2, Calendar: limiter.CalendarMinute, Zone: "Europe/Berlin"})
	for n, ahead := range []time.Duration{0, 400 * 24 * time.Hour, -10 * time.Hour} {
		s.SetAhead(ahead)
		var c arith.Charge
		c.Add(arith.Key{Hash: arith.Hash{Hi: 77, Lo: uint64(n)},
			Rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}}, Cost: 1})
		var d limiter.Decision
		if err := s.Decide(t.Context(), arith.Instant{}, []*arith.Charge{&c}, []*limiter.Decision{&d}, nil); err != nil {
			t.Fatal(err)
		}
		if d.Source != limiter.SourceRedis || !d.Allowed || d.Limit(0).Remaining != 1 ||
			d.Limit(0).ResetAfter > time.Minute || d.Limit(0).ResetAfter <= 0 {
			t.Errorf("ahead by %v: %v, %+v", ahead, d.Source, d.Limit(0))
		}
	}
}
