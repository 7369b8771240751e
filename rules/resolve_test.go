package rules_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/rules"
)

// resolve resolves a request and shows the result in a line: the first rule,
// how many matched, and each counter with its cost.
func resolve(tb testing.TB, s *rules.Set, r limiter.Request) string {
	tb.Helper()
	var c arith.Charge
	m, err := s.Resolve(&r, &c)
	if err != nil {
		tb.Fatalf("%+v: %v", r, err)
	}
	if m.Count == 0 {
		if c.Len() != 0 || m != (rules.Match{}) {
			tb.Fatalf("no rule, but %+v and %d keys", m, c.Len())
		}
		return "none"
	}
	out := fmt.Sprintf("%s %d:", m.Rule, m.Count)
	if m.Outcome.Has(rules.Unlimited) {
		out += " unlimited"
	}
	for i := range c.Len() {
		k := c.Key(i)
		out += fmt.Sprintf(" %s*%d", s.AppendKeyName(nil, &r, k, nil), k.Cost)
	}
	return out
}

// keyOf resolves a request to its only counter.
func keyOf(tb testing.TB, s *rules.Set, r limiter.Request) arith.Key {
	tb.Helper()
	var c arith.Charge
	if _, err := s.Resolve(&r, &c); err != nil || c.Len() != 1 {
		tb.Fatalf("%+v: %d keys, %v", r, c.Len(), err)
	}
	return *c.Key(0)
}

// A2: rules are tried in order; the first whose pattern, group and method all
// fit decides; where none does, the request passes.
// A3: a rule with a group and no limit is unrestricted.
func TestFirstMatchDecides(t *testing.T) {
	s := mustSet(t, `
rules:
- {name: admins, match: {path: ^/a, group: admin}}
- {name: writes, match: {path: ^/a, method: [POST, put]}, limits: [1/second]}
- {name: default-b, match: {path: '^/a/b$', group: default}, limits: [2/second]}
- {name: all-a, match: {path: ^/a}, limits: [3/second]}
- {name: never, match: {path: ^/a/c}, limits: [4/second]}
- {name: json, match: {path: '\.json$'}, limits: [5/second]}
- {name: staff, match: {group: [staff, admin]}, unlimited: true}
`, rules.Options{})
	for _, test := range []struct {
		request limiter.Request
		want    string
	}{
		{limiter.Request{Path: "/a", User: "u", Group: "admin"}, "admins 1: unlimited"},
		{limiter.Request{Path: "/a", User: "u", Group: "admin", Method: "POST"}, "admins 1: unlimited"},
		{limiter.Request{Path: "/a", User: "u", Method: "POST"}, "writes 1: /a:u*1"},
		{limiter.Request{Path: "/a/b", User: "u", Method: "pUt"}, "writes 1: /a/b:u*1"},
		{limiter.Request{Path: "/a/b", User: "u", Method: "GET"}, "default-b 1: /a/b:u*1"},
		{limiter.Request{Path: "/a/b", User: "u", Group: "default"}, "default-b 1: /a/b:u*1"},
		{limiter.Request{Path: "/a/b", User: "u", Group: "other"}, "all-a 1: /a/b:u*1"},
		{limiter.Request{Path: "/a/b/", User: "u"}, "all-a 1: /a/b/:u*1"},
		{limiter.Request{Path: "/a/c.json", User: "u"}, "all-a 1: /a/c.json:u*1"},
		{limiter.Request{Path: "/b/c.json", User: "u"}, "json 1: /b/c.json:u*1"},
		{limiter.Request{Path: "/b", Group: "staff"}, "staff 1: unlimited"},
		{limiter.Request{Path: "/b", Group: "Staff"}, "none"},
		{limiter.Request{Path: "b/a"}, "none"},
		{limiter.Request{}, "none"},
	} {
		for range 3 { // fresh and from the cache
			if got := resolve(t, s, test.request); got != test.want {
				t.Errorf("%+v: got %q, want %q", test.request, got, test.want)
			}
		}
	}
}

