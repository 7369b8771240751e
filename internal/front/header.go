package front

import (
	"strconv"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Field names of the draft, as net/http spells them in a Header.
const (
	fieldPolicy = "Ratelimit-Policy"
	fieldState  = "Ratelimit"
)

// maxLists bounds both fields of the draft together, in bytes. nginx reads the header of an answer into 4 KiB and makes
// an error of a longer one, as other proxies do at other bounds. Where requests pass while no node answers, all those
// that so many limits count would pass.
const maxLists = 3 << 10

// AppendLists appends both fields of the draft, and returns how long the first one, RateLimit-Policy, is. If they have
// more than 3 KiB, they have only the nearest limit: the draft lets a server choose. There must be a limit.
func AppendLists(dst []byte, limits []*limiter.LimitDecision) (out []byte, policy int) {
	begin := len(dst)
	dst = AppendPolicy(dst, limits)
	policy = len(dst) - begin
	if dst = AppendState(dst, limits); len(dst)-begin > maxLists && len(limits) > 1 {
		return AppendLists(dst[:begin], []*limiter.LimitDecision{Nearest(limits)})
	}
	return dst, policy
}

// AddLists adds both fields of the draft to the header of a response, see [AppendLists]. They are lists, so the
// values of an outer limiter are kept. text is memory to use; it returns that, for the next
// call. There must be a limit.
func AddLists(h map[string][]string, limits []*limiter.LimitDecision, text []byte) []byte {
	text, policy := AppendLists(text[:0], limits)
	all := string(text)
	values := [2]string{all[:policy], all[policy:]}
	add(h, fieldPolicy, values[:1:1])
	add(h, fieldState, values[1:])
	return text
}

// add appends to a field, or uses value itself if the field is new.
func add(h map[string][]string, key string, value []string) {
	if have := h[key]; len(have) > 0 {
		h[key] = append(have, value...)
		return
	}
	h[key] = value
}

// Three are the names of three fields, as net/http spells them: the limit of which the least
// remains, what remains of it, and its reset.
type Three struct{ Limit, Remaining, Reset string }

// XRateLimit returns the names X-RateLimit-Limit, X-RateLimit-Remaining and
// X-RateLimit-Reset.
func XRateLimit() Three {
	return Three{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
}

// Set writes the three fields about a limit, unless an outer limiter has written a nearer
// one.
func (t Three) Set(h map[string][]string, l *limiter.LimitDecision, reset string) {
	if have := h[t.Remaining]; len(have) > 0 {
		if told, err := strconv.ParseUint(have[0], 10, 64); err == nil && told < l.Remaining {
			return
		}
	}
	values := [3]string{
		strconv.FormatUint(l.Limit.Capacity(), 10),
		strconv.FormatUint(l.Remaining, 10),
		reset,
	}
	h[t.Limit], h[t.Remaining], h[t.Reset] = values[0:1:1], values[1:2:2], values[2:3:3]
}

// Reset returns the time until all of a limit is available again. Where the limit denied, that is no earlier than it
// may allow: a new key without room has nothing to recover from, and who waits for the reset alone would ask again at
// once.
func Reset(l *limiter.LimitDecision) time.Duration {
	if l.Allowed {
		return l.ResetAfter
	}
	return max(l.ResetAfter, l.RetryAfter)
}

// ResetSeconds returns Reset in seconds, rounded up, as the value of a field.
func ResetSeconds(l *limiter.LimitDecision) string {
	return strconv.FormatInt(limiter.Seconds(Reset(l)), 10)
}
