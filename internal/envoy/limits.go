package envoy

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/recent"
	"github.com/weirlimit/weir/limiter"
)

// limits makes each limit once.
type limits struct {
	algorithm limiter.Algorithm
	compat    bool
	kept      *recent.Values[limitKey, *limiter.Limit]
}

// Bounds of the limits that are kept.
const (
	maxLimits = 4096
	limitLife = 10 * time.Minute
)

func newLimits(a limiter.Algorithm, compat bool, now func() time.Time) limits {
	return limits{a, compat, recent.New[limitKey, *limiter.Limit](maxLimits, limitLife, now)}
}

type limitKey struct {
	unit     config.Unit
	requests uint32
	override bool
	form     config.Form
}

// of returns the limit that counts for a limit of a configuration. One that came with a
// request (override) has a name with its numbers, so that it has counters of its own.
func (l *limits) of(c *config.Limit, override bool) (*limiter.Limit, error) {
	k := limitKey{c.Unit, c.Requests, override, c.Form}
	if out, ok := l.kept.Get(k); ok {
		return out, nil
	}
	out, err := l.make(c, override)
	if err == nil {
		l.kept.Keep(k, out)
	}
	return out, err
}

func (l *limits) make(c *config.Limit, override bool) (*limiter.Limit, error) {
	spec := c.Spec(l.algorithm)
	if override {
		spec.Name = fmt.Sprintf("%d-%s", c.Requests, c.Unit)
		if n := c.Form.Multiplier; n > 1 {
			spec.Name = fmt.Sprintf("%d-%d-%s", c.Requests, n, c.Unit)
		}
	}
	if l.compat && c.Form.Estimate == 0 { // nobody uses the estimate of a request that is denied
		spec.CountRejected = limiter.CountAll
	}
	return limiter.NewLimit(spec)
}
