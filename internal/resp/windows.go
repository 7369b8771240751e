package resp

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/recent"
	"github.com/weirlimit/weir/limiter"
)

// Windows that begin with their first charge, as the two scripts of ulule/limiter v3 have them. The client compares
// the count with its limit, so the limit here is none.

const (
	// scriptIncrement adds to the count of a key, and says the count and in how many milliseconds it ends.
	scriptIncrement = "f74233f556d3f99c50b61169cf8aa8d5deb63fb2"
	// scriptCount says both of a key.
	scriptCount = "566f5c6a17e5fddb9a10bf389f754edd0d899c61"
)

// windowName is the name of these limits, and maxCount their bound. A rate without a burst is one.
const (
	windowName = "window"
	maxCount   = limiter.MaxUnits - 1
)

func window(period time.Duration) rate { return rate{units: maxCount, period: period} }

// periods remembers the periods of keys, in bounded number: scriptCount does not say it.
type periods struct {
	seed maphash.Seed
	of   *recent.Values[uint64, *atomic.Int64] // by the hash of a tenant and a key
}

// Bounds of the periods that are remembered.
const (
	maxPeriods = 16384
	periodLife = 24 * time.Hour
)

func newPeriods(now func() time.Time) periods {
	return periods{maphash.MakeSeed(), recent.New[uint64, *atomic.Int64](maxPeriods, periodLife, now)}
}

func (p *periods) key(tenant, key string) uint64 {
	return maphash.Comparable(p.seed, [2]string{tenant, key})
}

func (p *periods) keep(tenant, key string, period time.Duration) {
	k := p.key(tenant, key)
	kept, ok := p.of.Get(k)
	if !ok {
		kept = new(atomic.Int64)
		p.of.Keep(k, kept)
	}
	kept.Store(int64(period))
}

// get returns the period of a key, 0 if it is not known.
func (p *periods) get(tenant, key string) time.Duration {
	if kept, ok := p.of.Get(p.key(tenant, key)); ok {
		return time.Duration(kept.Load())
	}
	return 0
}

// increment runs scriptIncrement.
func increment(ctx context.Context, c *conn, name string, args []string) {
	most := limiter.MaxWindow.Milliseconds()
	if len(args) != 4 || args[0] != "1" {
		c.bad(ctx, name, commandError("the script of ulule/limiter takes 1 key and 2 arguments: count and period"))
		return
	}
	cost, err := integerOf("the count", args[2])
	period := int64(0)
	if err == nil {
		period, err = integerOf("the period", args[3])
	}
	switch {
	case err != nil:
	case cost < 1 || cost > maxCount:
		err = rangeError("the count", cost, 1, maxCount)
	case period < 1 || period > most:
		err = commandError(fmt.Sprintf("the period is %d: give 1 to %d milliseconds", period, most))
	}
	if err != nil {
		c.bad(ctx, name, err)
		return
	}
	w := window(time.Duration(period) * time.Millisecond)
	c.of.periods.keep(c.caller.Tenant(), args[1], w.period)
	c.addOwn(ctx, name, args[1], w, cost, formWindow)
}

// count runs scriptCount. A key whose period is not known here has counted nothing here.
func count(ctx context.Context, c *conn, name string, args []string) {
	if len(args) != 2 || args[0] != "1" {
		c.bad(ctx, name, commandError("the script of ulule/limiter takes 1 key and no argument"))
		return
	}
	period := cmp.Or(c.of.periods.get(c.caller.Tenant(), args[1]), time.Second) // nothing is charged by that
	c.addOwn(ctx, name, args[1], window(period), 0, formWindow)
}

// counted appends the reply of both scripts: the count, and the milliseconds until it ends.
func (r *reply) counted(d *limiter.Decision) {
	l := d.Limit(0)
	left := int64(0)
	if n := maxCount - int64(l.Remaining); n > 0 {
		left = limiter.Millis(l.ResetAfter)
	}
	r.array(2)
	r.integer(maxCount - int64(l.Remaining))
	r.integer(left)
}
