package replay

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/weirlimit/weir/limiter"
)

// ends is what remains on each side of the digest that replaces the middle of a value which is too
// long for a node.
const ends = 1 << 10

// shorten changes a request with values that are too long: the middle of each is
// replaced by its digest. Equal values keep equal keys, and different values different
// keys. Patterns still match the ends of a path. shorten reports whether it changed
// anything.
func shorten(r *limiter.Request) bool {
	path, user, ip := r.Path, r.User, r.IP
	r.Path, r.User, r.IP = shortened(r.Path), shortened(r.User), addressFor(r.IP)
	return r.Path != path || r.User != user || r.IP != ip
}

func shortened(s string) string {
	if len(s) <= limiter.MaxFieldBytes {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return s[:ends] + "~" + hex.EncodeToString(sum[:16]) + "~" + s[len(s)-ends:]
}
