package rules

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/internal/spelling"
)

// unknown returns an error text for an unknown name. It suggests the most similar known
// one or, if none is similar, lists all.
func unknown(what, got string, known []string) string {
	if s := nearest(got, known); s != "" {
		return fmt.Sprintf("unknown %s %s; did you mean %q?", what, quote(got), s)
	}
	return fmt.Sprintf("unknown %s %s; known: %s", what, quote(got), strings.Join(known, ", "))
}

// nearest returns the most similar known word, "" if none is similar.
func nearest(got string, known []string) string {
	return spelling.Nearest(strings.ReplaceAll(got, "-", "_"), known)
}

// quote quotes text from a file for use in an error, and clip shortens it.
func quote(s string) string { return spelling.Quote(s) }
func clip(s string) string  { return spelling.Clip(s) }
