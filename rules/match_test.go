package rules_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// matches reports whether a rule with these conditions matches a request.
func matches(tb testing.TB, conditions string, r limiter.Request) bool {
	tb.Helper()
	s := mustSet(tb, "rules: [{name: a, match: {"+conditions+"}, limits: [5/second], key: [rule]}]", rules.Options{})
	var c arith.Charge
	m, err := s.Resolve(&r, &c)
	if err != nil {
		tb.Fatal(err)
	}
	return m.Rule == "a"
}

// check compares what conditions match with what is expected: the values that fit, and
// those that do not.
func checkMatches(t *testing.T, conditions string, request func(value string) limiter.Request, fit, not []string) {
	t.Helper()
	for i, v := range append(append([]string{}, fit...), not...) {
		if got := matches(t, conditions, request(v)); got != (i < len(fit)) {
			t.Errorf("{%s} and %q: matches %t", conditions, v, got)
		}
	}
}

func TestMatchIP(t *testing.T) {
	request := func(v string) limiter.Request { return limiter.Request{IP: v} }
	inside := []string{"10.0.0.0", "10.1.2.3", "10.255.255.255", "::ffff:10.1.2.3", "192.0.2.7", "2001:db8::1",
		"2001:DB8:ffff::", "2001:db8::1%eth0", "203.0.113.9", "2001:db8:5::/64", "10.1.0.0/16", "10.0.0.0/8", "10.1.2.3:80",
		"[2001:db8::1]", "10.1.2.3 "}
	outside := []string{"", "11.0.0.0", "9.255.255.255", "192.0.2.8", "2001:db9::", "::10.1.2.3", "::1", "2001:db9::/64",
		"2001::/16", "8.0.0.0/6", "10.0.0.0/7", "2001:db8::/31", "192.0.2.0/24"}
	list := `[10.0.0.0/8, 192.0.2.7, "2001:db8::/32", "::ffff:203.0.113.0/120"]`
	checkMatches(t, "ip: "+list, request, inside, outside)
	checkMatches(t, "not_ip: "+list, request, outside, inside)
	checkMatches(t, "ip: 10.0.0.0/8, not_ip: [10.1.0.0/16]", request, []string{"10.2.0.1", "10.0.255.255"},
		[]string{"10.1.0.1", "11.0.0.1", ""})
	checkMatches(t, "ip: [::1, 2001:db8::/32]", request, []string{"::1", "2001:db8::5"}, []string{"::2", "127.0.0.1"})
	checkMatches(t, "ip: 0.0.0.0/0", request, []string{"1.2.3.4", "::ffff:1.2.3.4"}, []string{"::1", ""})
}

func TestMatchHost(t *testing.T) {
	request := func(v string) limiter.Request {
		if v == "" {
			return limiter.Request{}
		}
		return limiter.Request{Attributes: map[string]string{rules.HostAttribute: v}}
	}
	inside := []string{"api.example.com", "API.Example.com", "api.example.com:8080", "api.example.com.", "a.shop.example",
		"a.b.shop.example:443", "A.SHOP.EXAMPLE."}
	outside := []string{"", "example.com", "xapi.example.com", "shop.example", ".shop.example.org", "api.example.com.evil",
		"[::1]:80", ":80", "."}
	checkMatches(t, `host: [api.example.com, "*.shop.example"]`, request, inside, outside)
	checkMatches(t, `not_host: [API.example.com., "*.shop.example"]`, request, outside, inside)
	// A client cannot leave a host by what it writes behind the name.
	checkMatches(t, `host: api.example.com`, request, []string{"api.example.com:x:80", "api.example.com.:80",
		"api.example.com:80:", "api.example.com:]", "api.example.com::"},
		[]string{"[api.example.com]", ":api.example.com", "[::1", "::1"})
	checkMatches(t, `host: ["[::1]", "[2001:DB8:0::7]"]`, request,
		[]string{"[::1]", "[::1]:80", "[2001:db8::7]:443", "[2001:DB8::7]"}, []string{"::1", "[::1", "[::2]", "x[::1]"})
}

