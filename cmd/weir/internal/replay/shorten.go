package replay

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/weirlimit/weir/limiter"
)

// The longest values that are left alone, and what is left of longer ones on
// each side of the digest that takes the place of the rest. Together they stay
// below limiter.MaxKeyBytes.
const (
	longPath, pathEnds   = 150, 58
	longValue, valueEnds = 44, 5
)

// shorten makes of a request whose key is too long one with the same key for
// the same values and another for others: the middle of a long value gives way
// to its digest. What patterns ask of the ends of a path still holds. It
// reports whether there was anything to shorten.
func shorten(r *limiter.Request) bool {
	path, user, ip := r.Path, r.User, r.IP
	r.Path = shortened(r.Path, longPath, pathEnds)
	r.User = shortened(r.User, longValue, valueEnds)
	r.IP = shortened(r.IP, longValue, valueEnds)
	return r.Path != path || r.User != user || r.IP != ip
}

func shortened(s string, most, ends int) string {
	if len(s) <= most {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return s[:ends] + "~" + hex.EncodeToString(sum[:16]) + "~" + s[len(s)-ends:]
}