// A7, C1: one counter for each concrete path, or one for all paths of a rule.
// D1: resource and subject are parts of the key.
func TestKeyPerPathOrPerRule(t *testing.T) {
	s := mustSet(t, `
rules:
- {name: each, match: {path: ^/each}, key: [path, user], limits: [5/second]}
- {name: shared, match: {path: ^/shared}, key: [rule, user], limits: [5/second]}
- {name: shared2, match: {path: ^/other}, key: [rule, user], limits: [5/second]}
- {name: alone, match: {path: ^/alone}, key: rule, limits: [5/second]}
- {name: by-subject, match: {path: ^/d}, key: [path, user, method], limits: [5/second]}
`, rules.Options{})
	key := func(path, user string) arith.Hash { return keyOf(t, s, limiter.Request{Path: path, User: user}).Hash }
	if key("/each/1", "u") == key("/each/2", "u") || key("/each/1", "u") == key("/each/1", "v") {
		t.Error("paths or users of each share a counter")
	}
	if key("/shared/1", "u") != key("/shared/2", "u") {
		t.Error("the paths of shared have counters of their own")
	}
	if key("/shared/1", "u") == key("/shared/1", "v") || key("/shared/1", "u") == key("/other", "u") {
		t.Error("users or rules share a counter")
	}
	if key("/alone", "u") != key("/alone/2", "v") {
		t.Error("alone counts by more than its name")
	}
	subject := func(path, user, method string) arith.Hash {
		return keyOf(t, s, limiter.Request{Path: path, User: user, Method: method}).Hash
	}
	if subject("/d/1", "u", "GET") == subject("/d/2", "u", "GET") ||
		subject("/d/1", "u", "GET") == subject("/d/1", "u", "POST") ||
		subject("/d/1", "u", "GET") == subject("/d/1", "v", "GET") {
		t.Error("path, user or method does not count")
	}
	if subject("/d/1", "u", "GET") != subject("/d/1", "u", "get") {
		t.Error("the case of a method makes a counter of its own")
	}
}

// B1: several identifiers at once: the address always, the user when there is
// one.
func TestSeveralKeys(t *testing.T) {
	s := mustSet(t, `
rules:
- {name: login, match: {path: ^/login}, keys: [[ip], [user], [path, "attr:device"]], limits: [10/second]}
- {name: people, keys: [[user], [method, group]], limits: [1/second]}
- {name: rest, key: [path], limits: [1/second]}
`, rules.Options{})
	for _, test := range []struct {
		request limiter.Request
		want    string
	}{
		{limiter.Request{Path: "/login", IP: "1.2.3.4", User: "ada", Attributes: map[string]string{"device": "x"}},
			"login 1: 1.2.3.4*1 ada*1 /login:x*1"},
		{limiter.Request{Path: "/login", IP: "1.2.3.4", User: "ada"}, "login 1: 1.2.3.4*1 ada*1"},
		{limiter.Request{Path: "/login", IP: "1.2.3.4", Attributes: map[string]string{"device": ""}}, "login 1: 1.2.3.4*1"},
		{limiter.Request{Path: "/login", User: "ada"}, "login 1: ada*1"},
		{limiter.Request{Path: "/x", Method: "GET"}, "people 1: GET:default*1"},
	} {
		if got := resolve(t, s, test.request); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.request, got, test.want)
		}
	}
	var c arith.Charge
	r := limiter.Request{Path: "/login", User: "ada", Attributes: map[string]string{"device": "x"}}
	if _, err := s.Resolve(&r, &c); err != nil || c.Len() != 2 || c.Key(0).Index != 1 || c.Key(1).Index != 2 {
		t.Errorf("keys are not told by their place in the rule: %v, %+v", err, c)
	}
}