func TestMatchOpposites(t *testing.T) {
	method := func(v string) limiter.Request { return limiter.Request{Method: v} }
	checkMatches(t, "not_method: [GET, head]", method, []string{"POST", ""}, []string{"GET", "get", "HEAD"})
	group := func(v string) limiter.Request { return limiter.Request{Group: v} }
	checkMatches(t, "not_group: [free, default]", group, []string{"gold"}, []string{"free", "default", ""})
	path := func(v string) limiter.Request { return limiter.Request{Path: v} }
	checkMatches(t, "not_path: ^/static/", path, []string{"/", "/x/static/", ""}, []string{"/static/", "/static/x"})
	checkMatches(t, `path: ^/api, not_path: "^/api/(health|ready)$"`, path, []string{"/api", "/api/healthy"},
		[]string{"/api/health", "/api/ready", "/x"})
}

func TestMatchUser(t *testing.T) {
	user := func(v string) limiter.Request { return limiter.Request{User: v, IP: "10.0.0.1"} }
	checkMatches(t, "user: mallory", user, []string{"mallory"}, []string{"", "ada", "Mallory", "mallory ", "xmallory"})
	checkMatches(t, "user: [mallory, eve@x.example]", user, []string{"mallory", "eve@x.example"}, []string{"", "ada"})
	checkMatches(t, "not_user: [mallory, eve]", user, []string{"", "ada", "Eve"}, []string{"mallory", "eve"})
	checkMatches(t, `user: ""`, user, []string{""}, []string{"ada", "10.0.0.1"})
	checkMatches(t, `not_user: ""`, user, []string{"ada"}, []string{""})
	checkMatches(t, `user: {pattern: "(?i)^mallory$"}`, user, []string{"mallory", "MALLORY"}, []string{"", "xmallory"})
	checkMatches(t, `user: {pattern: "^bot-"}, not_user: bot-7`, user, []string{"bot-8"}, []string{"", "bot-7", "ada"})
	checkMatches(t, `not_user: {pattern: "^bot-"}`, user, []string{"", "ada"}, []string{"bot-7"})
	checkMatches(t, "user: 10.0.0.1", user, []string{"10.0.0.1"}, []string{""})
}

func TestMatchAttributes(t *testing.T) {
	request := func(v string) limiter.Request {
		if v == "absent" {
			return limiter.Request{}
		}
		return limiter.Request{Attributes: map[string]string{"key": v}}
	}
	checkMatches(t, "attributes: {key: [a, b]}", request, []string{"a", "b"}, []string{"", "absent", "c", "A"})
	checkMatches(t, "attributes: {key: }", request, []string{"a", "c"}, []string{"", "absent"})
	checkMatches(t, `attributes: {key: ""}`, request, []string{"", "absent"}, []string{"a"})
	checkMatches(t, `attributes: {key: {pattern: "^k-"}}`, request, []string{"k-", "k-1"},
		[]string{"", "absent", "x", "xk-", "K-"})
	checkMatches(t, `attributes: {key: {pattern: ".*"}}`, request, []string{"k", " "}, []string{"", "absent"})
	checkMatches(t, `attributes: {key: {pattern: "^(a|b)$"}}`, request, []string{"a", "b"}, []string{"ab", "c"})
	checkMatches(t, `attributes: {key: {pattern: "^a.*$"}}`, request, []string{"a", "ab"}, []string{"a\nb", "b"})
	checkMatches(t, "attributes: {key: {not: a}}", request, []string{"", "absent", "b"}, []string{"a"})
	checkMatches(t, `attributes: {key: {not: [a, ""]}}`, request, []string{"b"}, []string{"", "absent", "a"})
	checkMatches(t, `attributes: {key: {not: {pattern: "^k-"}}}`, request, []string{"", "absent", "x"},
		[]string{"k-", "k-1"})
	checkMatches(t, `attributes: {key: {pattern: "^k-", not: [k-test, k-demo]}}`, request, []string{"k-1"},
		[]string{"k-test", "k-demo", "", "x"})
}

// Patterns are matched one at a time as the index matches them.
func TestPatternsAlone(t *testing.T) {
	for _, pattern := range []string{"^a", "a$", "a", "^a$", "^(ab|c)$", "^a.*b", "(?i)ab", "^a?b", "^a.*$", "^[^a]", "",
		"^ab|c$"} {
		for _, v := range []string{"a", "ab", "abc", "c", "b", "AB", "xa", "a\nb", "acb", "é"} {
			r := limiter.Request{Path: v, Attributes: map[string]string{"v": v}}
			want := matches(t, "path: '"+pattern+"'", r)
			if got := matches(t, "attributes: {v: {pattern: '"+pattern+"'}}", r); got != want {
				t.Errorf("%q and %q: %t as an attribute, %t as a path", pattern, v, got, want)
			}
			if got := matches(t, "not_path: '"+pattern+"'", r); got == want {
				t.Errorf("%q and %q: not_path %t, path %t", pattern, v, got, want)
			}
		}
	}
}

