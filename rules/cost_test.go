package rules_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// costOf returns what a request costs under a rule.
func costOf(tb testing.TB, cost string, r limiter.Request) uint64 {
	tb.Helper()
	s := mustSet(tb, "rules: [{name: a, limits: [5/second], key: [rule], cost: "+cost+"}]", rules.Options{})
	var c arith.Charge
	if _, err := s.Resolve(&r, &c); err != nil {
		tb.Fatal(err)
	}
	return c.Key(0).Cost
}

// The first element that a request fits sets its cost.
func TestCostCases(t *testing.T) {
	const cost = `[{method: [POST, put], path: ^/import, cost: 9}, {method: POST, cost: 5}, {path: ^/export, cost: 50},
  {attributes: {tier: big}, cost: 3}, {ip: 10.0.0.0/8, cost: 0}, {not_path: ^/api, cost: 4}, {from: "attr:tokens", max: 100, default: 7}]`
	for _, x := range []struct {
		r    limiter.Request
		want uint64
	}{
		{limiter.Request{Method: "POST", Path: "/import"}, 9},
		{limiter.Request{Method: "put", Path: "/import"}, 9},
		{limiter.Request{Method: "post", Path: "/export"}, 5},
		{limiter.Request{Method: "GET", Path: "/export/x"}, 50},
		{limiter.Request{Path: "/api", Attributes: map[string]string{"tier": "big"}}, 3},
		{limiter.Request{Path: "/api", IP: "10.1.2.3"}, 0},
		{limiter.Request{Path: "/x"}, 4},
		{limiter.Request{Path: "/api", Attributes: map[string]string{"tokens": "20"}}, 20},
		{limiter.Request{Path: "/api"}, 7},
		{limiter.Request{Path: "/export", Cost: limiter.Units(2)}, 2}, // the request's own goes first
	} {
		if got := costOf(t, cost, x.r); got != x.want {
			t.Errorf("%+v costs %d, want %d", x.r, got, x.want)
		}
	}
	if got := costOf(t, "[{method: POST, cost: 5}]", limiter.Request{}); got != 1 {
		t.Errorf("a request that fits no element costs %d, want 1", got)
	}
}

// A value that is no number must not make a request cheaper than an honest one.
func TestCostFromAttribute(t *testing.T) {
	for value, want := range map[string]uint64{
		"1": 1, "17": 17, "017": 17, "100": 100, "": 8,
		"0": 1, "00": 1, // min
		"101": 100, "9007199254740991": 100, "9007199254740992": 100, "18446744073709551617": 100,
		strings.Repeat("9", 8000): 100,
		"-1":                      100, "+1": 100, "1.5": 100, "1e3": 100, "1_000": 100, " 1": 100, "1 ": 100, "abc": 100,
		"٣": 100, "0x10": 100,
		"1,000": 100,
	} {
		r := limiter.Request{Attributes: map[string]string{"tokens": value}}
		if got := costOf(t, `{from: "attr:tokens", default: 8, max: 100}`, r); got != want {
			t.Errorf("%.20q costs %d, want %d", value, got, want)
		}
	}
	from := func(value, cost string) uint64 {
		return costOf(t, cost, limiter.Request{Attributes: map[string]string{"n": value}})
	}
	if got := costOf(t, "{from: attr:n}", limiter.Request{}); got != 1 {
		t.Errorf("without the attribute: %d, want 1", got)
	}
	if got := from("junk", "{from: attr:n}"); got != limiter.MaxUnits {
		t.Errorf("junk without max: %d, want the largest cost", got)
	}
	if got := from("0", "{from: attr:n, min: 0}"); got != 0 {
		t.Errorf("0 with min: 0: %d", got)
	}
	if got := from("2", "{from: attr:n, min: 5}"); got != 5 {
		t.Errorf("2 with min: 5: %d", got)
	}
}