// Keys of one rule with the same values are different counters, and so are
// those of different rules.
func TestKeysOfOneRuleHashApart(t *testing.T) {
	s := mustSet(t, `
rules:
- {name: a, continue: true, keys: [[ip], [user], [method], [group], [path], ["attr:x"], ["attr:y"], [rule, ip]], limits: [1/second]}
- {name: b, keys: [[ip], [user]], limits: [1/second]}
`, rules.Options{})
	r := limiter.Request{IP: "1.1.1.1", User: "1.1.1.1", Method: "1.1.1.1", Group: "1.1.1.1", Path: "1.1.1.1",
		Attributes: map[string]string{"x": "1.1.1.1", "y": "1.1.1.1"}}
	var c arith.Charge
	if _, err := s.Resolve(&r, &c); err != nil || c.Len() != 10 {
		t.Fatalf("%d keys, %v", c.Len(), err)
	}
	seen := make(map[arith.Hash]int)
	for i := range c.Len() {
		if j, ok := seen[c.Key(i).Hash]; ok {
			t.Errorf("keys %d and %d are one counter", i, j)
		}
		seen[c.Key(i).Hash] = i
	}
}

// C2: a descriptor without a value gives each value a counter; one with a value
// limits only that value.
func TestAttributes(t *testing.T) {
	s := mustSet(t, `
rules:
- {name: free-devices, match: {attributes: {plan: free, device: }}, key: ["attr:device"], limits: [1/second]}
- {name: trials, match: {attributes: {plan: [trial, test]}}, key: ["attr:plan"], limits: [1/second]}
- {name: no-plan, match: {attributes: {plan: ""}}, key: [ip], limits: [1/second]}
`, rules.Options{})
	for _, test := range []struct {
		attributes map[string]string
		want       string
	}{
		{map[string]string{"plan": "free", "device": "phone"}, "free-devices 1: phone*1"},
		{map[string]string{"plan": "free", "device": "tablet"}, "free-devices 1: tablet*1"},
		{map[string]string{"plan": "free", "device": ""}, "none"},
		{map[string]string{"plan": "free"}, "none"},
		{map[string]string{"plan": "gold", "device": "phone"}, "none"},
		{map[string]string{"plan": "test"}, "trials 1: test*1"},
		{map[string]string{"plan": "Test"}, "none"},
		{map[string]string{"device": "phone"}, "no-plan 1: 1.2.3.4*1"},
		{nil, "no-plan 1: 1.2.3.4*1"},
	} {
		r := limiter.Request{Path: "/", IP: "1.2.3.4", Attributes: test.attributes}
		if got := resolve(t, s, r); got != test.want {
			t.Errorf("%v: got %q, want %q", test.attributes, got, test.want)
		}
	}
}

// E1: whoever is counted may be an address, a user, a device, a customer, a URL
// with a method, or any combination.
func TestAnyIdentity(t *testing.T) {
	r := limiter.Request{Path: "/p", Method: "get", User: "u", IP: "::1", Group: "g",
		Attributes: map[string]string{"device": "d", "customer": "c"}}
	for key, want := range map[string]string{
		"[ip]":                             "%3A%3A1",
		"[user]":                           "u",
		`["attr:device"]`:                  "d",
		`["attr:customer"]`:                "c",
		"[path, method]":                   "/p:GET",
		`["attr:customer", user, ip]`:      "c:u:%3A%3A1",
		"[group, rule, method, path]":      "g:r:GET:/p",
		"path":                             "/p",
		`["attr:absent", user, "attr:no"]`: ":u:",
	} {
		s := mustSet(t, "rules: [{name: r, key: "+key+", limits: [1/second]}]", rules.Options{})
		if got := resolve(t, s, r); got != "r 1: "+want+"*1" {
			t.Errorf("key %s: got %q, want %q", key, got, want)
		}
	}
}

