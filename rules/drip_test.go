package rules_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
)

// A drip of several units stands in a limit, a rule or the defaults, and a later one
// replaces it; a time between drips must be that of the limit.
func TestDripsOfSeveralUnits(t *testing.T) {
	const bucket = "limit: 30, window: 1m, algorithm: leaky_bucket"
	for file, want := range map[string]int64{
		"rules: [{name: a, key: [user], limits: [{" + bucket + ", drip: {amount: 5, every: 10s}}]}]":                       5,
		"rules: [{name: a, key: [user], drip: {amount: 5}, limits: [{" + bucket + "}]}]":                                   5,
		"defaults: {drip: {amount: 5, every: 10s}}\nrules: [{name: a, key: [user], limits: [{" + bucket + "}, 5/second]}]": 5,
		"defaults: {drip: {amount: 5}}\nrules: [{name: a, key: [user], limits: [{" + bucket + ", drip: interval}]}]":       0,
		"defaults: {drip: {amount: 5}}\nrules: [{name: a, key: [user], limits: [{" + bucket + ", drip: {amount: 1}}]}]":    0,
		"quotas: [{name: q, key: [user], limits: [{" + bucket + ", drip: {amount: 6}}]}]\nrules: [{name: a, quotas: [q]}]": 6,
	} {
		s := mustSet(t, file, rules.Options{})
		limits := s.Rules()[0].Rule.Limits
		if len(limits) == 0 {
			limits = s.Quotas()[0].Rule.Limits
		}
		if got := limits[0].Spec(); got.DripUnits != want || got.Drip != limiter.DripInterval {
			t.Errorf("%s: %+v", file, got)
		}
	}
	file := func(drip string) string {
		return "rules: [{name: a, key: [user], limits: [{" + bucket + ", drip: " + drip + "}]}]"
	}
	if mustSet(t, file("{amount: 5}"), rules.Options{}).Hash() == mustSet(t, file("interval"), rules.Options{}).Hash() {
		t.Error("the amount is not in the hash")
	}
	for drip, want := range map[string]string{
		"{every: 10s}": `1:96: this drip has no "amount": write {amount: 5, every: 10s}, or "drip: interval" ` +
			`for one unit at a time`,
		"{amount: 5, every: 7s}": `1:115: 5 units every 7s are not the rate of this limit, 30 per minute: leave "every" ` +
			`out`,
		"{amount: 5, every: 5s}": `5 units every 5s are not the rate of this limit, 30 per minute: write limit: 60, or ` +
			`leave "every" out`,
		"{amount: 5, every: 0s}":    `every: "0s" is not a time: give one such as 10s`,
		"{amount: 5, every: 10}":    `lacks a unit: write 10s for seconds`,
		"{amount: 7}":               "drip: limit 30 is not divisible by an amount of 7",
		"{units: 5}":                `unknown field "units" (in drip); write "amount" for the units that leak at once`,
		"{amount: 5, window: 10s}":  `unknown field "window" (in drip); write "every" for the time between two drips`,
		"{amount: 5, evry: 10s}":    `unknown field "evry"; did you mean "every"? (in drip)`,
		"[5, 10s]":                  "drip is a single value, not a list",
		"{amount: [5]}":             "amount is a single value, not a list",
		"{amount: 0}":               "amount: 0 is out of range: give 1 to 9007199254740991 units",
		"{amount: 5}, algorithm: b": `unknown algorithm`,
	} {
		got := problemsOf(t, strings.Replace(file(drip), ", algorithm: leaky_bucket, drip: {amount: 5}, algorithm",
			", drip: {amount: 5}, algorithm", 1))
		if len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: %q, want %s", drip, got, want)
		}
	}
}