// Each condition changes what the file means; its form does not.
func TestConditionsAreInTheHashAndTheInfo(t *testing.T) {
	hash := func(conditions string) uint64 {
		return mustSet(t, "rules: [{name: a, match: {"+conditions+"}, limits: [5/second]}]", rules.Options{}).Hash()
	}
	seen := map[uint64]string{}
	for _, c := range []string{
		"", "path: a", "not_path: a", "method: GET", "not_method: GET", "group: a", "not_group: a", "ip: 10.0.0.0/8",
		"ip: 10.0.0.0/9", "not_ip: 10.0.0.0/8",
		"host: a", "not_host: a", `host: "*.a"`, "attributes: {a: }", "attributes: {a: b}", "attributes: {a: {not: b}}",
		"attributes: {a: {pattern: b}}",
		"user: a", "not_user: a", `user: ""`, "user: {pattern: a}", "not_user: {pattern: a}", "user: a, not_user: b",
		"attributes: {a: {not: {pattern: b}}}", "attributes: {a: {pattern: b, not: b}}", `attributes: {a: ""}`,
	} {
		if other, ok := seen[hash(c)]; ok {
			t.Errorf("{%s} has the hash of {%s}", c, other)
		}
		seen[hash(c)] = c
	}
	for a, b := range map[string]string{
		"ip: [10.0.0.1, 192.0.2.0/24]": "ip: [192.0.2.0/24, 10.0.0.1/32, 10.0.0.1]",
		"ip: 10.0.0.1":                 `ip: "::ffff:10.0.0.1"`,
		"host: [a, B.example]":         "host: [b.example., A]",
		"not_method: get":              "not_method: [GET]",
		"user: [b, a]":                 "user: [a, b, a]",
	} {
		if hash(a) != hash(b) {
			t.Errorf("{%s} and {%s} differ", a, b)
		}
	}
	in := mustSet(t, `rules: [{name: a, limits: [5/second], cost: [{ip: 10.0.0.1, cost: 3}, {from: "attr:n", max: 9}],
  match: {path: ^/a, not_path: b, not_method: GET, not_group: g, ip: 10.0.0.0/8, not_ip: 10.0.0.1, host: "*.A", not_host: b.a, user: [u, a], not_user: {pattern: u.},
  attributes: {x: {pattern: p, not: q}, y: {not: {pattern: r}}, z: }}}]`, rules.Options{}).Rules()[0]
	same(t, "conditions", in.Conditions, rules.Conditions{
		Path: "^/a", NotPath: "b", NotMethods: []string{"GET"}, NotGroups: []string{"g"},
		IPs:    []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		NotIPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")},
		Hosts:  []string{"*.a"}, NotHosts: []string{"b.a"},
		Users:      rules.Users{Names: []string{"a", "u"}, NotPattern: "u."},
		Attributes: map[string][]string{"z": nil}, AttributePatterns: map[string]string{"x": "p"},
		NotAttributes: map[string][]string{"x": {"q"}}, NotAttributePatterns: map[string]string{"y": "r"},
	})
	same(t, "costs", in.CostCases, []rules.CostCase{
		{Conditions: rules.Conditions{IPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}}, Cost: 3, Default: 1, Min: 1,
			Max: limiter.MaxUnits},
		{From: "n", Default: 1, Min: 1, Max: 9},
	})
}

