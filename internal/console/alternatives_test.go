package console

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir/rules"
)

// Alternatives are told from quotas that must all admit, in the text and in what a reload changed.
func TestLinesTellAlternatives(t *testing.T) {
	lines := func(draws string) []RuleLine {
		s, err := rules.Parse("f", []byte("quotas: [{name: own, key: [user], limits: [10/minute]}, "+
			"{name: pool, key: [rule], limits: [20/minute]}]\nrules: [{name: a, quotas: "+draws+"}]\n"), rules.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return linesOf(s.Rules())
	}
	all, first := lines("[own, pool]"), lines("[{any: [own, {name: pool, up_to: 80%}]}]")
	if !slices.Equal(first[0].Quotas, []string{"first of own, pool up to 80%"}) || len(all[0].Quotas) != 2 {
		t.Errorf("%q and %q", first[0].Quotas, all[0].Quotas)
	}
	if got := changes(all, lines("[{any: [own, pool]}]")); !slices.Equal(got, []string{"a changed"}) {
		t.Errorf("%q", got)
	}
}
