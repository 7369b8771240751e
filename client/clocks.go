package client

import (
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/lease"
	"github.com/weirlimit/weir/limiter"
)

// wallEvery is how often a check that a lease may decide looks at the wall clock. For so long a lease may admit that
// was over before the machine was awake again.
const wallEvery = limiter.Millisecond / 10

// clocks are two by which leases end: the first one stands still while the machine is suspended. It is safe for
// concurrent use.
type clocks struct {
	began  time.Time
	looked atomic.Int64 // when the wall clock was looked at, by the first one
	ahead  atomic.Int64 // by how much it was ahead of that
}

// now returns the instant by both.
func (x *clocks) now() lease.Instant {
	t := time.Now()
	now := lease.Instant{Now: 1 + limiter.Tick(t.Sub(x.began)/limiter.TickDuration), At: limiter.TickOf(t)}
	x.ahead.Store(int64(now.At - now.Now))
	x.looked.Store(int64(now.Now))
	return now
}

// soon returns it, too, in half of the time: it looks at the wall clock each wallEvery of the first one.
func (x *clocks) soon() lease.Instant {
	now := 1 + limiter.Tick(time.Since(x.began)/limiter.TickDuration)
	if passed := now - limiter.Tick(x.looked.Load()); passed < 0 || passed >= wallEvery {
		return x.now()
	}
	return lease.Instant{Now: now, At: now + limiter.Tick(x.ahead.Load())}
}
