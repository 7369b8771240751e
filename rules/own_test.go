package rules_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/rules"
)

func ownLimit(t *testing.T, name string) *limiter.Limit {
	t.Helper()
	l := limitertest.Limit(t, limiter.Spec{Name: name, Limit: 5, Window: time.Minute})
	return l
}

// Each key of a request's own limits is charged once, with the limits that name it, and
// has a counter of its own.
func TestKeysOfOwnLimits(t *testing.T) {
	set := mustSet(t, `rules: [{name: named, match: {path: ^/never}, keys: [[user], [ip]], limits: [5/second], cost: `+
		`7}, {name: free, match: {group: x}}]`, rules.Options{})
	a, b, c, d := ownLimit(t, "a"), ownLimit(t, "b"), ownLimit(t, "c"), ownLimit(t, "d")
	r := limiter.Request{
		Path: "/p", User: "ada", IP: "192.0.2.1", Attributes: map[string]string{"plan": "gold"},
		Limits:    []*limiter.Limit{a, b, c, d},
		LimitKeys: [][]string{{"user"}, {"attr:plan", "ip"}, {"user"}, nil},
	}
	resolve := func(r limiter.Request) (*arith.Charge, rules.Match) {
		t.Helper()
		out := new(arith.Charge)
		m, err := set.Resolve(&r, out)
		if err != nil {
			t.Fatal(err)
		}
		return out, m
	}
	show := func(r limiter.Request, c *arith.Charge) string {
		var out []string
		for i := range c.Len() {
			k := c.Key(i)
			names := []string{}
			for _, l := range k.Rule.Limits {
				names = append(names, l.Name())
			}
			out = append(out, fmt.Sprintf("%s/%d %s cost %d %s", k.Rule.Name, k.Index, strings.Join(names, "+"), k.Cost,
				set.AppendKeyName(nil, &r, k, nil)))
		}
		return strings.Join(out, "; ")
	}
	charge, m := resolve(r)
	if got := show(r, charge); got != "request/0 a+c cost 1 ada; request/1 b cost 1 gold:192.0.2.1; request/2 d cost 1 "+
		"/p:ada" || m.Rule != "request" || m.Count != 1 {
		t.Errorf("%s, %+v", got, m)
	}
	seen := map[arith.Hash]bool{}
	for i := range charge.Len() {
		if seen[charge.Key(i).Hash] {
			t.Error("two keys share a counter")
		}
		seen[charge.Key(i).Hash] = true
	}
	// A key that is written out as the default is the default, and values do not pass for
	// those of other parts.
	same := func(x, y limiter.Request) bool {
		one, _ := resolve(x)
		two, _ := resolve(y)
		return one.Key(0).Hash == two.Key(0).Hash
	}
	of := func(path, user string, parts ...string) limiter.Request {
		return limiter.Request{Path: path, User: user, Limits: []*limiter.Limit{a}, LimitKeys: [][]string{parts}}
	}
	if !same(of("/p", "ada"), of("/p", "ada", "path", "user")) ||
		!same(of("/p", "ada"), limiter.Request{Path: "/p", User: "ada", Limits: []*limiter.Limit{a}}) {
		t.Error("the default that is written out has other counters")
	}
	if !same(of("/p", "ada", "user"), of("/q", "ada", "user")) || same(of("/p", "ada", "user"), of("/p", "bob", "user")) ||
		same(of("x", "x", "path"), of("x", "x", "user")) || same(of("/p", "ada", "user", "path"), of("/p", "ada")) ||
		!same(of("/p", "ada", "rule"), of("/q", "bob", "rule")) {
		t.Error("keys are confused")
	}
	// With a rule, its limits apply too, with its own cost.
	r.Rule, r.LimitKeys = "named", [][]string{{"user"}, {"user"}, {"user"}, {"user"}}
	charge, m = resolve(r)
	if got := show(r, charge); got != "named/0 second cost 7 ada; named/1 second cost 7 192.0.2.1; request/0 a+b+c+d "+
		"cost 1 ada" || m.Rule != "named" || m.Count != 2 || m.Outcome != 0 {
		t.Errorf("%s, %+v", got, m)
	}
	r.Rule, r.Cost = "free", limiter.Units(3)
	charge, m = resolve(r)
	if got := show(r, charge); got != "request/0 a+b+c+d cost 3 ada" || m.Rule != "free" || m.Outcome != 0 {
		t.Errorf("%s, %+v", got, m)
	}
}

