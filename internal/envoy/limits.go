package envoy

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/limiter"
)

// limits makes each limit once. Its zero value, with a clock, is empty.
type limits struct {
	algorithm limiter.Algorithm
	compat    bool
	now       func() time.Time

	latest atomic.Pointer[generation]
	mu     sync.Mutex // one writer of latest
}

// Bounds of the limits that are kept. A limit that is not asked for within two lives is
// forgotten, and so is one if maxLimits others were asked for since.
const (
	maxLimits = 4096
	limitLife = 10 * time.Minute
)

// generation has limits that were asked for since an instant, and those of the generation
// before it.
type generation struct {
	since  time.Time
	made   sync.Map // of limitKey to *limiter.Limit
	count  atomic.Int64
	before atomic.Pointer[generation]
}

type limitKey struct {
	unit     config.Unit
	requests uint32
	override bool
}

// of returns the limit that counts for a limit of a configuration. One that came with a
// request has a name with its numbers, so that it has counters of its own.
func (l *limits) of(c *config.Limit, override bool) (*limiter.Limit, error) {
	k := limitKey{c.Unit, c.Requests, override}
	g := l.generation()
	if v, ok := g.made.Load(k); ok {
		return v.(*limiter.Limit), nil
	}
	if old := g.before.Load(); old != nil {
		if v, ok := old.made.Load(k); ok {
			g.keep(k, v.(*limiter.Limit))
			return v.(*limiter.Limit), nil
		}
	}
	out, err := l.make(c, override)
	if err == nil {
		g.keep(k, out)
	}
	return out, err
}

// generation returns the latest generation. It begins another one if that is full or old.
func (l *limits) generation() *generation {
	now := l.now()
	fresh := func(g *generation) bool {
		return g != nil && g.count.Load() < maxLimits && now.Sub(g.since) < limitLife
	}
	g := l.latest.Load()
	if fresh(g) {
		return g
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if g = l.latest.Load(); fresh(g) {
		return g
	}
	next := &generation{since: now}
	if g != nil {
		g.before.Store(nil)
		next.before.Store(g)
	}
	l.latest.Store(next)
	return next
}

func (g *generation) keep(k limitKey, l *limiter.Limit) {
	if _, had := g.made.LoadOrStore(k, l); !had {
		g.count.Add(1)
	}
}

// make returns a new limit.
func (l *limits) make(c *config.Limit, override bool) (*limiter.Limit, error) {
	spec := limiter.Spec{Name: c.Unit.String(), Algorithm: l.algorithm, Limit: int64(c.Requests), Window: c.Unit.Length()}
	if override {
		spec.Name = fmt.Sprintf("%d-%s", c.Requests, c.Unit)
	}
	if l.compat {
		spec.CountRejected = limiter.CountAll
	}
	if l.algorithm == limiter.FixedWindow && c.Unit == config.Week {
		// Weeks of the original begin with the epoch, on a Thursday.
		spec.Window, spec.Calendar, spec.WeekStart = 0, limiter.CalendarWeek, limiter.Thursday
	}
	return limiter.NewLimit(spec)
}
