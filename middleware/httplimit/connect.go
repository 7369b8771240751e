package httplimit

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// fieldTimeout is the field in which a client of the Connect protocol says how long it waits,
// in milliseconds, of at most ten digits.
const fieldTimeout = "Connect-Timeout-Ms"

// inTime returns a request whose context ends when the caller no longer waits, as far as it
// says so. A field that is not valid is left to the service, which answers it. The context of
// the result is that of the caller: if it ends, the caller has caused it.
func inTime(r *http.Request) (*http.Request, context.CancelFunc) {
	fields := r.Header[fieldTimeout]
	if len(fields) != 1 || len(fields[0]) > 10 {
		return r, func() {}
	}
	ms, err := strconv.ParseUint(fields[0], 10, 64)
	if err != nil {
		return r, func() {}
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(ms)*time.Millisecond)
	return r.WithContext(ctx), cancel
}
