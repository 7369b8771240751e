package front

import (
	"errors"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// OfRequest reports whether an error of a decider can be the doing of whoever sent the request. Such a request must
// not pass where requests pass while the decider fails: otherwise its sender could pass uncounted.
func OfRequest(err error) bool {
	return errors.Is(err, limiter.ErrInvalid) || errors.Is(err, limiter.ErrScope) || errors.Is(err, limiter.ErrBudget) ||
		errors.Is(err, limiter.ErrSettled)
}

// RetryAfter returns how long an error says to wait before the request is sent again; 0 if it does not.
func RetryAfter(err error) time.Duration {
	var later interface{ RetryAfter() time.Duration }
	if errors.As(err, &later) {
		return later.RetryAfter()
	}
	return 0
}
