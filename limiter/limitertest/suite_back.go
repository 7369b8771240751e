package limitertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// clockGoesBack: the clock may go back. A counter charged before stays charged, admits
// no more because of it, and returns correct waits. Other counters are not affected.
func clockGoesBack(t *testing.T, f Factory) {
	eachAlgorithm(t, func(t *testing.T, a limiter.Algorithm) {
		for _, drip := range []limiter.Drip{limiter.DripContinuous, limiter.DripInterval} {
			if a != limiter.LeakyBucket && drip != limiter.DripContinuous {
				continue
			}
			spec := limiter.Spec{Algorithm: a, Limit: 5, Window: time.Minute, Drip: drip}
			t.Run(drip.String(), func(t *testing.T) { goBack(t, f, spec) })
		}
	})
}

const (
	ahead  = 10 * limiter.Minute // by how much the clock goes back
	others = 300                 // keys charged before it does, and the same number after
)

func goBack(t *testing.T, f Factory, spec limiter.Spec) {
	file := new(rulesFile)
	file.add("r", spec)
	ask := newAsker(t, f, file.String())
	began := ask.now
	// story exceeds a key's limit, waits as long as the answer says, and checks again.
	story := func(user string, from Tick) string {
		var told []string
		at := func(now Tick) *limiter.Decision {
			ask.now = now
			ask.s.SetTime(now)
			d := ask.check("r", user, 1)
			told = append(told, describe(d)...)
			return d
		}
		for range 5 {
			at(from)
		}
		wait := limiter.Span(at(from).RetryAfter)
		at(from + wait - stepOf(ask.s))
		at(from + wait)
		return strings.Join(told, "\n")
	}
	want := story("before", began)
	for i := range others {
		ask.now = began + ahead
		ask.s.SetTime(ask.now)
		ask.check("r", fmt.Sprint("ahead", i), 2)
	}
	wrong, first := 0, ""
	for i := range others {
		if got := story(fmt.Sprint("fresh", i), began); got != want {
			wrong++
			first = got
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d new keys are decided otherwise after others were seen %v later: one of them\n%s\ninstead of\n%s",
			wrong, others, ahead.Duration(), first, want)
	}

	// Keys that were charged 2 of 5 ahead are now checked before that instant.
	for _, early := range []bool{true, false} {
		user := "ahead0"
		if early {
			user = "ahead1"
		}
		ask.now = began
		ask.s.SetTime(began)
		for i := range 3 {
			if d := ask.check("r", user, 1); !d.Allowed || d.Limit(0).Remaining != uint64(2-i) {
				t.Fatalf("check %d of a key with 2 of 5 charged ahead, by a clock that went back: %v", i+1, describe(d))
			}
		}
		d := ask.check("r", user, 1)
		if d.Allowed || limiter.Span(d.RetryAfter) < ahead-limiter.Minute {
			t.Fatalf("a sixth unit by a clock that went back: %v", describe(d))
		}
		wait := limiter.Span(d.RetryAfter)
		if early {
			wait -= stepOf(ask.s)
		}
		ask.goTo(began + wait)
		if d := ask.check("r", user, 1); d.Allowed == early {
			t.Errorf("asked again %v after a denial that told %v: %v", wait.Duration(), d.RetryAfter, describe(d))
		}
	}
}
