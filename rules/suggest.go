package rules

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

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

// shorten returns the beginning of a long text, and whether that is all of it.
func shorten(s string) (string, bool) {
	const most = 100
	if len(s) <= most {
		return s, true
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut], false
}

// quote quotes text from a file for use in an error.
func quote(s string) string {
	short, all := shorten(s)
	q := strconv.Quote(short)
	if !all {
		q += "..."
	}
	return q
}

// clip shortens an error text of the YAML library, which may quote large parts of the
// file, with line breaks.
func clip(s string) string {
	short, all := shorten(s)
	if short = strings.NewReplacer("\t", `\t`, "\n", `\n`).Replace(short); !all {
		short += "..."
	}
	return short
}

// nearest returns the most similar known word, "" if none is similar.
func nearest(got string, known []string) string {
	return spelling.Nearest(strings.ReplaceAll(got, "-", "_"), known)
}
