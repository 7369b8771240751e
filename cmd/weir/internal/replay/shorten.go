package replay

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/weirlimit/weir/limiter"
)

// The greatest length of values that are kept, and what remains of longer ones on each
// side of the digest that replaces the middle. Together they stay below
// limiter.MaxKeyBytes.
const (
	longPath, pathEnds   = 150, 58
	longValue, valueEnds = 44, 5
)

// shorten changes a request whose key is too long: the middle of long values is
// replaced by its digest. Equal values keep equal keys, and different values different
// keys. Patterns still match the ends of a path. shorten reports whether it changed
// anything.
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