// E9: tokens per kind of request on one shared bucket.
func TestCosts(t *testing.T) {
	s := mustSet(t, `
rules:
- {name: shop, match: {path: ^/shop}, key: [user], cost: {GET: 1, post: 2, DELETE: 0, default: 5}, limits: [{limit: 10, window: 1s, algorithm: token_bucket}]}
- {name: flat, match: {path: ^/flat}, cost: 3, limits: [10/second]}
- {name: most, match: {path: ^/most}, cost: 9007199254740991, limits: [10/second]}
- {name: one, limits: [10/second]}
`, rules.Options{})
	for _, test := range []struct {
		path, method string
		cost         limiter.Cost
		want         uint64
	}{
		{"/shop", "GET", limiter.Cost{}, 1},
		{"/shop", "POST", limiter.Cost{}, 2},
		{"/shop", "Post", limiter.Cost{}, 2},
		{"/shop", "DELETE", limiter.Cost{}, 0},
		{"/shop", "PATCH", limiter.Cost{}, 5},
		{"/shop", "", limiter.Cost{}, 5},
		{"/shop", "POST", limiter.Units(7), 7},
		{"/shop", "POST", limiter.Units(0), 0},
		{"/flat", "GET", limiter.Cost{}, 3},
		{"/most", "GET", limiter.Cost{}, 1<<53 - 1},
		{"/flat", "GET", limiter.Units(1<<53 - 1), 1<<53 - 1},
		{"/one", "GET", limiter.Cost{}, 1},
	} {
		k := keyOf(t, s, limiter.Request{Path: test.path, Method: test.method, User: "u", Cost: test.cost})
		if k.Cost != test.want {
			t.Errorf("%s %s costs %d, want %d", test.method, test.path, k.Cost, test.want)
		}
	}
	get, post := limiter.Request{Path: "/shop", Method: "GET", User: "u"},
		limiter.Request{Path: "/shop", Method: "POST", User: "u"}
	if keyOf(t, s, get).Hash != keyOf(t, s, post).Hash {
		t.Error("GET and POST do not share a bucket")
	}
}

// continue adds the next match, with its own keys and cost.
func TestContinue(t *testing.T) {
	s := mustSet(t, `
rules:
- {name: global, key: [rule], continue: true, cost: 2, limits: [1000/second]}
- {name: posts, match: {method: POST}, key: [user], continue: true, shadow: true, limits: [1/second]}
- {name: a, match: {path: ^/a}, limits: [5/second]}
- {name: b, match: {path: ^/}, key: [ip], limits: [6/second]}
`, rules.Options{})
	for _, test := range []struct{ method, path, want string }{
		{"GET", "/a", "global 2: global*2 /a:u*1"},
		{"POST", "/a", "global 3: global*2 u*1 /a:u*1"},
		{"POST", "/b", "global 3: global*2 u*1 1.1.1.1*1"},
		{"GET", "elsewhere", "global 1: global*2"},
	} {
		if got := resolve(t, s, limiter.Request{Path: test.path, Method: test.method, User: "u",
			IP: "1.1.1.1"}); got != test.want {
			t.Errorf("%s %s: got %q, want %q", test.method, test.path, got, test.want)
		}
	}
}

// Anonymous callers are limited, too, and a user cannot imitate one by taking an
// address as its name.
func TestMissingUserCountsByAddress(t *testing.T) {
	s := mustSet(t, "rules: [{name: r, limits: [1/second]}]", rules.Options{})
	key := func(user, ip string) arith.Hash {
		return keyOf(t, s, limiter.Request{Path: "/p", User: user, IP: ip}).Hash
	}
	if key("", "1.2.3.4") == key("", "1.2.3.5") {
		t.Error("two addresses share a counter")
	}
	if key("", "1.2.3.4") == key("1.2.3.4", "9.9.9.9") {
		t.Error("a user named like an address shares its counter")
	}
	if key("ada", "1.2.3.4") != key("ada", "1.2.3.5") {
		t.Error("a user is counted by address")
	}
	if got := resolve(t, s, limiter.Request{Path: "/p", IP: "1.2.3.4"}); got != "r 1: /p:1.2.3.4*1" {
		t.Errorf("the name is %q", got)
	}
}