func TestMatchErrors(t *testing.T) {
	for conditions, want := range map[string]string{
		"ip: 10.0.0.5/8": `ip: "10.0.0.5/8" is an address within a network: write 10.0.0.0/8 for the network or ` +
			`10.0.0.5 for the address`,
		"ip: 10.0.0":              `ip: "10.0.0" is not an address or a prefix: write 10.0.0.0/24 for the network`,
		"ip: 10.0.0.0/33":         `"10.0.0.0/33" is not a prefix`,
		"ip: 10.*":                `ip: "10.*" is not an address`,
		"ip: 10.0.0.1-10.0.0.9":   `is not an address`,
		"not_ip: [fe80::1%eth0]":  `not_ip: "fe80::1%eth0" has a zone`,
		`ip: "::ffff:0:0/90"`:     "write 0.0.0.0/0",
		"ip: []":                  "the list of ip is empty",
		"host: https://a.example": "is not a host",
		"host: a.example:80":      "has a port; leave it out",
		"host: a.*.example":       "is not a host",
		`host: "*"`:               "is not a host",
		"not_host: []":            "the list of not_host is empty",
		"not: {group: a}":         "write not_path, not_method",
		"user: []":                "the list of user is empty",
		"user: '*'":               `"*" is not a wildcard; write not_user: "" for requests with any user`,
		"not_user: '*'":           `write user: "" for requests with any user`,
		"user: ^bot-":             `write user: {pattern: '^bot-'}`,
		"user: {name: ada}":       `unknown field "name"; known: pattern (in user)`,
		"not_user: {}":            "not_user is empty: write a user, a list of users, or {pattern: ...}",
		"user: {pattern: '('}":    `pattern: "(" is not a valid regular expression`,
		"method: GET|POST":        `method: "GET|POST" is not the name of a method; write a list of names`,
		"not_method: [GET POST]":  "is not the name of a method",
		"not_path: ^/a(":          `not_path: "^/a(" is not a valid regular expression`,

		"attributes: {a: {}}":                 "the condition on attribute \"a\" is empty",
		"attributes: {a: {not: {}}}":          "not is empty",
		"attributes: {a: {is: b}}":            `unknown field "is"; known: pattern, not (in the condition on an attribute)`,
		"attributes: {a: {pattern: '('}}":     `pattern: "(" is not a valid regular expression`,
		"attributes: {a: {not: {pattern: }}}": `"pattern" has no value`,
		"attributes: {a: ^k-}": `"^k-" seems to be a pattern, and a value is compared as it stands: write ` +
			`{pattern: '^k-'}, or {pattern: '^\^k-$'} for exactly this text`,
		"attributes: {a: [b, 'free*']}":  "write {pattern: '^free'}",
		"attributes: {a: '*.example'}":   `write {pattern: '\.example$'}`,
		"attributes: {a: 'a|b'}":         "write {pattern: 'a|b'}",
		"attributes: {a: {not: 'k-.*'}}": "write {pattern: 'k-.*'}",
		"attributes: {a: '[0-9]+'}":      "seems to be a pattern",
	} {
		got := problemsOf(t, "rules: [{name: a, limits: [5/second], match: {"+conditions+"}}]")
		if len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("{%s}:\n got %s\nwant %s", conditions, strings.Join(got, "\n"), want)
		}
	}
	// Values that only look a little like patterns are values.
	for _, v := range []string{"a.b", "C++", "a+b", "[::1]", "k-1", "a?b=c", "text/html", "1.0", "(none)", "a{b}", "$5",
		"a^b"} {
		if !matches(t, "attributes: {a: '"+v+"'}", limiter.Request{Attributes: map[string]string{"a": v}}) {
			t.Errorf("%q is not a value", v)
		}
	}
	many := make([]string, 257)
	for i := range many {
		many[i] = fmt.Sprintf("10.0.%d.%d", i/256, i%256)
	}
	got := problemsOf(t, "rules: [{name: a, limits: [5/second], match: {ip: ["+strings.Join(many, ", ")+"]}}]")
	if len(got) != 1 || !strings.Contains(got[0], "ip has 257 elements; at most 256 are allowed") {
		t.Errorf("got %q", got)
	}
}

// Conditions allocate nothing.
func TestConditionsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := mustSet(t, `rules:
- {name: a, limits: [5/second], match: {ip: [10.0.0.0/8, "2001:db8::/32"], host: "*.example.com", attributes: {key: {pattern: "^k-[0-9]+$"}}}, key: [rule],
   cost: [{path: ^/export, cost: 50}, {from: "attr:tokens", max: 1000}]}`, rules.Options{})
	r := limiter.Request{Path: "/towns", IP: "2001:db8::1",
		Attributes: map[string]string{"host": "api.example.com:80", "key": "k-15", "tokens": "77"}}
	var c arith.Charge
	if n := testing.AllocsPerRun(100, func() {
		if m, err := s.Resolve(&r, &c); err != nil || m.Rule != "a" || c.Key(0).Cost != 77 {
			t.Fatal(m, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
