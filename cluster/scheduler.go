package cluster

import (
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/limiter"
)

// scheduler is the clock and the timers of a core. The clock is the wall clock when the
// node was opened plus the time elapsed since, so it never steps.
type scheduler struct {
	opened time.Time
	start  limiter.Tick // opened, in ticks
	guard  *guard.Guard

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// Now implements core.Scheduler.
func (s *scheduler) Now() limiter.Tick {
	return s.start + limiter.Tick(time.Since(s.opened)/limiter.TickDuration)
}

// Wall returns the time of the wall clock, which goes on while the machine is suspended.
func (*scheduler) Wall() limiter.Tick { return limiter.TickOf(time.Now()) }

// After implements core.Scheduler. Functions that are due after [scheduler.close] are
// not called. A panic of f ends there.
func (s *scheduler) After(span limiter.Tick, f func()) {
	time.AfterFunc(span.Duration(), func() {
		if s.enter() {
			defer s.running.Done()
			defer s.guard.Recover(guard.Cluster, nil)
			f()
		}
	})
}

func (s *scheduler) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// close stops all timers and returns when no scheduled function is running.
func (s *scheduler) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
}
