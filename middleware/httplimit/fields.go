package httplimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/internal/middle"
	"github.com/weirlimit/weir/limiter"
)

// Spelling is a family of header fields that report limits to callers. Field names do
// not depend on case; Go writes RateLimit as Ratelimit.
type Spelling uint8

// The spellings.
const (
	// IETF is RateLimit and RateLimit-Policy, as in revision 10 of the draft
	// "RateLimit header fields for HTTP", one item for each limit:
	//
	//	RateLimit-Policy: "towns/minute";q=100;w=60
	//	RateLimit: "towns/minute";r=50;t=30
	//
	// q is the limit and w its window in seconds; r is what remains and t the seconds
	// until all of it is available again. Seconds are rounded up, so a window of half a
	// second is shown as 1. For a limit with several keys, the counter nearest to
	// denying is shown. A name beyond ASCII is percent-encoded.
	IETF Spelling = iota
	// XRateLimit is X-RateLimit-Limit, X-RateLimit-Remaining and
	// X-RateLimit-Reset: the limit with the least remaining.
	XRateLimit
	// XRateDashLimit is X-Rate-Limit-Limit, X-Rate-Limit-Remaining and
	// X-Rate-Limit-Reset, with the same contents.
	XRateDashLimit

	spellingCount
)

// Reset is a form of the Reset fields of [XRateLimit] and [XRateDashLimit].
type Reset uint8

// The forms of a reset. The zero value is the default.
const (
	// ResetDelta is the number of seconds until all is available again, rounded up.
	ResetDelta Reset = iota
	// ResetEpoch is that instant, in seconds since 1970, rounded up.
	ResetEpoch
)

// writeFields writes the limits of a decision in the chosen spellings.
func (l *Limiter) writeFields(h http.Header, c *middle.Check) {
	if len(l.spellings) == 0 {
		return
	}
	c.Limits = front.Limits(c.Limits[:0], &c.Decision)
	if len(c.Limits) == 0 {
		return
	}
	for _, s := range l.spellings {
		switch s {
		case XRateLimit:
			l.writeThree(h, front.XRateLimit(), c)
		case XRateDashLimit:
			l.writeThree(h, front.Three{Limit: "X-Rate-Limit-Limit", Remaining: "X-Rate-Limit-Remaining",
				Reset: "X-Rate-Limit-Reset"}, c)
		default:
			c.Text = front.AddLists(h, c.Limits, c.Text)
		}
	}
}

// writeThree writes three fields about the nearest limit.
func (l *Limiter) writeThree(h http.Header, names front.Three, c *middle.Check) {
	n := front.Nearest(c.Limits)
	names.Set(h, n, l.resetText(n))
}

func (l *Limiter) resetText(n *limiter.LimitDecision) string {
	if l.reset == ResetDelta {
		return front.ResetSeconds(n)
	}
	at := l.now().Add(front.Reset(n))
	return decimal(at.Add(time.Second - 1).Unix())
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
