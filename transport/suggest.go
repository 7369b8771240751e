package transport

import (
	"fmt"
	"strconv"
	"strings"
)

// unknown says that there is no such thing, and names the one that was probably
// meant or, if none is near, all that there are.
func unknown(what, got string, known []string) error {
	if s := nearest(got, known); s != "" {
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

// nearest returns the known word that is a likely misspelling away from got, ""
// if none is; of several that are equally near, the first.
func nearest(got string, known []string) string {
	const longest = 40
	if len(got) > longest {
		return ""
	}
	got = strings.ToLower(got)
	best, least := "", max(1, len(got)/3)+1
	for _, k := range known {
		if d := edits(got, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// edits counts the characters to insert, delete or replace to make b of a; two
// that are swapped count as one.
func edits(a, b string) int {
	table := make([][]int, len(a)+1)
	for i := range table {
		table[i] = make([]int, len(b)+1)
		table[i][0] = i
	}
	for j := range table[0] {
		table[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := table[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			table[i][j] = min(replaced, table[i-1][j]+1, table[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				table[i][j] = min(table[i][j], table[i-2][j-2]+1)
			}
		}
	}
	return table[len(a)][len(b)]
}
