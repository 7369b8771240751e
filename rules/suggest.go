package rules

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
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

// nearest returns the known word that is a likely misspelling away from got, or
// "" if none is. Of equally near ones the first is returned.
func nearest(got string, known []string) string {
	const longest = 40 // no word in a rules file is longer
	if len(got) > longest {
		return ""
	}
	got = strings.ReplaceAll(strings.ToLower(got), "-", "_")
	best, bestDistance := "", max(1, len(got)/3)+1
	for _, k := range known {
		if d := distance(got, k); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is the number of characters to insert, delete, replace or swap with
// their neighbour to get from a to b (optimal string alignment).
func distance(a, b string) int {
	before := make([]int, len(b)+1) // the row before the last
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+change)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
