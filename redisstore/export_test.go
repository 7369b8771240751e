package redisstore

import (
	"time"

	"github.com/weirlimit/weir/limiter"
)

// SetAhead makes a store believe that the server's clock is ahead of the local one.
// It last asked for it long ago.
func (s *Store) SetAhead(d time.Duration) {
	s.clock.timed.Store(int64(time.Since(s.clock.opened) - clockEvery))
	s.clock.ahead.Store(int64(d / limiter.TickDuration))
}

// Waiting returns how many jobs wait for a single server.
func (s *Store) Waiting() int { return len(s.single.queue) }

// LookAtMemory looks at the servers' memory now.
func (s *Store) LookAtMemory() { s.lookAtMemory() }
