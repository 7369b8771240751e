package metrics

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// After reloads that rename all rules the new ones have series of their own, and those of
// rules that are gone have ended: late counts do not bring them back. A rule that is there again
// begins anew.
func TestSeriesOfRulesEnd(t *testing.T) {
	m, r := open(t, Options{})
	named := func(generation int) (names []string) {
		for i := range maxRules {
			names = append(names, fmt.Sprint("rule ", generation, " ", i))
		}
		return names
	}
	count := func(rule string) {
		m.checked(1, rule, limiter.SourceOwner, true, false)
		m.unzoned(rule, true)
		m.unlisted(rule, true)
		m.shadowed(rule, true)
		m.overridden(rule, true)
		m.lent(rule, true)
		m.repeated(rule)
		m.settled(rule, false, limiter.AmendDone)
	}
	metrics := []string{"weir_checks_total", "weir_zone_default_total", "weir_limit_else_total",
		"weir_shadow_checks_total",
		"weir_overridden_checks_total", "weir_client_leases_total",
		"weir_checks_repeated_total", "weir_settlements_total"}
	for generation := range 4 {
		m.rulesNamed(named(generation % 3)) // the last are the first again
		if generation > 0 {
			count(fmt.Sprintf("rule %d 7", (generation-1)%3)) // late
		}
		for _, rule := range named(generation % 3) {
			count(rule)
		}
	}
	for _, name := range metrics {
		seen := map[string]bool{}
		for _, metric := range family(t, r, name).GetMetric() {
			rule, n := labels(metric)["rule"], metric.GetCounter().GetValue()
			if seen[rule] = true; rule != other && (!strings.HasPrefix(rule, "rule 0 ") || n > 1) || rule == other && n > 3 {
				t.Errorf("%s: rule %q has %v", name, rule, n)
			}
		}
		if len(seen) != maxRules+1 {
			t.Errorf("%s: %d rules", name, len(seen))
		}
	}
	// No match, and what no rules file has named, stay.
	m.rulesNamed(nil)
	m.checked(1, "", limiter.SourceOwner, true, false)
	m.checked(1, "of a request", limiter.SourceOwner, true, false)
	m.rulesNamed(nil)
	if f := family(t, r, "weir_checks_total"); len(f.GetMetric()) != 5 { // and other; denied, too, but of ""
		t.Errorf("%v", f)
	}
}
