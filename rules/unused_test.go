package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// What a rule sets must have an effect on one of its limits; what the defaults set need
// not.
func TestOptionsThatNoLimitUses(t *testing.T) {
	for fields, want := range map[string]string{
		"burst: 20, limits: [100/minute]": `1:29: no limit of this rule uses "burst": it is an ` +
			`option of token_bucket, leaky_bucket, gcra; write "algorithm: token_bucket" too, or remove it`,
		"drip: interval, algorithm: gcra, limits: [100/minute]": `no limit of this rule uses "drip": it is an option ` +
			`of leaky_bucket; write "algorithm: leaky_bucket" too`,
		"sub_windows: 60, limits: [100/minute, 5/second]": `write "algorithm: sliding_window" too`,
		"align: first_hit, limits: [100/minute]":          `write "algorithm: fixed_window" too`,
		"align: first_hit, limits: [{limit: 5, calendar: day}]": `uses "align": windows of a calendar have no other; ` +
			`remove it`,
		"algorithm: gcra, limits: [{limit: 5, calendar: day}]": `uses "algorithm": windows of a calendar have no ` +
			`other; remove it`,
		"zone: Europe/Berlin, limits: [100/minute]": `it is an option of limits such as {limit: 5, ` +
			`calendar: day}; write one, or remove it`,
		"anchor_day: 15, limits: [{limit: 5, calendar: day}]":       "such as {limit: 5, calendar: month}",
		"week_start: sunday, limits: [{limit: 5, calendar: month}]": "such as {limit: 5, calendar: week}",
		`zone: "", limits: [{limit: 5, calendar: day}]`:             "zone is empty: give an IANA name",
		`limits: [{limit: 5, calendar: day, zone: ""}]`:             "zone is empty: give an IANA name",
		`limits: [{limit: 5, window: 1h, at: "00:00"}]`:             "at is an option of calendar windows",
		"limits: [{limit: 5, window: 1h, week_start: monday}]":      "week_start is an option of calendar windows",
		`limits: [{limit: 5, calendar: hour, at: "00:00"}]`:         "at is for calendar day and longer units, not for hour",
		"limits: [{limit: 5, calendar: month, week_start: monday}]": "week_start is for calendar week, not for month",
		"match: {group: x}, key: [user]":                            "this rule has no limits",
		"match: {group: x}, shadow: true":                           "this rule has no limits",
		"match: {group: x}, block: 5m":                              "this rule has no limits",
		"match: {group: x}, cost: 2, on_unreachable: closed":        "this rule has no limits",
		"match: {attributes: {plan: null}}, limits: [5/second]": `null is not a value: leave it out, as in "plan:", ` +
			`for any value ({not: ""} in JSON), or write plan: "" for a request without the attribute`,
		"match: {attributes: {plan: ~}}, limits: [5/second]":         "~ is not a value",
		"match: {attributes: {plan: Null}}, limits: [5/second]":      "Null is not a value",
		"match: {attributes: {plan: [a, null]}}, limits: [5/second]": "is a single value, not empty",
		"match: {host: '[::1'}, limits: [5/second]":                  "is not an IPv6 address in brackets",
		"match: {host: '[::1]:80'}, limits: [5/second]":              "is not an IPv6 address in brackets",
		"match: {host: '[192.0.2.1]'}, limits: [5/second]":           "is not an IPv6 address in brackets",
		"match: {host: '::1'}, limits: [5/second]":                   "has a port",
	} {
		if got := problemsOf(t, "defaults: {key: [user]}\nrules: [{name: a, "+fields+"}]"); len(got) != 1 ||
			!strings.Contains(got[0], strings.TrimPrefix(want, "1:29")) {
			t.Errorf("%s:\n got %s\nwant %s", fields, strings.Join(got, "\n"), want)
		}
	}
	for _, file := range []string{
		"defaults: {burst: 20, drip: interval, align: first_hit, zone: UTC, sub_windows: 4}\nrules: [{name: a, limits: " +
			"[100/minute]}]",
		"rules: [{name: a, burst: 20, limits: [5/second, {limit: 9, window: 1m, algorithm: gcra}]}]",
		"rules: [{name: a, burst: 20, limits: [{limit: 9, window: 1m, algorithm: gcra, burst: 7}]}]",
		`rules: [{name: a, zone: UTC, at: "06:00", algorithm: gcra, limits: [5/second, {limit: 9, calendar: day}]}]`,
		"rules: [{name: a, algorithm: fixed_window, limits: [{limit: 9, calendar: day}]}]",
		"rules: [{name: a, match: {group: x}}]",
		"rules: [{name: a, match: {attributes: {plan: , x: {not: ''}, y: ''}}, limits: [5/second]}]",
		"rules:\n- name: a\n  match:\n    attributes:\n      plan:\n      x: 'null'\n  limits: [5/second]\n",
	} {
		mustSet(t, file, rules.Options{})
	}
	for _, file := range []string{ // one problem of a rule is enough
		"rules: [{name: a, burst: 20, limits: [{limit: 5, window: 1m, algorithm: gcrra}]}]",
		"rules: [{name: a, algorithm: gcrra, burst: 20, limits: [5/second]}]",
	} {
		if got := problemsOf(t, file); len(got) != 1 || !strings.Contains(got[0], "unknown algorithm") {
			t.Errorf("%s: %q", file, got)
		}
	}
}