func TestKeysOfOwnLimitsThatCannotBe(t *testing.T) {
	set := mustSet(t, `rules: [{name: named, match: {path: ^/never}, keys: [[user], [ip], [path], [method], [group], `+
		`[user, ip], [user, path], [user, method]], limits: [5/second]}]`, rules.Options{})
	l := []*limiter.Limit{ownLimit(t, "a")}
	long := strings.Repeat("x", 100)
	for want, r := range map[string]limiter.Request{
		`unknown part of a key "usr"; did you mean "user"?`: {Limits: l, LimitKeys: [][]string{{"usr"}}},
		"attr: lacks the name":                              {Limits: l, LimitKeys: [][]string{{"attr:"}}},
		"the attribute's name is too long":                  {Limits: l, LimitKeys: [][]string{{"attr:" + long}}},
		"has no comma in its name":                          {Limits: l, LimitKeys: [][]string{{"attr:a,user"}}},
		`"user" is in the key already`:                      {Limits: l, LimitKeys: [][]string{{"user", "user"}}},
		"has 9 parts; at most 8":                            {Limits: l, LimitKeys: [][]string{make([]string, 9)}},
		"has 1 limits and keys for 2":                       {Limits: l, LimitKeys: [][]string{nil, {"user"}}},
		`there is no rule "none"`:                           {Limits: l, Rule: "none"},
		`two limits of the request are named "a": give them names`: {Limits: []*limiter.Limit{l[0], l[0]},
			LimitKeys: [][]string{{"user"}, {"user"}}},
	} {
		var c arith.Charge
		if _, err := set.Resolve(&r, &c); !errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), want) ||
			c.Len() > 0 {
			t.Errorf("%v, want %s", err, want)
		}
	}
	// Limits of different keys may have one name.
	two := limiter.Request{User: "u", IP: "1.1.1.1", Limits: []*limiter.Limit{l[0], l[0]},
		LimitKeys: [][]string{{"user"}, {"ip"}}}
	var both arith.Charge
	if _, err := set.Resolve(&two, &both); err != nil || both.Len() != 2 {
		t.Errorf("%v, %d keys", err, both.Len())
	}
	// Eight keys of a rule and nine of limits are one too many.
	r := limiter.Request{Rule: "named", User: "u", IP: "1.1.1.1", Path: "p", Method: "m", Group: "g"}
	for i := range 9 {
		r.Limits, r.LimitKeys = append(r.Limits, ownLimit(t, fmt.Sprint("l", i))),
			append(r.LimitKeys, []string{fmt.Sprint("attr:a", i)})
	}
	var c arith.Charge
	if _, err := set.Resolve(&r, &c); !errors.Is(err, limiter.ErrInvalid) ||
		!strings.Contains(err.Error(), "more than 16 keys") || c.Len() > 0 {
		t.Error(err)
	}
	r.Limits, r.LimitKeys = r.Limits[1:], r.LimitKeys[1:]
	if _, err := set.Resolve(&r, &c); err != nil || c.Len() != 16 {
		t.Error(err, c.Len())
	}
}

// No request has a limit of the counters that remember ids.
func TestNoLimitRemembersIDs(t *testing.T) {
	l := limitertest.Limit(t, limiter.Spec{Name: "id", Algorithm: arith.Remembered, Limit: 1, Window: 24 * time.Hour})
	if !l.Equal(arith.RememberedLimit()) {
		t.Error("the limit is another one after it travelled as a spec")
	}
	var c arith.Charge
	_, err := rules.Empty(rules.Options{}).Resolve(&limiter.Request{Path: "/p", Limits: []*limiter.Limit{l}}, &c)
	if !errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), "algorithm number 64") {
		t.Error(err)
	}
}
