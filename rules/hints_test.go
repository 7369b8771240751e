package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/rules"
)

func hintsOf(t *testing.T, file string) []rules.Warning {
	t.Helper()
	s, err := rules.Parse("test.yaml", []byte(file), rules.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	return s.Hints()
}

// A small limit under the default algorithm has a hint, which the file can answer wherever options stand. Strict
// accepts it.
func TestHintOfSmallLimits(t *testing.T) {
	for limit, instead := range map[string]string{
		"5/minute": "{limit: 5, window: minute, rounding: floor}", "{limit: 9, window: 90s}": "rounding: floor",
		"1/day":     "{limit: 1, window: day, rounding: floor}",
		"1/second":  "{limit: 1, window: second, rounding: floor}",
		"10/minute": "", "2/second": "", "{limit: 5, window: 1m, rounding: exact}": "",
		"{limit: 5, window: 1m, rounding: floor}": "", "{limit: 5, window: 1m, weight: 1}": "",
		"{limit: 5, window: 1m, algorithm: sliding_counter}": "", "{limit: 5, window: 1m, algorithm: gcra}": "",
		"{limit: 5, calendar: day}":                                      "",
		"{limit: {by: attr:plan, of: {free: 5/minute}, else: 3/minute}}": "",
	} {
		for _, in := range []string{
			"rules: [{name: a, key: [user], limits: [%s]}]",
			"quotas: [{name: q, key: [user], limits: [%s]}]\nrules: [{name: a, quotas: [q]}]",
		} {
			file := fmt.Sprintf(in, limit)
			got := hintsOf(t, file)
			if len(got) != 1 && instead != "" || len(got) > 0 && got[0].Instead != instead {
				t.Errorf("%s: %+v, want %q", file, got, instead)
			}
			if instead == "" {
				continue
			}
			if at := file[got[0].Column-1:]; got[0].Line == 1 && !strings.HasPrefix(at, limit) {
				t.Errorf("%s: it is about %q", file, at)
			}
			for _, answer := range []string{"rounding: exact", "algorithm: sliding_counter"} {
				if got := hintsOf(t, "defaults: {"+answer+"}\n"+file); len(got) != 0 {
					t.Errorf("with %s %+v", answer, got)
				}
			}
			written := strings.TrimSuffix(limit, "}") + ", " + instead + "}"
			if strings.HasPrefix(instead, "{") {
				written = instead
			}
			if got := hintsOf(t, fmt.Sprintf(in, written)); len(got) != 0 {
				t.Errorf("what the hint says has a hint: %+v", got)
			}
		}
	}
	if got := hintsOf(t, "rules: [{name: a, key: [user], rounding: exact, limits: [5/minute]}]"); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}