// Where one value ends and the next begins is part of the hash.
func TestValuesDoNotRunTogether(t *testing.T) {
	s := mustSet(t, `rules: [{name: r, key: [path, user, "attr:x"], limits: [1/second]}]`, rules.Options{})
	seen := make(map[arith.Hash]string)
	for _, v := range [][3]string{
		{"/a", "b", "c"}, {"/ab", "", "c"}, {"/a", "bc", ""}, {"/abc", "", ""}, {"/a:b", "c", ""}, {"/a", "b:c", ""},
		{"/a\x01", "\x00b", "c"},
		{"/a\x01\x00b", "", "c"}, {"", "/a", "b"}, {"", "", ""}, {"/a", "", "b"},
	} {
		h := keyOf(t, s, limiter.Request{Path: v[0], User: v[1], Attributes: map[string]string{"x": v[2]}}).Hash
		if twin, ok := seen[h]; ok {
			t.Errorf("%q is the same counter as %s", v, twin)
		}
		seen[h] = fmt.Sprintf("%q", v)
	}
}

// The hash is the same in every process with the same options, and differs with others.
// The rest of the file has no effect on it.
func TestHashIsKeyed(t *testing.T) {
	const file = "rules: [{name: r, limits: [1/second]}]"
	r := limiter.Request{Path: "/p", User: "u"}
	hash := func(file string, o rules.Options) arith.Hash { return keyOf(t, mustSet(t, file, o), r).Hash }
	base := hash(file, rules.Options{})
	// Written down: another value here would start all counters afresh, and set
	// nodes of neighbouring versions at odds.
	if want := (arith.Hash{Hi: 0x3f9c4962737612fd, Lo: 0xdb3380ec1a1cefb3}); base != want {
		t.Errorf("the hash is {%#x, %#x}, it was %#x", base.Hi, base.Lo, want)
	}
	for name, same := range map[string]arith.Hash{
		"the default name": hash(file, rules.Options{ClusterName: "weir"}),
		"another limit":    hash("rules: [{name: r, limits: [7/hour], on_unreachable: open}]", rules.Options{}),
		"another match": hash("rules: [{name: r, match: {path: ^/p}, limits: [1/second]}]",
			rules.Options{PathCacheEntries: -1}),
		"the key spelled out": hash("rules: [{name: r, key: [path, user], limits: [1/second]}]", rules.Options{}),
	} {
		if same != base {
			t.Errorf("%s makes another counter", name)
		}
	}
	for name, other := range map[string]arith.Hash{
		"another cluster": hash(file, rules.Options{ClusterName: "weir2"}),
		"a secret":        hash(file, rules.Options{Secret: []byte("s")}),
		"another rule":    hash("rules: [{name: r2, limits: [1/second]}]", rules.Options{}),
		"another key":     hash("rules: [{name: r, key: [user, path], limits: [1/second]}]", rules.Options{}),
		"the request rule": keyOf(t, rules.Empty(rules.Options{}),
			limiter.Request{Path: "/p", User: "u", Limits: []*limiter.Limit{newLimit(t, "x")}}).Hash,
	} {
		if other == base {
			t.Errorf("%s makes the same counter", name)
		}
	}
}

func newLimit(tb testing.TB, name string) *limiter.Limit {
	tb.Helper()
	l := limitertest.Limit(tb, limiter.Spec{Name: name, Limit: 5, Window: 1e9})
	return l
}

