package transport

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/spelling"
)

// unknown says that there is no such thing, and names the one that was probably
// meant or, if none is near, all that there are.
func unknown(what, got string, known []string) error {
	if s := spelling.Nearest(got, known); s != "" {
		return invalid("unknown %s %s; did you mean %q?", what, quote(got), s)
	}
	return invalid("unknown %s %s; known: %s", what, quote(got), strings.Join(known, ", "))
}

// quote quotes a text that an asker sent for an error, not at any length.
func quote(s string) string {
	const most = 100
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return strconv.Quote(s)
}
