package redisstore

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// numbers packs numbers of so many bytes each.
func numbers(pairs ...int) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(pairs[i]))
		b.Write(n[:pairs[i+1]])
	}
	return b.String()
}

// FuzzDecode decodes arbitrary values, since anyone who can write to Redis can store
// them. A decoded value can be explained.
func FuzzDecode(f *testing.F) {
	window := limiter.Tick(time.Minute / time.Microsecond)
	var limits []*limiter.Limit
	for _, a := range []limiter.Algorithm{
		limiter.FixedWindow, limiter.SlidingLog, limiter.SlidingWindow, limiter.SlidingCounter, limiter.TokenBucket,
		limiter.LeakyBucket, limiter.GCRA, limiter.Concurrency,
	} {
		spec := limiter.Spec{Algorithm: a, Limit: 10, Window: window.Duration()}
		if a == limiter.Concurrency {
			spec.Window = 0
		}
		l := limitertest.Limit(f, spec)
		limits = append(limits, l)
		text, _ := newParams(l).text.(string)
		for _, state := range []string{
			"", numbers(1, 7, 2, 7, 3, 4), numbers(1, 7, 2, 7, 3, 4, 4, 4),
			numbers(1000, 7, 0, 7, 0, 4, 1, 4, 0, 6, 5, 6, 1000, 6, 5, 6),
			numbers(1, 7, 2, 7, 1<<32-1, 4, 1<<32-1, 4, 0, 6, 0, 6), // says that it has more than there is
		} {
			f.Add(text+state, int64(2000))
		}
	}
	for _, text := range []string{"[0,1,2,3,4,5,6]", "[1,1,2,3,4,5,6]", "[3,1,60000000,3,0,0,0]",
		"[4,1,60000000,3,0,0,-1,0,0]", "[8,1,60000000,3,0,0,1]"} {
		f.Add(text+numbers(1, 7, 2, 7, 3, 4), int64(2000))
	}
	f.Fuzz(func(t *testing.T, value string, now int64) {
		if now < 0 || now > 1<<55 {
			return // no clock says so
		}
		for _, l := range limits {
			c, err := decode(value, l, nil, limiter.Tick(now))
			if err == nil {
				c.state.Explain(l, c.words, limiter.Tick(now), &limiter.LimitDecision{Limit: l, Cost: 1})
			}
		}
	})
}