// B5: limits may come with the request; then no rule is asked.
func TestRequestLimits(t *testing.T) {
	s := mustSet(t, "rules: [{name: r, key: [ip], cost: 9, limits: [1/second]}]", rules.Options{})
	limits := []*limiter.Limit{newLimit(t, "a"), newLimit(t, "b")}
	r := limiter.Request{Path: "/p", User: "u", IP: "1.1.1.1", Limits: limits}
	var c arith.Charge
	m, err := s.Resolve(&r, &c)
	if err != nil || m != (rules.Match{Rule: limiter.RequestRule, Matched: rules.Matched{Count: 1}}) || c.Len() != 1 {
		t.Fatalf("got %+v, %v, %d keys", m, err, c.Len())
	}
	k := c.Key(0)
	if k.Rule.Name != limiter.RequestRule || k.Cost != 1 || len(k.Rule.Limits) != 2 || k.Rule.Limits[1] != limits[1] {
		t.Errorf("the key is %+v with %+v", k, k.Rule)
	}
	limits[0] = nil
	if k.Rule.Limits[0] == nil {
		t.Error("the request's slice was kept")
	}
	if got := string(s.AppendKeyName(nil, &r, k, k.Rule.Limits[1])); got != "/p:u:b" {
		t.Errorf("the counter is called %q", got)
	}
	hash := func(user, ip string) arith.Hash {
		return keyOf(t, s, limiter.Request{Path: "/p", User: user, IP: ip, Limits: []*limiter.Limit{newLimit(t, "z")}}).Hash
	}
	if k.Hash != hash("u", "2.2.2.2") || hash("", "1.1.1.1") == hash("1.1.1.1", "") ||
		hash("", "1.1.1.1") == hash("", "1.1.1.2") {
		t.Error("limits of a request do not count by path and user, or by address without one")
	}
}

func TestResolveErrors(t *testing.T) {
	s := mustSet(t, `
rules:
- {name: login, match: {path: ^/login}, keys: [[ip, path], [user]], limits: [1/second]}
- {name: shadow, match: {path: ^/shadow}, keys: [[ip], ["attr:x"]], shadow: true, limits: [1/second]}
- {name: one, match: {path: ^/many}, continue: true, keys: [[ip], [user], [path], [rule], [group], [method], [ip, user], [ip, path]], limits: [1/second]}
- {name: two, match: {path: ^/many}, continue: true, keys: [[ip], [user], [path], [rule], [group], [method], [ip, user], [ip, path]], limits: [1/second]}
- {name: three, match: {path: ^/many/more}, limits: [1/second]}
- {name: rest, limits: [1/second]}
`, rules.Options{})
	long := strings.Repeat("x", 250)
	two := []*limiter.Limit{newLimit(t, "a"), newLimit(t, "a")}
	many := make([]*limiter.Limit, limiter.MaxLimits+1)
	for i := range many {
		many[i] = newLimit(t, fmt.Sprint(i))
	}
	for _, test := range []struct {
		name    string
		request limiter.Request
		want    string
	}{
		{"cost negative", limiter.Request{Path: "/x", Cost: limiter.Units(-1)},
			"invalid: cost -1 is out of range: give 0 (a peek) to 9007199254740991 units"},
		{"cost too high", limiter.Request{Path: "/x", Cost: limiter.Units(1 << 53)},
			"invalid: cost 9007199254740992 is out of range: give 0 (a peek) to 9007199254740991 units"},
		{"no key", limiter.Request{Path: "/login"},
			"invalid: rule \"login\" needs [ip, path] or [user]; the request lacks a part of each"},
		{"too many keys", limiter.Request{Path: "/many/more", IP: "1.1.1.1", User: "u", Method: "m"},
			"invalid: the rules that match count by more than 16 keys together; rule \"three\" is one too many"},
		{"own limits too many", limiter.Request{Limits: many}, "invalid: the request has 17 limits; at most 16 are allowed"},
		{"own limit nil", limiter.Request{Limits: []*limiter.Limit{nil}},
			"invalid: limit 0 of the request is nil or empty: make limits with NewLimit"},
		{"own limits of one name", limiter.Request{Limits: two},
			"invalid: two limits of the request are named \"a\": give them names"},
		{"own limits, cost", limiter.Request{Limits: two[:1], Cost: limiter.Units(-1)},
			"invalid: cost -1 is out of range: give 0 (a peek) to 9007199254740991 units"},
	} {
		var c arith.Charge
		c.Add(arith.Key{})
		m, err := s.Resolve(&test.request, &c)
		if err == nil || err.Error() != test.want || !errors.Is(err, limiter.ErrInvalid) || m != (rules.Match{}) ||
			c.Len() != 0 {
			t.Errorf("%s: got %v, %+v and %d keys; want %s", test.name, err, m, c.Len(), test.want)
		}
	}
	// Up to a bound the values of a key are shown.
	if got := resolve(t, s, limiter.Request{Path: "/" + long, User: "12345"}); got != "rest 1: /"+long+":12345*1" {
		t.Errorf("a key of 256 bytes: %q", got)
	}
	// An experiment makes no request invalid.
	if got := resolve(t, s, limiter.Request{Path: "/shadow"}); got != "shadow 1: unlimited" {
		t.Errorf("a shadow rule without a key: %q", got)
	}
}

