package transport

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/spelling"
)

// unknown returns an error for an unknown name. It suggests the most similar known one
// or, if none is similar, lists all.
func unknown(what, got string, known []string) error {
	if s := spelling.Nearest(got, known); s != "" {
		return invalid("unknown %s %s; did you mean %q?", what, quote(got), s)
	}
	return invalid("unknown %s %s; known: %s", what, quote(got), strings.Join(known, ", "))
}

// quote quotes a text from a client for use in an error, shortened if it is long.
func quote(s string) string {
	const most = 100
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return strconv.Quote(s)
}
