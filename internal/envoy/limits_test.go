package envoy

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/limiter"
)

// Limits are made once, are bounded in number, and are forgotten when they were not used for
// two lives.
func TestLimitsExpire(t *testing.T) {
	now := time.Unix(0, 0)
	l := newLimits(limiter.FixedWindow, false, func() time.Time { return now })
	get := func(n uint32) *limiter.Limit {
		t.Helper()
		out, err := l.of(&config.Limit{Unit: config.Minute, Requests: n}, true)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	used, unused := get(1), get(2)
	for range 3 {
		now = now.Add(limitLife)
		if get(1) != used {
			t.Error("a limit that is used was made again")
		}
	}
	if n := l.kept.Len(); n != 2 {
		t.Errorf("%d limits are kept", n) // the used one, twice
	}
	if get(2) == unused {
		t.Error("a limit that was not used for three lives is still there")
	}
	for i := range uint32(20_000) {
		get(i + 1)
	}
	if n := l.kept.Len(); n > 2*maxLimits {
		t.Errorf("%d limits are kept", n)
	}
}