// Resolve clears what was in the charge, a peek included.
func TestResolveClears(t *testing.T) {
	s := mustSet(t, "rules: [{name: r, match: {path: ^/x}, limits: [1/second]}]", rules.Options{})
	c := arith.Charge{Peek: true}
	for range 5 {
		c.Add(arith.Key{})
	}
	if _, err := s.Resolve(&limiter.Request{Path: "/x"}, &c); err != nil || c.Len() != 1 || c.Peek {
		t.Errorf("%v, %d keys, peek %t", err, c.Len(), c.Peek)
	}
	if _, err := s.Resolve(&limiter.Request{Path: "/y"}, &c); err != nil || c.Len() != 0 {
		t.Errorf("%v, %d keys", err, c.Len())
	}
}

// A6: keys are shown as path:user:window, and no value can pass for several.
func TestKeyNames(t *testing.T) {
	s := mustSet(t, `
rules:
- {name: "r:1", key: [path, rule, user], limits: [1/minute, {name: "a:b", limit: 1, window: 15m}]}
`, rules.Options{})
	for _, test := range []struct{ path, user, want string }{
		{"/towns", "ada", "/towns:r%3A1:ada:minute"},
		{"/a:b", "c{d}", "/a%3Ab:r%3A1:c%7Bd%7D:minute"},
		{"/100%", "%3A", "/100%25:r%3A1:%253A:minute"},
		{"/é\n", "\x1b[31m\x7f", "/é%0A:r%3A1:%1B[31m%7F:minute"},
		{"", "", ":r%3A1::minute"},
	} {
		r := limiter.Request{Path: test.path, User: test.user}
		k := keyOf(t, s, r)
		if got := string(s.AppendKeyName([]byte("> "), &r, &k, k.Rule.Limits[0])); got != "> "+test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	r := limiter.Request{Path: "/p", User: "u"}
	k := keyOf(t, s, r)
	if got := string(s.AppendKeyName(nil, &r, &k, k.Rule.Limits[1])); got != "/p:r%3A1:u:a%3Ab" {
		t.Errorf("got %q", got)
	}
	// A key of another set, after a change of the file.
	k.Rule, k.Index = &limiter.Rule{Name: "gone"}, 3
	if got := string(s.AppendKeyName(nil, &r, &k, nil)); got != "/p:u" {
		t.Errorf("a key of a rule that is gone is called %q", got)
	}
}

func TestResolveAllocatesNothing(t *testing.T) {
	s := mustSet(t, `
rules:
- {name: a, match: {path: ^/a, method: [POST], attributes: {x: y}}, limits: [1/second]}
- {name: b, match: {path: '/[0-9]+$'}, continue: true, key: [ip, method, group, "attr:x"], cost: {GET: 2}, limits: [1/second]}
- {name: c, keys: [[user], ["attr:none"]], limits: [1/second]}
`, rules.Options{})
	attributes := map[string]string{"x": "z"}
	long := "/" + strings.Repeat("l", 600) + "/1"
	for _, path := range []string{"/a/b/17", "/none", long} {
		allocs := testing.AllocsPerRun(100, func() {
			var c arith.Charge
			r := limiter.Request{Path: path, Method: "get", User: "u", IP: "1.1.1.1", Attributes: attributes}
			if m, err := s.Resolve(&r, &c); err != nil || m.Count == 0 {
				t.Fatal(m, err)
			}
		})
		if allocs != 0 && !(raceEnabled && path == long) {
			t.Errorf("%.20s: %v allocations", path, allocs)
		}
	}
}

// One set serves many goroutines, while paths come and go in a small cache.
func TestConcurrentResolve(t *testing.T) {
	s := mustSet(t, fileOf(patternsOf(50)), rules.Options{PathCacheEntries: 64})
	paths := append(lastPaths(50, 300), lastPaths(45, 300)...)
	want := make([]string, len(paths))
	for i, p := range paths {
		want[i] = resolve(t, s, limiter.Request{Path: p, User: "u"})
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 4 * len(paths) {
				n := (i*7 + g) % len(paths)
				if got := resolve(t, s, limiter.Request{Path: paths[n], User: "u"}); got != want[n] {
					t.Errorf("%s: got %q, want %q", paths[n], got, want[n])
					return
				}
			}
		})
	}
	wg.Wait()
}

