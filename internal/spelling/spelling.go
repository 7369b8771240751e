// Package spelling finds the word that was probably meant, and puts the words of others into errors.
package spelling

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Nearest returns the known word that is a likely misspelling away from got, in
// whatever case that is, or "" if none is. Of equally near ones the first is returned.
func Nearest(got string, known []string) string {
	const longest = 40 // what is longer is no misspelling of a word
	if len(got) > longest {
		return ""
	}
	got = strings.ToLower(got)
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

// Quote quotes text of others for use in an error. What is longer than 100 bytes is shortened.
func Quote(s string) string {
	short, all := shorten(s)
	q := strconv.Quote(short)
	if !all {
		q += "..."
	}
	return q
}

// Clip shortens an error text of the YAML library, which may quote large parts of the
// file, with line breaks.
func Clip(s string) string {
	short, all := shorten(s)
	if short = strings.NewReplacer("\t", `\t`, "\n", `\n`).Replace(short); !all {
		short += "..."
	}
	return short
}

// Want returns what to give in place of a value that the standard library could not read. The text of any other error
// stays as it is.
func Want(err error) string {
	var number *strconv.NumError
	switch {
	case !errors.As(err, &number):
		if strings.HasPrefix(err.Error(), "time: ") {
			return "give a time such as 1h30m, 5s or 100ms"
		}
		return err.Error()
	case errors.Is(err, strconv.ErrRange):
		return "give a number nearer to 0"
	case number.Func == "ParseBool":
		return "give true or false"
	case number.Func == "ParseFloat":
		return "give a number"
	}
	return "give a whole number"
}
