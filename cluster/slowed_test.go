package cluster

import (
	"math"
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

// An instant far ahead of the records before it and of the machine's clock is refused, and so is one with which nothing
// can be calculated. The first record is believed until others are far behind it.
func TestInstantsThatCannotBeTrue(t *testing.T) {
	const year = 366 * limiter.Day
	const today = 56 * year
	for name, of := range map[string]struct {
		now  limiter.Tick
		at   []limiter.Tick
		last limiter.Tick
		bad  int
		back bool
	}{
		"as it should be":          {today, []limiter.Tick{today - 9*year, today - 1, today - 2}, today - 1, 0, false},
		"out of range":             {today, []limiter.Tick{math.MaxInt64, math.MinInt64, -1, lastInstant + 1}, 0, 4, false},
		"the last is forged":       {today, []limiter.Tick{today, today + year + 1}, today, 1, false},
		"the first is forged":      {today, []limiter.Tick{lastInstant, today, today}, today, 0, true},
		"the machine shows 1970":   {0, []limiter.Tick{today, today + 1}, today + 1, 0, false},
		"and one is forged":        {0, []limiter.Tick{today, today + 2*year, today + 2}, today + 2, 1, false},
		"a month ahead":            {today, []limiter.Tick{today, today + year/12}, today + year/12, 0, false},
		"it was down for long":     {today, []limiter.Tick{today - 9*year, today - year}, today - year, 0, false},
		"it showed 1970 for a day": {today, []limiter.Tick{0, limiter.Day, today}, today, 0, false},
	} {
		i, bad := instants{now: of.now}, 0
		for _, at := range of.at {
			if i.take(at) != nil {
				bad++
			}
		}
		if i.last != of.last || bad != of.bad || i.back != of.back {
			t.Errorf("%s: %+v, and %d are refused", name, i, bad)
		}
	}
}
