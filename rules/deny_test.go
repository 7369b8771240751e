package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

const denyRules = `
rules:
  - {name: ceiling, match: {path: ^/}, key: [rule], limits: [9/hour], continue: true}
  - {name: trial, match: {user: trudy}, deny: true, shadow: true, continue: true}
  - {name: blocked, match: {user: [mallory, eve]}, deny: {status: 429, reason: come back never}}
  - {name: admin, match: {path: "^/admin(/|$)", not_ip: 10.0.0.0/8}, deny: true}
  - {name: rest, key: [user], limits: [5/hour]}
`

// A rule that denies leaves no counter in the charge, whichever rules matched before it.
func TestDeny(t *testing.T) {
	set := mustSet(t, denyRules, rules.Options{})
	for _, s := range []*rules.Set{set, mustSet(t, denyRules, rules.Options{Secret: []byte("a"), Second: []byte("b")})} {
		for _, c := range []struct {
			r     limiter.Request
			want  string
			count int
		}{
			{limiter.Request{Path: "/a", User: "ada"}, "ceiling 0 2", 2},
			{limiter.Request{Path: "/a", User: "mallory"}, "blocked 2 2", 0},
			{limiter.Request{Path: "/admin", User: "ada", IP: "192.0.2.1"}, "admin 2 2", 0},
			{limiter.Request{Path: "/admin", User: "ada", IP: "10.0.0.1"}, "ceiling 0 2", 2},
			{limiter.Request{Path: "/a", User: "trudy"}, "ceiling 4 3", 2},
			{limiter.Request{Path: "/admin", User: "trudy"}, "admin 6 3", 0},
			{limiter.Request{Rule: "blocked"}, "blocked 2 1", 0},
			{limiter.Request{Rule: "rest", User: "mallory"}, "rest 0 1", 1},
			{limiter.Request{Rule: "trial", User: "mallory"}, "trial 5 1", 0},
			{limiter.Request{Rule: "blocked", Limits: []*limiter.Limit{fivePerMinute(t)}}, "blocked 2 1", 0},
			{limiter.Request{Rule: "trial", Limits: []*limiter.Limit{fivePerMinute(t)}}, "request 4 2", 1},
			{limiter.Request{Path: "/a", User: "eve", ID: "7"}, "blocked 2 2", 0},
		} {
			if s.Doubled() {
				c.count *= 2
			}
			for range 2 { // the second time by the cache
				var charge arith.Charge
				m, err := s.Resolve(&c.r, &charge)
				if got := fmt.Sprint(m.Rule, " ", m.Outcome, " ", m.Count); err != nil || got != c.want ||
					charge.Len() != c.count || m.Outcome.Has(rules.Denied) && charge.ID != nil {
					t.Errorf("%+v: %s, %d keys, %v; want %s, %d", c.r, got, charge.Len(), err, c.want, c.count)
				}
			}
		}
	}
	if d := set.Rule("blocked").Deny; d == nil || *d != (limiter.Denial{Status: 429, Reason: "come back never"}) {
		t.Errorf("%+v", d)
	}
	if d := set.Rule("admin").Deny; d == nil || *d != (limiter.Denial{Status: 403}) {
		t.Errorf("%+v", d)
	}
	if w := set.Warnings(); len(w) > 1 { // ceiling has the path /
		t.Errorf("%+v", w)
	}
	in := set.Rules()
	if in[2].Rule.Deny == nil || in[2].Unlimited || in[4].Rule.Deny != nil {
		t.Errorf("%+v", in)
	}
}

func TestDenyErrors(t *testing.T) {
	for fields, want := range map[string]string{
		"deny: true, limits: [5/second]":         `"deny" and "limits" exclude each other`,
		"deny: true, unlimited: true":            `"deny" and "unlimited" exclude each other`,
		"deny: true, continue: true":             `"continue: true" cannot be combined with "deny: true"`,
		"deny: false":                            "this rule has no limits",
		"deny: {}":                               "deny is empty",
		"deny: [403]":                            "deny is a single value, not a list",
		"deny: 403":                              "write {status: 403} for another status",
		"deny: go away":                          `write {reason: "go away"} for a reason`,
		"deny: yes":                              `"yes" is neither true nor false`,
		"deny: {status: 200}":                    `status "200" is not that of a denial`,
		"deny: {status: x}":                      `status "x" is not that of a denial`,
		"deny: {message: a}":                     `write deny: {status: 403, reason: "why"}`,
		`deny: {reason: ""}`:                     "reason has 0 bytes",
		`deny: {reason: "a\nb"}`:                 "reason has 3 bytes, or a character that cannot be shown",
		"denny: true":                            `did you mean "deny"?`,
		"limits: []":                             `or "deny: true" to let nothing pass`,
		"deny: {status: 403}, quotas: [nothing]": `there is no quota "nothing"`,
		"limits: [{limit: 5, window: 1m, deny: true}]": `"deny" belongs in the rule`,
	} {
		got := problemsOf(t, "rules: [{name: a, key: [user], "+fields+"}]")
		if len(got) == 0 || !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("{%s}:\n got %s\nwant %s", fields, strings.Join(got, "\n"), want)
		}
	}
	if w := warningsOf(t, "rules: [{name: a, key: [user], deny: true}]"); len(w) != 1 ||
		!strings.Contains(w[0].Text,
			`rule "a" denies its requests and counts nothing, so these fields have no effect: "key"`) {
		t.Errorf("%+v", w)
	}
	hash := func(rule string) uint64 { return mustSet(t, "rules: [{name: a, "+rule+"}]", rules.Options{}).Hash() }
	seen := map[uint64]bool{}
	for _, rule := range []string{"deny: true", "deny: {status: 404}", "deny: {reason: a}", "deny: true, shadow: true",
		"unlimited: true"} {
		if seen[hash(rule)] {
			t.Errorf("%s has the hash of another", rule)
		}
		seen[hash(rule)] = true
	}
	if hash("deny: true") != hash("deny: {status: 403}") {
		t.Error("403 is not the default")
	}
}
