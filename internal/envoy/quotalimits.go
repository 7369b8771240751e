package envoy

import (
	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/envoy/quota"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// mostWarnings bounds the limits of a configuration that are logged.
const mostWarnings = 8

// check logs which limits of a configuration cannot be assigned, once for each configuration.
func (q *Quotas) check(c *config.Config) {
	if q.checked.Swap(c) == c || c == nil {
		return
	}
	n := 0
	_ = c.Each(func(l *config.Limit) error {
		why := q.unassignable(l)
		if why == "" {
			return nil
		}
		if n++; n <= mostWarnings {
			q.log.Warn("a limit cannot be assigned to Envoys: its buckets are denied", "limit", l.Path, "why", why)
		}
		return nil
	})
	if n > mostWarnings {
		q.log.Warn("limits cannot be assigned to Envoys", "limits", n)
	}
}

// unassignable returns why slices of a limit cannot be assigned, "" if they can.
func (q *Quotas) unassignable(l *config.Limit) string {
	if l.Unlimited || l.Requests == 0 || l.Shadow {
		return ""
	}
	counter, err := q.limits.of(l, false)
	switch {
	case err != nil:
		return err.Error()
	case !arith.Lends(&limiter.Rule{Limits: []*limiter.Limit{counter}}, true):
		return "it has windows of a calendar"
	case perSecond(counter) == 0:
		return "it admits less than one request a second"
	case counter.Capacity() < leastBurst:
		return "it admits less than 20 requests at once"
	case arith.SlicesRate(counter, uint64(sizeOf(counter, 0))) == 0:
		return "beside what an Envoy may use at once it admits less than one request a second"
	}
	return ""
}

// few reports whether some of n Envoys may be assigned nothing of a limit: each needs a burst and a unit a second.
func few(l *limiter.Limit, n uint64) bool {
	size := uint64(sizeOf(l, 0))
	return l.Capacity()/max(size, leastBurst) < n || arith.SlicesRate(l, n*size) < n
}

// leastBurst is how many requests at once an Envoy needs, as they do not come evenly.
const leastBurst = 20

// sizeOf returns the size of a bucket for a limit. What a limit on windows admits at once it does not admit as a rate.
func sizeOf(l *limiter.Limit, smaller uint8) uint32 {
	if arith.Accrues(l) {
		return quota.Size(l.Capacity(), l.Capacity(), smaller)
	}
	return quota.Size(l.Capacity(), perSecond(l), smaller)
}

// perSecond returns how many units of a limit a second has.
func perSecond(l *limiter.Limit) uint64 {
	return uint64(float64(l.Limit()) / l.Window().Seconds())
}
