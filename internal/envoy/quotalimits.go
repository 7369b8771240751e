package envoy

import (
	"time"

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
	q.limits.unassignable(c, 1, func(limit, why string) {
		if n++; n <= mostWarnings {
			q.log.Warn("a limit cannot be assigned to Envoys: its buckets are denied", "limit", limit, "why", why)
		}
	})
	if n > mostWarnings {
		q.log.Warn("limits cannot be assigned to Envoys", "limits", n)
	}
}

// Unassignable calls f with each limit of a configuration that [Quotas] cannot assign to so many Envoys, and why. The
// algorithm is that of limits whose file names none.
func Unassignable(c *config.Config, a limiter.Algorithm, envoys uint64, f func(limit, why string)) {
	l := newLimits(a, false, time.Now)
	l.unassignable(c, envoys, f)
}

// unassignable is Unassignable.
func (l *limits) unassignable(c *config.Config, envoys uint64, f func(limit, why string)) {
	_ = c.Each(func(of *config.Limit) error {
		if why := l.why(of, envoys); why != "" {
			f(of.Path, why)
		}
		return nil
	})
}

// why returns why slices of a limit cannot be assigned to so many Envoys, "" if they can.
func (l *limits) why(c *config.Limit, envoys uint64) string {
	if c.Unlimited || c.Requests == 0 || c.Shadow {
		return ""
	}
	counter, err := l.of(c, false)
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
	case envoys > 1 && few(counter, envoys):
		return whyFew
	}
	return ""
}

// whyFew is why some of several Envoys may be assigned nothing.
const whyFew = "it does not admit 20 requests at once and one a second for each Envoy"

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
