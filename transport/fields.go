package transport

import (
	"net/http"

	fields "github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/limiter"
)

// writeFields reports the limits of a decision in header fields, as httplimit does, so that
// services and proxies can pass them on.
func writeFields(h http.Header, d *limiter.Decision) {
	var room [4]*limiter.LimitDecision
	limits := fields.Limits(room[:0], d)
	if len(limits) == 0 {
		return
	}
	fields.AddLists(h, limits, nil)
	nearest := fields.Nearest(limits)
	fields.XRateLimit().Set(h, nearest, fields.ResetSeconds(nearest))
}
