package rules_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/rules"
)

const tenantRules = `version: 1
rules:
  - {name: open, match: {path: "^/open"}, key: [path, user], limits: [5/second]}
  - {name: trial, match: {path: "^/"}, key: [user], limits: [5/second], shadow: true, continue: true}
  - {name: closed, match: {path: "^/"}, key: [user], limits: [5/second]}
`

// only is a scope of one rule.
type only string

func (o only) Permits(rule string) bool { return rule == string(o) }

func resolveFor(t *testing.T, r limiter.Request) (arith.Charge, error) {
	t.Helper()
	set, err := rules.Parse("r.yaml", []byte(tenantRules), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var c arith.Charge
	_, err = set.Resolve(&r, &c)
	return c, err
}

// Every key of a tenant differs from that of any other tenant, of none, and of a user whose
// name imitates one.
func TestTenantIsPartOfTheKey(t *testing.T) {
	limit := limitertest.Limit(t, limiter.Spec{Limit: 1, Window: 1e9})
	long := strings.Repeat("u", limiter.MaxKeyBytes-len("/open"))
	for _, form := range []limiter.Request{
		{Path: "/open", User: "ada"}, {Path: "/open", User: long}, {Rule: "closed", User: "ada"},
		{Path: "/open", User: "ada", Limits: []*limiter.Limit{limit}},
	} {
		seen := map[arith.Hash]string{}
		for _, tenant := range []string{"", "a", "b", "ab", strings.Repeat("t", limiter.MaxTenantBytes)} {
			for _, suffix := range []string{"", "\xfe\xffa"} {
				r := form
				r.Tenant = tenant
				if len(r.User) < 10 {
					r.User += suffix
				} else if suffix != "" {
					continue
				}
				c, err := resolveFor(t, r)
				if err != nil {
					t.Fatalf("tenant %q: %v", tenant, err)
				}
				if who, taken := seen[c.Key(0).Hash]; taken {
					t.Errorf("tenant %q has the key of %q", tenant, who)
				}
				seen[c.Key(0).Hash] = tenant
			}
		}
	}
	if _, err := resolveFor(t, limiter.Request{Path: "/open",
		Tenant: strings.Repeat("t", limiter.MaxTenantBytes+1)}); !errors.Is(err, limiter.ErrInvalid) {
		t.Errorf("a tenant that is too long: %v", err)
	}
}

// A rule outside the scope refuses the request and leaves the charge empty, unless it is an
// experiment.
func TestScope(t *testing.T) {
	for name, c := range map[string]struct {
		r    limiter.Request
		keys int
	}{
		"a rule of the scope":        {limiter.Request{Path: "/x", User: "ada", Scope: only("closed")}, 2},
		"another rule":               {limiter.Request{Path: "/open", User: "ada", Scope: only("closed")}, 0},
		"a rule of the scope, named": {limiter.Request{Rule: "closed", User: "ada", Scope: only("closed")}, 1},
		"another rule, named":        {limiter.Request{Rule: "open", User: "ada", Path: "/", Scope: only("closed")}, 0},
		"an experiment, named":       {limiter.Request{Rule: "trial", User: "ada", Scope: only("closed")}, 0},
	} {
		charge, err := resolveFor(t, c.r)
		if charge.Len() != c.keys || errors.Is(err, limiter.ErrForbidden) != (c.keys == 0) {
			t.Errorf("%s: %d keys, %v", name, charge.Len(), err)
		}
	}
}
