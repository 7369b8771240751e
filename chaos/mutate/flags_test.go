package main

import (
	"strings"
	"testing"
)

// TestFlags: no run does other or less than was asked for.
func TestFlags(t *testing.T) {
	type given = map[string]bool
	for _, row := range []struct {
		args  []string
		given given
		seeds int
		r     reality
		want  string
	}{
		{seeds: 1},
		{given: given{"real": true, "trials": true, "seed": true}, seeds: 400, r: reality{trials: 5}},
		{args: []string{"fence"}, seeds: 1, want: "unknown argument"},
		{seeds: 0, want: "-seeds 0 is too few"},
		{given: given{"trials": true}, seeds: 1, want: "-trials works only with real processes"},
		{given: given{"real": true, "seeds": true}, seeds: 5, want: "-seeds works only with simulated runs"},
		{given: given{"real": true, "trials": true}, seeds: 5, r: reality{trials: -1}, want: "-trials -1 is negative"},
	} {
		err := check(row.args, row.given, row.seeds, &row.r)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%+v: %v, want %q", row, err, row.want)
		}
	}
}
