package cluster_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// A node on its own has no placement. Members with the same view have the same
// placement, by which anyone can find a key's owner, the one that explanations name.
// Other rules make another placement.
func TestPlacement(t *testing.T) {
	const before = "version: 1\nrules:\n  - {name: all, limits: [5/minute]}\n"
	if p := open(t, weir.Config{Rules: []byte(before)}).Cluster().Placement(); p != nil {
		t.Errorf("%+v", p)
	}
	nodes := three(t, before)
	until(t, "all have the same placement", func() bool {
		v := nodes[0].Cluster().Placement().View
		return v != 0 && nodes[1].Cluster().Placement().View == v && nodes[2].Cluster().Placement().View == v
	})
	p := nodes[1].Cluster().Placement()
	if p != nodes[1].Cluster().Placement() || string(p.Rules) != before || len(p.Members) != 3 ||
		len(p.Owners) != table.Partitions {
		t.Fatalf("%+v", p)
	}
	set, err := rules.Parse("rules", p.Rules, rules.Options{Seeds: p.Seeds})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, user := range []string{"ada", "bob", "cleo", "dan", "eve", "fay", "gus", "hal", "ida", "jon", "kim", "leo"} {
		r := weir.Request{Path: "/towns", User: user}
		var c arith.Charge
		if _, err := set.Resolve(&r, &c); err != nil {
			t.Fatal(err)
		}
		owner := p.Members[p.Owners[table.PartitionOf(c.Key(0))%table.Partitions]-1].Name
		seen[owner] = true
		e, err := nodes[len(seen)-1].Explain(t.Context(), r)
		if err != nil || e.Limits[0].Owner != owner || e.Limits[0].ToldBy != owner {
			t.Errorf("%s should own %s: %+v, %v", owner, user, e, err)
		}
	}
	if len(seen) != 3 {
		t.Errorf("the owners are %v", seen)
	}
	if err := nodes[1].SetRules([]byte("version: 1\nrules:\n  - {name: all, limits: [6/minute]}\n")); err != nil {
		t.Fatal(err)
	}
	if q := nodes[1].Cluster().Placement(); q.View == p.View || string(q.Rules) == string(p.Rules) {
		t.Error("other rules are the same placement")
	}
}
