package rules

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirlimit/weir/internal/spelling"
)

// unknown says that there is no such thing, and which one was probably meant;
// if none is near, all that there are.
func unknown(what, got string, known []string) string {
	if s := nearest(got, known); s != "" {
		return fmt.Sprintf("unknown %s %s; did you mean %q?", what, quote(got), s)
	}
	return fmt.Sprintf("unknown %s %s; known: %s", what, quote(got), strings.Join(known, ", "))
}

// shorten returns the beginning of a long text, and whether it is all.
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

// quote quotes text from a file for an error.
func quote(s string) string {
	short, all := shorten(s)
	q := strconv.Quote(short)
	if !all {
		q += "..."
	}
	return q
}

// clip makes a message of the YAML library fit for an error: it may quote any
// amount of the file, line breaks included.
func clip(s string) string {
	short, all := shorten(s)
	if short = strings.NewReplacer("\t", `\t`, "\n", `\n`).Replace(short); !all {
		short += "..."
	}
	return short
}

// nearest returns the known word that was probably meant, "" if none is near.
func nearest(got string, known []string) string {
	return spelling.Nearest(strings.ReplaceAll(got, "-", "_"), known)
}
