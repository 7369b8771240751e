// Package spelling finds the word that was probably meant.
package spelling

import "strings"

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
