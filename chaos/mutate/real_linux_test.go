package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/chaos/scenario"
)

// TestWanted: names that match nothing are errors, and not runs that show nothing.
func TestWanted(t *testing.T) {
	for _, row := range []struct {
		r    reality
		want string
	}{
		{reality{}, ""},
		{reality{only: "^relay$", scenarios: "flap,kill"}, ""},
		{reality{only: "nosuch"}, "no protection"},
		{reality{only: "("}, "regular expression"},
		{reality{scenarios: "flap,nosuch"}, `no scenario "nosuch"`},
	} {
		_, err := row.r.wanted()
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%+v: %v, want %q", row.r, err, row.want)
		}
	}
}

// TestScenariosExist: what is to show a mutation can be run.
func TestScenariosExist(t *testing.T) {
	all := scenario.All()
	for name, s := range showings() {
		if s.scenario != "" && !slices.ContainsFunc(all, func(o scenario.Scenario) bool { return o.Name == s.scenario }) {
			t.Errorf("%s: there is no scenario %q", name, s.scenario)
		}
	}
}
