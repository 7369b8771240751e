package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// explained asks a node for the reasons of a check, and lets time pass until they are
// there: not longer than the deadline.
func (s *subject) explained(n *Node, c *arith.Charge) (out []route.Explained) {
	s.tb.Helper()
	done := false
	begin := s.w.now
	n.core.Explain(c, func(all []route.Explained) { out, done = all, true })
	for !done {
		if err := s.w.run(ms, func() error { return nil }); err != nil {
			s.tb.Fatal(err)
		}
		if s.w.now-begin > 400*ms {
			s.tb.Fatalf("not explained within %v", (s.w.now - begin).Duration())
		}
	}
	return out
}

const explainedRules = everyAlgorithm + `
  - {name: closed, on_unreachable: closed, limits: [2/second, 5/minute]}
  - {name: pair, keys: [[ip], [user]], limits: [3/second, 20/minute]}
`

// Whichever node is asked, and whoever owns the keys, one or several: what a cluster
// explains is what one table explains, to the letter, and explaining changes no
// decision of it.
func TestExplainsAsOneTable(t *testing.T) {
	worlds(t)
	s, ok := newSubject(t, explainedRules).(*subject)
	if !ok {
		t.Fatal("no subject")
	}
	one := table.New(table.Config{})
	set, err := rules.Parse("rules", []byte(explainedRules), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 7))
	infos := set.Rules()
	elsewhere, several := 0, 0
	for step := range 600 {
		s.clock += limiter.Tick(rng.Int64N(int64(200 * ms)))
		r := limiter.Request{
			Rule: infos[rng.IntN(len(infos))].Rule.Name, User: fmt.Sprint("u", rng.IntN(3)),
			IP:   fmt.Sprint("192.0.2.", rng.IntN(3)),
			Cost: limiter.Units(int64(1 + rng.IntN(2))),
		}
		var c, same arith.Charge
		if _, err := s.set.Resolve(&r, &c); err != nil {
			t.Fatal(err)
		}
		if _, err := set.Resolve(&r, &same); err != nil {
			t.Fatal(err)
		}
		var d, got, want limiter.Decision
		limits := one.Explain(s.clock, &same, &want)
		owners := map[peer.Instance]bool{}
		for _, n := range s.w.live() {
			all := s.explained(n, &c)
			var told []limiter.LimitExplanation
			for i := range all {
				x := &all[i]
				if x.By == 0 || x.Owner != x.By || x.Mute {
					t.Fatalf("step %d, key %d: by %v, owner %v, mute %v", step, i, x.By, x.Owner, x.Mute)
				}
				if owners[x.By] = true; x.By != n.inst {
					elsewhere++
				}
				told = append(told, x.Limits...)
			}
			route.Together(all, &got)
			if diff := cmp.Diff(limits, told); diff != "" {
				t.Fatalf("step %d, %s: the cluster explains otherwise (-table +cluster):\n%s", step, r.Rule, diff)
			}
			if diff := cmp.Diff(limiter.NewAnswer(&want, s.names(&r, &want)),
				limiter.NewAnswer(unowned(&got), s.names(&r, &got))); diff != "" {
				t.Fatalf("step %d, %s (-table +cluster):\n%s", step, r.Rule, diff)
			}
		}
		if len(owners) > 1 {
			several++
		}
		if err := s.CheckInto(t.Context(), &r, &d); err != nil {
			t.Fatal(err)
		}
		if err := one.Decide(s.clock, &same, &want); err != nil {
			t.Fatal(err)
		}
		if d.Allowed != want.Allowed || d.Limit(0).Remaining != want.Limit(0).Remaining || d.RetryAfter != want.RetryAfter {
			t.Fatalf("step %d: decided %+v, by one table %+v", step, &d, &want)
		}
	}
	if elsewhere < 600 || several < 20 {
		t.Errorf("%d keys were explained by another than was asked, and %d requests by several", elsewhere, several)
	}
}

func (s *subject) names(r *limiter.Request, d *limiter.Decision) func(int) string {
	return func(i int) string { return s.KeyName(r, d.Limit(i)) }
}

// unowned is a decision that names no owner, as that of a table.
func unowned(d *limiter.Decision) *limiter.Decision {
	for i := range d.Len() {
		d.Limit(i).Owner = ""
	}
	return d
}

// orphaned is a cluster of three, in which a user has used 4 of 9, and both the owner of
// his counter and its heir are others than the one that is to be asked.
func orphaned(t *testing.T) (s *subject, asked, owner, heir *Node, c *arith.Charge) {
	t.Helper()
	s, ok := newSubject(t,
		"version: 1\nrules: [{name: all, on_unreachable: closed, limits: [{name: day, limit: 9, window: 1d, algorithm: "+
			"fixed_window}]}]\n").(*subject)
	if !ok {
		t.Fatal("no subject")
	}
	asked, c = s.w.live()[0], new(arith.Charge)
	for u := 0; heir == nil; u++ {
		c.Clear()
		r := limiter.Request{User: fmt.Sprint("user", u)}
		if _, err := s.set.Resolve(&r, c); err != nil {
			t.Fatal(err)
		}
		to, _ := asked.core.Owner(c)
		owner = s.w.node(to)
		info, _ := owner.core.Partition(table.PartitionOf(c.Key(0)))
		if owner == asked || info.Heir == asked.inst {
			continue
		}
		heir = s.w.node(info.Heir)
		var d limiter.Decision
		for range 4 {
			if err := s.CheckInto(t.Context(), &r, &d); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.w.run(70*ms, func() error { return nil }); err != nil { // the heir has what the owner may lag by
			t.Fatal(err)
		}
	}
	return s, asked, owner, heir, c
}

// Where the owner is gone its heir explains, with what it has, and it is told who the
// owner was.
func TestTheHeirExplains(t *testing.T) {
	worlds(t)
	s, asked, owner, heir, c := orphaned(t)
	owner.crash(true)
	x := s.explained(asked, c)[0]
	if x.By != heir.inst || x.Owner != owner.inst || x.Answer.Source != limiter.SourceHeir {
		t.Fatalf("told by %v for %v, whom %v owned: %v", x.By, x.Owner, owner.inst, x.Answer.Source)
	}
	if got := x.Limits[0]; got.Arithmetic != "4 counted + 1 <= 9: yes" || !got.Known {
		t.Errorf("the heir explains %+v", got)
	}
}

// Where nobody is left, nobody explains, by the deadline and not later: no policy
// answers instead.
func TestNobodyExplains(t *testing.T) {
	worlds(t)
	s, asked, owner, heir, c := orphaned(t)
	owner.crash(true)
	heir.crash(true)
	before := asked.core.Count(cluster.EventFallback)
	if x := s.explained(asked, c)[0]; x.By != 0 || len(x.Limits) != 0 || x.Owner != owner.inst {
		t.Errorf("with nobody left: %+v", x)
	}
	if n := asked.core.Count(cluster.EventFallback); n != before {
		t.Error("a policy answered")
	}
}
