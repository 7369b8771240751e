package rules

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

const budgets = `
version: 1
quotas:
  - {name: own, key: [user], limits: [5/minute]}
  - {name: pool, key: [rule], limits: [10/minute]}
rules:
  - {name: first, match: {path: ^/both}, key: [user], limits: [7/second], continue: true}
  - name: any
    match: {path: ^/(both|any)}
    key: [user]
    limits: [9/second]
    quotas: [{any: [own, {name: pool, up_to: 50%}], cost: 2}]
  - {name: rest, match: {path: ^/rest}, quotas: [own, pool]}
`

// charged returns the rules of the keys that a request is charged to.
func charged(t *testing.T, s *Set, r limiter.Request) string {
	t.Helper()
	var c arith.Charge
	if _, err := s.Resolve(&r, &c); err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range c.Len() {
		out = append(out, c.Key(i).Rule.Name)
	}
	return strings.Join(out, " ")
}

// Each alternative of a rule is a set of its own, under overrides and two secrets, too. A denial by the alternative
// leads to the next one, and no other does.
func TestAlternatives(t *testing.T) {
	plain, err := Parse("f", []byte(budgets), Options{})
	if err != nil {
		t.Fatal(err)
	}
	both, err := Parse("f", []byte(budgets), Options{Secret: []byte("a"), Second: []byte("b")})
	if err != nil {
		t.Fatal(err)
	}
	limit, _ := OverrideLimit("3/minute")
	over := []Override{{Rule: "any", User: "eve", Limit: limit}}
	for name, s := range map[string]*Set{"plain": plain, "both": both, "overridden": plain.With(over),
		"both overridden": both.With(over)} {
		for path, want := range map[string][]string{"/any": {"any own", "any pool"}, "/both": {"first any own",
			"first any pool"}, "/rest": nil} {
			r := limiter.Request{Path: path, User: "ada"}
			sets := s.Alternatives(&r)
			if len(sets) != len(want) || len(sets) > 0 && sets[0] != s {
				t.Fatalf("%s: %s has %d alternatives, want %d", name, path, len(sets), len(want))
			}
			for k, at := range sets {
				keys := want[k]
				if strings.HasPrefix(name, "both") {
					keys += " " + keys
				}
				if got := charged(t, at, r); got != keys {
					t.Errorf("%s: alternative %d of %s charges %s, want %s", name, k, path, got, keys)
				}
				if len(at.Alternatives(&r)) != len(sets) {
					t.Errorf("%s: alternative %d does not know the others", name, k)
				}
			}
		}
		second := s.Alternatives(&limiter.Request{Rule: "any"})[1]
		got := charged(t, second, limiter.Request{Path: "/any", User: "eve"})
		if strings.Contains(name, "overridden") != strings.Contains(got, OverridePrefix+"any") {
			t.Errorf("%s: the second alternative charges %s for eve", name, got)
		}
	}
	r := limiter.Request{Path: "/any", User: "ada"}
	denied := func(by string) *limiter.Decision {
		d := new(limiter.Decision)
		d.Grow(1)
		*d.Limit(0) = limiter.LimitDecision{Rule: plain.Rule(by)}
		return d
	}
	last := plain.Alternatives(&r)[1]
	after := func(s *Set, r *limiter.Request, by string) *Set {
		next, _ := s.Next(r, denied(by))
		return next
	}
	if after(plain, &r, "own") != last || after(plain, &r, "any") != nil || after(last, &r, "pool") != nil {
		t.Error("another alternative is next")
	}
	if after(plain, &limiter.Request{Path: "/rest"}, "own") != nil {
		t.Error("a rule without alternatives has another")
	}
	if d := plain.Rules()[1].Draws; len(d) != 2 || d[0].Alternative != 1 || d[1].Alternative != 2 || d[1].UpTo != 50 ||
		d[1].Cost != 2 {
		t.Errorf("the description is %+v", d)
	}
	other, err := Parse("f", []byte(strings.Replace(budgets, "{any: [own, {name: pool, up_to: 50%}], cost: 2}",
		"{name: own, cost: 2}, {name: pool, up_to: 50%, cost: 2}", 1)), Options{})
	if err != nil || other.Hash() == plain.Hash() {
		t.Errorf("%v: the hash does not depend on any", err)
	}
}

