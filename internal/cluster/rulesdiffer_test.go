package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// ofLimits returns a rule with n limits that admit so many units a day.
func ofLimits(t *testing.T, name string, n int, units int64) *limiter.Rule {
	t.Helper()
	r := &limiter.Rule{Name: name, Replication: limiter.ReplicationOff}
	for i := range n {
		l, err := limiter.NewLimit(limiter.Spec{Name: fmt.Sprint("l", i), Limit: units, Window: 24 * time.Hour,
			Algorithm: limiter.FixedWindow})
		if err != nil {
			t.Fatal(err)
		}
		r.Limits = append(r.Limits, l)
	}
	return r
}

// askedBy delivers a frame in which another node checks these keys, all of the core's
// partition, and returns the frame with the answer.
func askedBy(c *Core, keys ...*limiter.Rule) (reply *peer.Frame) {
	ask := &peer.Frame{From: other, To: self,
		Checks: []peer.Check{{ID: 7, Keys: uint8(len(keys)), Prepare: true, Wait: 1000}}}
	for i, r := range keys {
		ask.Rules = append(ask.Rules, mesh.Definition(r))
		ask.Keys = append(ask.Keys, peer.Key{Hi: uint64(100 + i), Lo: 2, Rule: uint16(i), Cost: 1})
	}
	c.Deliver(ask)
	for f := c.Take(other, true); f != nil; f = c.Take(other, true) {
		if len(f.Replies) > 0 {
			return f
		}
	}
	return nil
}

// An owner whose file has another version of one of two rules names the rule that it
// applied for every key, and the frame has all of them. The asker reads the answer by
// those rules.
func TestAnOwnerWithOtherRulesNamesThemAll(t *testing.T) {
	mine := map[string]*limiter.Rule{"changed": ofLimits(t, "changed", 3, 10), "same": ofLimits(t, "same", 2, 10)}
	c, p, _, _ := single(t, limiter.UnreachableLocal)
	c.config.Rule = func(name string) *limiter.Rule { return mine[name] }
	own(c, p)
	changed, same := ofLimits(t, "changed", 1, 9), ofLimits(t, "same", 2, 10)
	for _, order := range [][]*limiter.Rule{{changed, same}, {same, changed}, {same, changed, same}} {
		f := askedBy(c, order...)
		if f == nil || f.Replies[0].Status != peer.Decided {
			t.Fatalf("there is no decision: %+v", f)
		}
		r, limits := f.Replies[0], 0
		for i, asked := range order {
			if len(r.Rules) != len(order) || int(r.Rules[i]) >= len(f.Rules) {
				t.Fatalf("%d keys are answered by the rules %v of %d", len(order), r.Rules, len(f.Rules))
			}
			named := f.Rules[r.Rules[i]]
			if want := mine[asked.Name]; named.ID != want.ID() || !named.Defined {
				t.Errorf("key %d was decided by rule %q, and %q is named, defined %t", i, want.Name, named.Name, named.Defined)
			}
			limits += len(mine[asked.Name].Limits)
		}
		if int(r.Results) != limits || len(f.Results) != 2*limits {
			t.Errorf("%d limits are answered by %d results, %d in all", limits, r.Results, len(f.Results))
		}
		// The asker makes a decision of it.
		var charge arith.Charge
		for i, rule := range order {
			charge.Add(arith.Key{Hash: arith.Hash{Hi: uint64(100 + i), Lo: 2}, Rule: rule, Cost: 1})
		}
		asker, _, _, _ := single(t, limiter.UnreachableLocal)
		d := new(limiter.Decision)
		asker.Begin(&charge, d, 0, func() {})
		r.ID = drain(asker)[third].Checks[0].ID
		asker.Deliver(&peer.Frame{From: third, To: self, Rules: f.Rules, Replies: []peer.Reply{r}, Results: f.Results})
		if d.Len() != limits || !d.Allowed {
			t.Errorf("the answer is read as %+v", d)
		}
	}
}

// Sixteen keys of sixteen limits are 256 results.
func TestAsManyLimitsAsACheckMayHave(t *testing.T) {
	c, p, _, _ := single(t, limiter.UnreachableLocal)
	var all []*limiter.Rule
	mine := map[string]*limiter.Rule{}
	for i := range limiter.MaxKeys {
		r := ofLimits(t, fmt.Sprint("rule", i), limiter.MaxLimits, 10)
		all, mine[r.Name] = append(all, r), r
	}
	c.config.Rule = func(name string) *limiter.Rule { return mine[name] }
	own(c, p)
	f := askedBy(c, all...)
	if f == nil || f.Replies[0].Results != limiter.MaxKeys*limiter.MaxLimits ||
		len(f.Results) != 2*limiter.MaxKeys*limiter.MaxLimits {
		t.Fatalf("%d results, want two sets of %d", len(f.Results), limiter.MaxKeys*limiter.MaxLimits)
	}
	if table.PartitionOf(&arith.Key{Hash: arith.Hash{Lo: 2}, Rule: all[0]}) != int(p.id) {
		t.Fatal("the keys are of another partition")
	}
}
