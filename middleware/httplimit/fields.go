package httplimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/internal/front"
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

// Field names, as net/http spells them in a Header.
const (
	fieldPolicy = "Ratelimit-Policy"
	fieldState  = "Ratelimit"
)

// writeFields writes the limits of a decision in the chosen spellings.
func (l *Limiter) writeFields(h http.Header, c *check) {
	if len(l.spellings) == 0 {
		return
	}
	c.limits = front.Limits(c.limits[:0], &c.decision)
	if len(c.limits) == 0 {
		return
	}
	for _, s := range l.spellings {
		switch s {
		case XRateLimit:
			l.writeThree(h, "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", c)
		case XRateDashLimit:
			l.writeThree(h, "X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", c)
		default:
			writeLists(h, c)
		}
	}
}

// writeLists writes both fields of the draft. They are lists, so the values of an outer
// limiter are kept.
func writeLists(h http.Header, c *check) {
	c.text = front.AppendPolicy(c.text[:0], c.limits)
	policy := len(c.text)
	c.text = front.AppendState(c.text, c.limits)
	text := string(c.text)
	values := [2]string{text[:policy], text[policy:]}
	add(h, fieldPolicy, values[:1:1])
	add(h, fieldState, values[1:])
}

// add appends to a field, or uses value itself if the field is new.
func add(h http.Header, key string, value []string) {
	if have := h[key]; len(have) > 0 {
		h[key] = append(have, value...)
		return
	}
	h[key] = value
}

// writeThree writes the nearest limit, unless an outer limiter has written a nearer
// one.
func (l *Limiter) writeThree(h http.Header, limit, remaining, reset string, c *check) {
	n := front.Nearest(c.limits)
	if have := h[remaining]; len(have) > 0 {
		if told, err := strconv.ParseUint(have[0], 10, 64); err == nil && told < uint64(n.Remaining) {
			return
		}
	}
	values := [3]string{
		strconv.FormatUint(uint64(n.Limit.Capacity()), 10),
		strconv.FormatUint(uint64(n.Remaining), 10),
		l.resetText(n),
	}
	h[limit], h[remaining], h[reset] = values[0:1:1], values[1:2:2], values[2:3:3]
}

func (l *Limiter) resetText(n *limiter.LimitDecision) string {
	if l.reset == ResetDelta {
		return decimal(limiter.Seconds(n.ResetAfter))
	}
	at := l.now().Add(n.ResetAfter)
	return decimal(at.Add(time.Second - 1).Unix())
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
