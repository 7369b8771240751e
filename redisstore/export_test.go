package redisstore

import (
	"time"

	"github.com/weirlimit/weir/limiter"
)

// SetAhead makes a store believe that the server's clock is ahead of the local one.
func (s *Store) SetAhead(d time.Duration) { s.ahead.Store(int64(d / limiter.TickDuration)) }
