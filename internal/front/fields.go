package front

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Limits appends to dst the limits of a decision that callers should see, one for each
// name: if one limit has several counters (for the address and the user), the one
// nearest to denying. Shadow limits are omitted, since they never deny. The pointers
// are valid as long as the decision.
func Limits(dst []*limiter.LimitDecision, d *limiter.Decision) []*limiter.LimitDecision {
next:
	for i := range d.Len() {
		l := d.Limit(i)
		if l.Rule.Shadow {
			continue
		}
		for j, have := range dst {
			if have.Rule.Name == l.Rule.Name && have.Limit.Name() == l.Limit.Name() {
				if nearer(l, have) {
					dst[j] = l
				}
				continue next
			}
		}
		dst = append(dst, l)
	}
	return dst
}

// Nearest returns the limit with the least remaining; among equals the one with the
// longest time to recovery; nil if there is no limit.
func Nearest(limits []*limiter.LimitDecision) *limiter.LimitDecision {
	var out *limiter.LimitDecision
	for _, l := range limits {
		if out == nil || nearer(l, out) {
			out = l
		}
	}
	return out
}

func nearer(a, b *limiter.LimitDecision) bool {
	if a.Remaining != b.Remaining {
		return a.Remaining < b.Remaining
	}
	return a.ResetAfter > b.ResetAfter
}

// AppendPolicy appends the field RateLimit-Policy, as in revision 10 of the IETF draft
// "RateLimit header fields for HTTP": for each limit its name, its capacity (q) and the
// seconds in which that is granted again (w), rounded up, since the field has whole
// seconds: the window, or the time in which a bucket recovers. So r is never above q, and
// q at once is never refused. Calendar windows have no fixed length, so they have no w,
// which the draft allows, and nor has concurrency.
func AppendPolicy(dst []byte, limits []*limiter.LimitDecision) []byte {
	for i, l := range limits {
		dst = appendName(dst, i, l)
		dst = append(dst, ";q="...)
		dst = appendUnits(dst, l.Limit.Capacity())
		if l.Limit.Calendar() == limiter.CalendarNone && l.Limit.Algorithm() != limiter.Concurrency {
			dst = append(dst, ";w="...)
			dst = strconv.AppendInt(dst, limiter.Seconds(recovery(l.Limit)), 10)
		}
	}
	return dst
}

// recovery returns the time in which a limit grants its capacity.
func recovery(l *limiter.Limit) time.Duration {
	if l.Capacity() == l.Limit() || l.C.P.Burst == 0 {
		return l.Window()
	}
	// At most 100 years, see [limiter.Spec.Burst].
	hi, lo := bits.Mul64(uint64(l.Window()), l.Capacity())
	quo, rem := bits.Div64(hi, lo, l.Limit())
	if rem > 0 {
		quo++
	}
	return time.Duration(quo)
}

// AppendState appends the field RateLimit of the same draft: for each limit its name,
// what remains (r) and the seconds until it has recovered (t), rounded up.
func AppendState(dst []byte, limits []*limiter.LimitDecision) []byte {
	for i, l := range limits {
		dst = appendName(dst, i, l)
		dst = append(dst, ";r="...)
		dst = appendUnits(dst, l.Remaining)
		dst = append(dst, ";t="...)
		dst = strconv.AppendInt(dst, limiter.Seconds(Reset(l)), 10)
	}
	return dst
}

// maxInteger is the largest integer of structured fields (RFC 9651).
const maxInteger = 999_999_999_999_999

// appendUnits appends a number of units. A larger one than the field can say is told as the
// largest: there are at least as many.
func appendUnits(dst []byte, n uint64) []byte { return strconv.AppendUint(dst, min(n, maxInteger), 10) }

// appendName appends the name of item i, a string of structured fields (RFC 9651).
func appendName(dst []byte, i int, l *limiter.LimitDecision) []byte {
	if i > 0 {
		dst = append(dst, ", "...)
	}
	dst = append(dst, '"')
	dst = appendEscaped(dst, l.Rule.Name)
	dst = append(dst, '/')
	dst = appendEscaped(dst, l.Limit.Name())
	return append(dst, '"')
}

// appendEscaped appends the content of a quoted string: printable ASCII, with quotes
// and backslashes escaped. Other bytes are percent-encoded.
func appendEscaped(dst []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ' || c > '~':
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// Violated returns the names of the limits that denied, each once.
func Violated(d *limiter.Decision) []string {
	var out []string
	for _, l := range Denying(d) {
		out = append(out, l.FullName())
	}
	return out
}

// Denying returns the limits that denied, each name once.
func Denying(d *limiter.Decision) []*limiter.LimitDecision {
	var all []*limiter.LimitDecision
next:
	for i := range d.Len() {
		l := d.Limit(i)
		if l.Allowed || l.Rule.Shadow {
			continue
		}
		for _, have := range all {
			if have.Rule.Name == l.Rule.Name && have.Limit.Name() == l.Limit.Name() {
				continue next
			}
		}
		all = append(all, l)
	}
	return all
}

// RetryAfterSeconds returns the shortest wait before the same request may be allowed,
// in whole seconds, rounded up and at least 1. It returns false if no wait helps or
// none is needed.
func RetryAfterSeconds(d *limiter.Decision) (int64, bool) {
	if d.Allowed || d.Never {
		return 0, false
	}
	return max(1, limiter.Seconds(d.RetryAfter)), true
}

// StatusOf returns the HTTP status with which a service answers a denied check.
func StatusOf(d *limiter.Decision) int {
	if d.Source == limiter.SourceFallbackClosed {
		return 503 // the client is not at fault
	}
	if deny := d.Remarks().Deny; deny != nil {
		return deny.Status
	}
	return 429
}

// Why returns a text that explains why a check was denied.
func Why(d *limiter.Decision) string {
	b := d.BlockedBy()
	if d.Source == limiter.SourceRule {
		if deny := d.Remarks().Deny; deny != nil && deny.Reason != "" {
			return deny.Reason
		}
		return "The request is denied by a rule, whatever was sent before."
	}
	if b == nil {
		return "The limits cannot be looked up now, and without them nothing is let through."
	}
	name := b.FullName() + " (" + Rate(b.Limit) + ")"
	switch {
	case d.Never:
		return name + " never allows a cost of " + strconv.FormatUint(b.Cost, 10) +
			" at once; the most is " + strconv.FormatUint(b.Limit.Capacity(), 10) + "."
	case b.Blocked:
		return name + " was exceeded and denies everything for a while" + again(d)
	}
	return name + " is exceeded" + again(d)
}

func again(d *limiter.Decision) string {
	s, ok := RetryAfterSeconds(d)
	if !ok {
		return "."
	}
	return "; try again in " + strconv.FormatInt(s, 10) + " s."
}

// Rate returns a limit in the spelling of a rules file, such as 100/minute, or as
// 100/calendar month.
func Rate(l *limiter.Limit) string {
	return strconv.FormatUint(l.Limit(), 10) + "/" + l.Period()
}