// A client's set has the seeds of the node's, so all its alternatives have.
func TestAlternativesWithSeeds(t *testing.T) {
	of := func(o Options) *Set {
		s, err := Parse("f", []byte(budgets), o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := of(Options{Secret: []byte("secret")})
	client := of(Options{Seeds: s.Seeds()})
	l, _ := OverrideLimit("3/minute")
	r := limiter.Request{Rule: "any", User: "ada", Limits: []*limiter.Limit{l}}
	for k := range 2 {
		var a, b arith.Charge
		if _, err := s.Alternatives(&r)[k].Resolve(&r, &a); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Alternatives(&r)[k].Resolve(&r, &b); err != nil {
			t.Fatal(err)
		}
		for i := range a.Len() {
			if a.Key(i).Hash != b.Key(i).Hash {
				t.Errorf("key %d of alternative %d is another", i, k)
			}
		}
	}
}

// An id would have to be known to all alternatives, so a check with one is refused. One that is optional is left out.
func TestAlternativesTakeNoID(t *testing.T) {
	s, err := Parse("f", []byte(budgets), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var c arith.Charge
	for _, r := range []limiter.Request{{Path: "/any", ID: "1"}, {Path: "/both", ID: "1"}, {Rule: "any", ID: "1"},
		{Path: "/any", ID: "1", Hold: 1e9, IDOptional: true}} {
		if _, err := s.Resolve(&r, &c); !errors.Is(err, limiter.ErrInvalid) || c.Len() > 0 {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := s.Resolve(&limiter.Request{Path: "/any", ID: "1", IDOptional: true}, &c); err != nil || c.ID != nil {
		t.Errorf("%v, %+v", err, c.ID)
	}
	if _, err := s.Resolve(&limiter.Request{Path: "/rest", ID: "1"}, &c); err != nil || c.ID == nil {
		t.Errorf("%v: another rule has no ids", err)
	}
	l, _ := limiter.NewLimit(limiter.Spec{Limit: 5, Window: 1e9, CountRejected: limiter.CountAll})
	if _, err := s.Resolve(&limiter.Request{Rule: "any", Limits: []*limiter.Limit{l}}, &c); !errors.Is(err,
		limiter.ErrInvalid) {
		t.Errorf("limits that count rejected requests: %v", err)
	}
}

// What cannot be tried one after the other is refused, with what to write.
func TestAlternativesThatCannotBe(t *testing.T) {
	const file = "version: 1\nquotas: [{name: own, key: [user], limits: [OWN]}, " +
		"{name: pool, key: [rule], limits: [5/day]}, {name: dark, key: [user], limits: [5/day], shadow: true}]\n" +
		"rules: [BEFORE{name: r, match: {path: ^/a}, REST}]\n"
	for _, c := range [][4]string{
		{"5/hour", "", "quotas: [{any: [own]}]", `"any" is a list of 2 to 4 quotas`},
		{"5/hour", "", "quotas: [{any: own}]", `"any" is a list of 2 to 4 quotas`},
		{"5/hour", "", "quotas: [{any: [own, own]}]", `draws on quota "own" already`},
		{"5/hour", "", "quotas: [own, {any: [own, pool]}]", `draws on quota "own" already`},
		{"5/hour", "", "quotas: [{any: [own, none]}]", `unknown quota "none"`},
		{"5/hour", "", "quotas: [{any: [own, pool]}, {any: [own, pool]}]", `has an "any" already`},
		{"5/hour", "", "quotas: [{any: [{name: own, cost: 2}, pool]}]", "the alternatives of a draw have one cost"},
		{"5/hour", "", "quotas: [{any: [{up_to: 5%}, pool]}]", "this alternative has no name"},
		{"5/hour", "", "quotas: [{any: [own, pool], up_to: 5%}]", `"up_to" belongs to one of the alternatives`},
		{"5/hour", "", "quotas: [{any: [own, pool]}], continue: true", `remove "continue"`},
		{"5/hour", "", "quotas: [{any: [own, dark]}]", `quota "dark" is in shadow`},
		{"5/hour", "", "quotas: [{any: [own, pool]}], limits: [{limit: 5, window: 1s, count_rejected: all}]",
			"would count each that denies as a rejected request"},
		{"{limit: 5, window: 1s, count_rejected: room}", "", "quotas: [{any: [own, pool]}]", `quota "own" would count each`},
		{"5/hour", "", "quotas: [{any: [own, pool]}], limits: [{limit: 5, algorithm: concurrency}]", "limits concurrency"},
		{"5/hour", "{name: b, continue: true, limits: [{limit: 5, window: 1s, count_rejected: all}]}, ",
			"quotas: [{any: [own, pool]}]", `rule "b", which is before and continues, would count`},
		{"5/hour", "{name: b, shadow: true, continue: true, limits: [{limit: 5, window: 1s, count_rejected: all}]}, ",
			"quotas: [{any: [own, pool]}]", `rule "b", which is before and continues, would count`},
	} {
		_, err := Parse("f", []byte(strings.NewReplacer("OWN", c[0], "BEFORE", c[1], "REST", c[2]).Replace(file)), Options{})
		if err == nil || !strings.Contains(err.Error(), c[3]) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// A check has the keys of one alternative, so only the largest counts for the bound of keys.
func TestAlternativesWithManyKeys(t *testing.T) {
	keys := "keys: [[user], [ip], [group], [path], [method]], limits: [50/hour]"
	file := "version: 1\nquotas: [{name: a, KEYS}, {name: b, KEYS}, {name: c, KEYS}, {name: d, KEYS}]\n" +
		"rules: [{name: r, quotas: [{any: [a, b, c, d]}]}]\n"
	if _, err := Parse("f", []byte(strings.ReplaceAll(file, "KEYS", keys)), Options{}); err != nil {
		t.Error(err)
	}
}

// A rule with alternatives has a hint of what it does not do, at its draw.
func TestHintOfAlternatives(t *testing.T) {
	const file = "quotas: [{name: own, key: [user], limits: [50/hour]}, {name: pool, key: [rule], limits: [50/day]}]\n" +
		"rules: [{name: r, quotas: [DRAW]}]\n"
	for draw, want := range map[string]string{"own, pool": "", "{any: [own, pool]}": "no id, hold or credit"} {
		s, err := Parse("f", []byte(strings.Replace(file, "DRAW", draw, 1)), Options{Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Hints(); (len(got) == 1) != (want != "") ||
			want != "" && (got[0].Line != 2 || got[0].Rule != "r" || !strings.Contains(got[0].Text, want)) {
			t.Errorf("%s has %+v", draw, got)
		}
	}
}
