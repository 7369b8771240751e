package main

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir/chaos/scenario"
)

// TestScenariosExist: what is to show a mutation can be run.
func TestScenariosExist(t *testing.T) {
	all := scenario.All()
	for name, s := range showings() {
		if s.scenario != "" && !slices.ContainsFunc(all, func(o scenario.Scenario) bool { return o.Name == s.scenario }) {
			t.Errorf("%s: there is no scenario %q", name, s.scenario)
		}
	}
}
