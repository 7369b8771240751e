package cluster

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// A clock that is ahead of the machine's never goes back, loses a tenth of its speed, and then is the machine's.
func TestAClockThatIsAheadIsCaughtUp(t *testing.T) {
	at := 1000 * limiter.Hour
	c := slowed{ahead: 24 * limiter.Hour, since: at}
	last := c.at(at)
	if last != at+24*limiter.Hour {
		t.Fatalf("it begins %v ahead", (last - at).Duration())
	}
	for range 10 * 24 {
		at += limiter.Hour
		now := c.at(at)
		if gone := now - last; gone < limiter.Hour*9/10 || gone > limiter.Hour {
			t.Fatalf("%v go by in an hour", gone.Duration())
		}
		last = now
	}
	if at += limiter.Hour; c.at(at) != at {
		t.Errorf("it is still %v ahead", (c.at(at) - at).Duration())
	}
}
