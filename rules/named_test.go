package rules_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/rules"
)

// A request that names its rule is counted where one that matches it is.
func TestNamedRule(t *testing.T) {
	set, err := rules.Parse("named.yaml", []byte(`
version: 1
rules:
  - {name: towns, match: {path: "^/towns", method: GET}, limits: [5/minute], cost: {default: 1, POST: 2}}
  - {name: admins, match: {group: admin}, unlimited: true}
`), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var matched, named arith.Charge
	if _, err := set.Resolve(&limiter.Request{Path: "/towns", User: "ada", Method: "GET"}, &matched); err != nil {
		t.Fatal(err)
	}
	m, err := set.Resolve(&limiter.Request{Path: "/towns", User: "ada", Method: "POST", Rule: "towns"}, &named)
	if err != nil || m.Rule != "towns" || named.Len() != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	if named.Key(0).Hash != matched.Key(0).Hash || named.Key(0).Cost != 2 {
		t.Errorf("named %+v, matched %+v", named.Key(0), matched.Key(0))
	}
	if m, err := set.Resolve(&limiter.Request{Rule: "admins"}, &named); err != nil || !m.Outcome.Has(rules.Unlimited) ||
		named.Len() != 0 {
		t.Errorf("unlimited: %+v, %v", m, err)
	}
	own := limitertest.Limit(t, limiter.Spec{Limit: 1, Window: time.Second})
	for want, r := range map[string]limiter.Request{
		`no rule "cities"`: {Rule: "cities"},
		"there is no rule": {Rule: "cities", Limits: []*limiter.Limit{own}},
		"out of range":     {Rule: "towns", Cost: limiter.Units(-1)},
	} {
		if _, err := set.Resolve(&r, &named); !errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), want) ||
			named.Len() != 0 {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
