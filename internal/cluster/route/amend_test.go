package route

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// The answers of several owners are one, as that of one owner: an extension is done at all or at
// none, and then names no estimate. The longest wait is told, none if one of them never admits it.
func TestAmendmentsOfSeveralOwners(t *testing.T) {
	done := limiter.Amended{State: limiter.AmendDone, Estimate: 7}
	denied := func(d time.Duration) limiter.Amended {
		return limiter.Amended{State: limiter.AmendDenied, RetryAfter: d}
	}
	for name, test := range map[string]struct {
		a, b, want limiter.Amended
		settles    bool
	}{
		"done":           {done, limiter.Amended{Estimate: 9}, done, false},
		"denied":         {done, denied(time.Second), denied(time.Second), false},
		"denied by both": {denied(time.Second), denied(time.Minute), denied(time.Minute), false},
		"never":          {denied(time.Second), denied(0), denied(0), false},
		"full": {denied(time.Second), limiter.Amended{State: limiter.AmendFull},
			limiter.Amended{State: limiter.AmendFull}, false},
		"settled with 0": {limiter.Amended{State: limiter.AmendFull}, limiter.Amended{State: limiter.AmendSettled},
			limiter.Amended{State: limiter.AmendSettled}, false},
		"settled": {done, limiter.Amended{State: limiter.AmendSettled, First: 3},
			limiter.Amended{State: limiter.AmendSettled, First: 3}, false},
		"one is not known": {done, limiter.Amended{State: limiter.AmendUnknown}, done, false},
		"a settlement": {done, limiter.Amended{State: limiter.AmendCharged, Over: 2},
			limiter.Amended{State: limiter.AmendCharged, Estimate: 7, Over: 2}, true},
	} {
		for _, pair := range [][2]limiter.Amended{{test.a, test.b}, {test.b, test.a}} {
			got := together(&pair[0], &pair[1], !test.settles)
			if name == "done" && pair[0] != done { // the first one's estimate is told
				test.want.Estimate = 9
			}
			if *got != test.want {
				t.Errorf("%s: %+v, want %+v", name, *got, test.want)
			}
		}
	}
}