func TestCostErrors(t *testing.T) {
	for cost, want := range map[string]string{
		"{defualt: 1}":  `unknown field "defualt" (in cost); did you mean "default"?`,
		"{frm: attr:x}": `did you mean "from"?`,
		"{PSOT: 2}":     `"PSOT" is not a method; did you mean "POST"?`,
		"{frobnicate: 2}": `"frobnicate" is not a method of HTTP or gRPC: for a path write ` +
			`cost: [{path: ^/frobnicate, cost: 2}, {cost: 1}], for a method of your own cost: [{method: frobnicate, cost: 2}]`,
		"{/export: 2}":                                  "is not a method; for a path write cost: [{path: ^/export",
		"{max: 2}":                                      `"max" belongs to a cost that an attribute states`,
		"{path: ^/a, cost: 2}":                          `belongs in an element of a list`,
		"{not_method: GET, cost: 2}":                    `"not_method" belongs in an element of a list`,
		"{not_host: a.example, cost: 2}":                `"not_host" belongs in an element of a list`,
		"{from: attr:x, POST: 2}":                       `a cost has either methods or "from"`,
		"{from: tokens}":                                `write from: "attr:NAME"`,
		`{from: "attr: n"}`:                             "from: write attr:n without a blank",
		"{from: user}":                                  `write from: "attr:NAME"`,
		"{from: attr:x, default: 0}":                    "default is 0, so a request without the attribute would be free",
		"{from: attr:x, max: 0}":                        "max is 0, so every request would be free",
		"{from: attr:x, max: 5, min: 6}":                "min 6 is above max 5",
		"{from: attr:x, max: 5, default: 6}":            "default 6 is above max 5",
		"{from: attr:x, max: -5}":                       "max: -5 is out of range: give 1 to",
		"{from: attr:x, min: 9007199254740993}":         "min: 9007199254740993 is out of range: give 0 to",
		"{from: attr:x, min: 9007199254740993, max: 5}": "min: 9007199254740993 is out of range",
		"{from: attr:x, default: 00}":                   "default is 0, so a request without the attribute would be free",
		"{from: attr:x, max: 0x10}":                     `max: "0x10" is not a whole number`,
		"{from: attr:x, default: [1]}":                  "default is a whole number of units, not a list",
		"[{cost: 9007199254740992}]":                    "cost: 9007199254740992 is out of range",
		"{POST: 2, default: -1}":                        "default: -1 is out of range",
		"{from: attr:x, cost: 5}":                       `unknown field "cost"`,
		"[]":                                            "the list of costs is empty",
		"[5]": "an element of cost is a mapping such as {method: POST, cost: 5}, " +
			"not a single value",
		"[{method: POST}]":                     "this element has no cost",
		"[{cost: 5, from: attr:x}]":            `"cost" and "from" exclude each other`,
		"[{cost: 5, max: 7}]":                  `"max" belongs to a cost that an attribute states`,
		"[{cost: 5}, {method: POST, cost: 7}]": "this cost is never used: the element on line 1 fits every request",
		"[{methods: POST, cost: 7}]":           `did you mean "method"?`,
		"[{path: '(', cost: 7}]":               "is not a valid regular expression",
	} {
		got := problemsOf(t, "rules: [{name: a, limits: [5/second], cost: "+cost+"}]")
		n := 1
		if strings.HasSuffix(cost, ", cost: 2}") {
			n = 2
		}
		if len(got) != n || !strings.Contains(got[0], want) {
			t.Errorf("cost: %s:\n got %s\nwant %s", cost, strings.Join(got, "\n"), want)
		}
	}
	if got := problemsOf(t, "rules: [{name: a, limits: [5/second], cost: ["+strings.Repeat("{method: A, cost: 1}, ", 65)+
		"]}]"); len(got) != 1 || !strings.Contains(got[0], "cost has 65 elements; at most 64 are allowed") {
		t.Errorf("got %q", got)
	}
}

func TestCostsAreInTheHash(t *testing.T) {
	seen := map[uint64]string{}
	for _, c := range []string{
		"1", "2", "{POST: 2}", "[{method: POST, cost: 2}]", "[{method: POST, cost: 3}]", "[{method: PUT, cost: 2}]",
		"[{path: ^/a, cost: 2}]", "{from: attr:a}",
		"{from: attr:b}", "{from: attr:a, max: 7}", "{from: attr:a, max: 7, default: 2}", "{from: attr:a, min: 0}",
		"[{path: ^/a, cost: 2}, {method: POST, cost: 3}]", "[{method: POST, cost: 3}, {path: ^/a, cost: 2}]",
	} {
		h := mustSet(t, "rules: [{name: a, limits: [5/second], cost: "+c+"}]", rules.Options{}).Hash()
		if other, ok := seen[h]; ok {
			t.Errorf("%s has the hash of %s", c, other)
		}
		seen[h] = c
	}
}
