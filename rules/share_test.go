package rules_test

import (
	"testing"

	"github.com/weirlimit/weir/rules"
)

// A rule's share of the table is a percentage, its own or the defaults'. It is part of
// what a file means, and files without one mean what they meant.
func TestMaxShare(t *testing.T) {
	set := mustSet(t, `
defaults: {max_share: 40%}
rules:
  - {name: a, limits: [1/second], max_share: 20%}
  - {name: b, limits: [1/second], max_share: 12.5%}
  - {name: c, limits: [1/second]}
  - {name: d, limits: [1/second], max_share: 100%}
`, rules.Options{})
	want := map[string]uint16{"a": 200, "b": 125, "c": 400, "d": 1000}
	for _, r := range set.Rules() {
		if got := r.Rule.MaxShare; got != want[r.Rule.Name] {
			t.Errorf("%s has %d thousandths, want %d", r.Rule.Name, got, want[r.Rule.Name])
		}
	}
	hash := func(file string) uint64 { return mustSet(t, file, rules.Options{}).Hash() }
	none := hash("rules: [{name: a, limits: [1/second]}]")
	if one, two := hash("rules: [{name: a, limits: [1/second], max_share: 10%}]"),
		hash("rules: [{name: a, limits: [1/second], max_share: 20%}]"); one == none || one == two {
		t.Error("files with different shares have one hash")
	}
}
