package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/limiter/table"
)

// compared is a cluster and a table that are asked the same.
type compared struct {
	*subject
	rules map[string]*limiter.Rule
	table *table.Table

	checks, denied, owners, blocked int
}

func newCompared(t *testing.T) *compared {
	s := newSubject(t, "version: 1\nrules: []\n").(*subject)
	x := &compared{subject: s, rules: map[string]*limiter.Rule{}}
	s.w.ruleNamed = func(name string) *limiter.Rule { return x.rules[name] }
	return x
}

// ruleOf makes a rule of random limits, some of which block or count rejected checks.
func (x *compared) ruleOf(t *testing.T, c limitertest.Choices, name string) *limiter.Rule {
	t.Helper()
	r := &limiter.Rule{Name: name, Shadow: c.Pick(5) == 0}
	for i := range 1 + c.Pick(2) {
		s := limitertest.RandomSpec(c, limiter.Algorithm(c.Pick(len(limiter.AlgorithmNames()))), fmt.Sprintf("l%d", i),
			time.Hour)
		if s.Limit = min(s.Limit, 10); s.Burst > 20 {
			s.Burst = 0
		}
		if s.DripUnits > 0 && s.Limit%s.DripUnits != 0 {
			s.DripUnits = 0
		}
		l := limitertest.Limit(t, s)
		r.Limits = append(r.Limits, l)
	}
	x.rules[name] = r
	return r
}

// ask asks both and tells where they differ.
func (x *compared) ask(t *testing.T, c *arith.Charge) (*limiter.Decision, string) {
	t.Helper()
	var want limiter.Decision
	if err := x.table.Decide(x.clock, c.Clone(), &want); err != nil {
		t.Fatal(err)
	}
	got, done := new(limiter.Decision), false
	node := x.node()
	if _, one := node.core.Owner(c); !one {
		x.owners++
	}
	before := x.w.now
	node.core.Begin(c.Clone(), got, 0, func() { done = true })
	if err := x.wait(&done); err != nil {
		t.Fatal(err)
	}
	if got.Source.ByPolicy() {
		t.Fatalf("a policy answered: %v after %v", got.Source, (x.w.now - before).Duration())
	}
	x.checks++
	if !got.Allowed {
		x.denied++
	}
	for i := range got.Len() {
		if got.Limit(i).Blocked {
			x.blocked++
			break
		}
	}
	if a, b := answered(got), answered(&want); a != b {
		return got, fmt.Sprintf("the cluster says\n  %s\nthe table\n  %s", a, b)
	}
	return got, ""
}

// answered spells all that an answer says of a check.
func answered(d *limiter.Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "allowed %t never %t shadow %t wait %d", d.Allowed, d.Never, d.ShadowDenied,
		limiter.Span(d.RetryAfter))
	for i := range d.Len() {
		l := d.Limit(i)
		fmt.Fprintf(&b, "\n    %s: allowed %t never %t blocked %t left %d wait %d reset %d",
			l.FullName(), l.Allowed, l.Never, l.Blocked, l.Remaining, limiter.Span(l.RetryAfter), limiter.Span(l.ResetAfter))
	}
	return b.String()
}

// One caller, who asks one check after the other at any node, is told by a cluster
// what one table would tell him: also of checks over several keys with several owners,
// some of whose limits block, count rejected checks or are only tried out, and with
// nothing let pass between an answer and the next check. Asked again at the instant
// that a denial names the check is allowed, and a tick earlier denied.
func TestSeveralOwnersDecideAsOneTable(t *testing.T) {
	worlds(t)
	x := newCompared(t)
	early, exact := 0, 0
	for seed := range uint64(seeds(t, 400)) {
		c := limitertest.SeededChoices(seed)
		x.table = table.New(table.Config{})
		x.clock += limiter.Day
		var rules []*limiter.Rule
		for i := range 1 + c.Pick(3) {
			rules = append(rules, x.ruleOf(t, c, fmt.Sprintf("s%d-%d", seed, i)))
		}
		var past []string
		var again *arith.Charge
		must := ""
		for range 40 {
			charge := again
			if charge == nil {
				x.clock += 1 + limiter.Tick(
					c.Pick(3))*limiter.Tick(rules[0].Limits[0].Spec().Window/limiter.TickDuration)/limiter.Tick(1+c.Pick(12))
				charge = &arith.Charge{Peek: c.Pick(12) == 0}
				cost := []uint64{1, 1, 1, 2, 0, uint64(c.Pick(12))}[c.Pick(6)]
				for i, r := range rules {
					for k := range 1 + c.Pick(2) {
						value := uint64(c.Pick(2))
						h := arith.Hash{Hi: (seed<<8 + uint64(i)<<4 + uint64(k)<<2 + value) * 0x9e3779b97f4a7c15,
							Lo: (seed<<8 + uint64(i)<<4 + uint64(k)<<2 + value) * 0xd1342543de82ef95}
						charge.Add(arith.Key{Hash: h, Rule: r, Cost: cost, Index: uint8(k)})
					}
				}
			}
			d, differs := x.ask(t, charge)
			past = append(past, fmt.Sprintf("at %d cost %d peek %t keys %d: %s", x.clock, charge.Key(0).Cost, charge.Peek,
				charge.Len(), answered(d)))
			switch {
			case differs != "":
			case must == "allowed" && !d.Allowed, must == "denied" && d.Allowed:
				differs = "it must be " + must
			}
			if differs != "" {
				text := ""
				for _, r := range rules {
					for _, l := range r.Limits {
						text += fmt.Sprintf("%s shadow %t: %+v\n", r.Name, r.Shadow, l.Spec())
					}
				}
				t.Fatalf("seed %d: %s\n%s%s", seed, differs, text, strings.Join(past[max(0, len(past)-12):], "\n"))
			}
			again, must = nil, ""
			if d.Allowed || d.Never || charge.Peek {
				continue
			}
			switch c.Pick(4) {
			case 0:
				x.clock += limiter.Span(d.RetryAfter)
				again, must, exact = charge, "allowed", exact+1
			case 1:
				x.clock += limiter.Span(d.RetryAfter) - 1
				again, must, early = charge, "denied", early+1
			}
		}
	}
	t.Logf("%d checks, %d over several owners, %d denied, %d under a block, %d again at the instant, %d a tick earlier",
		x.checks, x.owners, x.denied, x.blocked, exact, early)
	if 5*x.denied < x.checks || 5*x.denied > 4*x.checks || 2*x.owners < x.checks || 20*x.blocked < x.checks ||
		exact == 0 || early == 0 {
		t.Error("the checks show too little")
	}
}