// A shadow rule takes no room of the rules in force: what does not fit of it is left out.
func TestShadowRulesTakeNoRoom(t *testing.T) {
	keys := func(n int, prefix string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = "['attr:" + prefix + string(rune('a'+i)) + "']"
		}
		return "keys: [" + strings.Join(parts, ", ") + "]"
	}
	const counted = "limits: [5/second], continue: true"
	file := "rules:\n" +
		"- {name: shadow, shadow: true, " + keys(8, "x") + ", " + counted + "}\n" +
		"- {name: first, " + keys(6, "x") + ", " + counted + "}\n" +
		"- {name: later, shadow: true, " + keys(8, "x") + ", " + counted + "}\n" +
		"- {name: second, " + keys(6, "y") + ", limits: [5/second]}\n"
	s := mustSet(t, file, rules.Options{})
	r := limiter.Request{Attributes: map[string]string{}}
	for c := 'a'; c < 'i'; c++ {
		r.Attributes["x"+string(c)], r.Attributes["y"+string(c)] = "1", "1"
	}
	var c arith.Charge
	m, err := s.Resolve(&r, &c)
	if err != nil || m != (rules.Match{Rule: "first", Matched: rules.Matched{Shadow: true, Count: 4}}) ||
		c.Len() != limiter.MaxKeys {
		t.Fatalf("%+v, %v, %d keys", m, err, c.Len())
	}
	got := map[string]int{}
	for i := range c.Len() {
		got[c.Key(i).Rule.Name]++
	}
	same(t, "keys", got, map[string]int{"first": 6, "second": 6, "shadow": 4})
	// Too many keys of rules in force are still an error.
	if _, err := mustSet(t, strings.Replace(file, "later, shadow: true,", "later,", 1), rules.Options{}).Resolve(&r,
		&c); err == nil || c.Len() != 0 ||
		!strings.Contains(err.Error(), `more than 16 keys together; rule "second" is one too many`) {
		t.Errorf("%v, %d keys", err, c.Len())
	}
}

// So it is if each rule has one key.
func TestShadowRulesOfOneKeyTakeNoRoom(t *testing.T) {
	var b strings.Builder
	b.WriteString("rules:\n- {name: shadow, shadow: true, key: [user], limits: [5/second], continue: true}\n")
	for i := range limiter.MaxKeys {
		fmt.Fprintf(&b, "- {name: r%d, key: [user], limits: [5/second], continue: true}\n", i)
	}
	s := mustSet(t, b.String(), rules.Options{})
	var c arith.Charge
	if m, err := s.Resolve(&limiter.Request{User: "ada"}, &c); err != nil || m.Rule != "r0" ||
		m.Count != limiter.MaxKeys+1 || c.Len() != limiter.MaxKeys {
		t.Fatalf("%+v, %v, %d keys", m, err, c.Len())
	}
	for i := range c.Len() {
		if k := c.Key(i); k.Rule.Shadow {
			t.Errorf("key %d is that of rule %s", i, k.Rule.Name)
		}
	}
}