// The rule of a match is one in force, wherever shadow rules stand.
func TestShadowRulesDecideNothing(t *testing.T) {
	s := mustSet(t, `
quotas:
  - {name: trial_units, key: [user], limits: [5/second], shadow: true}
rules:
  - {name: trial, match: {path: ^/a}, key: [user], limits: [1/second], shadow: true, continue: true}
  - {name: first, match: {path: ^/a/}, key: [user], limits: [5/second], continue: true}
  - {name: second, match: {path: ^/a}, key: [user], limits: [5/second]}
  - {name: free, match: {path: ^/b}, unlimited: true}
  - {name: drawing, match: {path: ^/c}, key: [user], limits: [5/second], quotas: [trial_units]}
`, rules.Options{})
	for _, c := range []struct {
		r    limiter.Request
		want rules.Match
	}{
		{limiter.Request{Path: "/a/1"}, rules.Match{Rule: "first", Matched: rules.Matched{Shadow: true, Count: 3}}},
		{limiter.Request{Path: "/a"}, rules.Match{Rule: "second", Matched: rules.Matched{Shadow: true, Count: 2}}},
		{limiter.Request{Path: "/b"}, rules.Match{Rule: "free", Matched: rules.Matched{Outcome: rules.Unlimited, Count: 1}}},
		{limiter.Request{Path: "/c"}, rules.Match{Rule: "drawing", Matched: rules.Matched{Shadow: true, Count: 1}}},
		{limiter.Request{Rule: "trial"}, rules.Match{Rule: "trial", Matched: rules.Matched{Shadow: true, Count: 1}}},
		{limiter.Request{Rule: "trial", Limits: []*limiter.Limit{fivePerMinute(t)}},
			rules.Match{Rule: "request", Matched: rules.Matched{Shadow: true, Count: 2}}},
		{limiter.Request{Rule: "first", Limits: []*limiter.Limit{fivePerMinute(t)}},
			rules.Match{Rule: "first", Matched: rules.Matched{Count: 2}}},
		{limiter.Request{Path: "/d"}, rules.Match{}},
	} {
		var charge arith.Charge
		if m, err := s.Resolve(&c.r, &charge); err != nil || m != c.want {
			t.Errorf("%+v: %+v, %v", c.r, m, err)
		}
	}
	only := mustSet(t, "rules: [{name: trial, key: [user], limits: [1/second], shadow: true}]", rules.Options{})
	var charge arith.Charge
	if m, err := only.Resolve(&limiter.Request{}, &charge); err != nil ||
		m != (rules.Match{Rule: "trial", Matched: rules.Matched{Shadow: true, Count: 1}}) {
		t.Errorf("only a shadow rule: %+v, %v", m, err)
	}
}

func fivePerMinute(t *testing.T) *limiter.Limit {
	t.Helper()
	l := limitertest.Limit(t, limiter.Spec{Limit: 5, Window: time.Minute})
	return l
}
