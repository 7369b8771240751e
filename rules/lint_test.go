package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// Each probable mistake has its position, and the line to write instead.
func TestProbableMistakes(t *testing.T) {
	// put returns a function that puts what is to be written in place of a text, or after
	// what stands for it.
	put := func(old string, after ...string) func(file, instead string) string {
		return func(file, instead string) string {
			return strings.Replace(file, old, strings.Join(after, "")+instead, 1)
		}
	}
	for _, x := range []struct {
		file, at, instead, text string

		fix func(file, instead string) string
	}{
		{"- {name: a, key: [user], limits: [5/month]}", "2:35", "{limit: 5, window: 30d}",
			"a window of a month is 30 days long", put("5/month")},
		{"- {name: a, key: [user], limits: [5/ year ]}", "2:35", "{limit: 5, window: 365d}",
			"a window of a year is 365 days long", put("5/ year ")},
		{"- name: a\n  key: [user]\n  limits:\n  - limit: 7\n    window: month", "6:13", "window: 30d",
			"follows no calendar: write window: 30d for 30 days, or calendar: month in place of the window",
			put("window: month")},
		{"- {name: a, key: [user], limits: [{limit: 7, window: month, algorithm: gcra, burst: 3}]}", "2:54", "window: 30d",
			"write window: 30d for 30 days", put("window: month")},
		{"- {name: a, key: [user], algorithm: token_bucket, burst: 3, limits: [5/month]}", "2:70", "{limit: 5, window: 30d}",
			"write {limit: 5, window: 30d} for 30 days", put("5/month")},

		{"- {name: a, key: [path, attr:customer], limits: [5/second]}", "2:25", "match: {attributes: {customer: }}",
			"all requests without it share one counter", put("name: a", "name: a, ")},
		{"- {name: a, key: attr:customer, limits: [5/second]}", "2:18", "match: {attributes: {customer: }}",
			"counts by attribute \"customer\"", put("name: a", "name: a, ")},
		{"- {name: a, key: ['attr:a b'], limits: [5/second]}", "2:19", "match: {attributes: {'a b': }}",
			"attributes: {'a b': \"\"}", put("name: a", "name: a, ")},
		{"- {name: a, key: ['attr:c'], match: {attributes: {c: {not: x}}}, limits: [5/second]}", "2:19",
			"match: {attributes: {c: }}", "share one counter", put("match: {attributes: {c: {not: x}}}")},
		{"- {name: a, key: [attr:c], limits: [5/second]}", "2:19", "match: {attributes: {c: }}",
			"and a later rule for requests without it, which have no limit otherwise. Only these match attributes: {c: \"\"}",
			put("name: a", "name: a, ")},

		{"- {name: a, key: [user], limits: [5/second]}\n- {name: b, key: [ip], limits: [9/hour]}", "3:3", "continue: true",
			`rule "b" never matches: all its requests go to rule "a" on line 2`, put("name: a", "name: a, ")},
		{"- {name: a, match: {path: ^/a}, key: [user], limits: [5/second]}\n- {name: b, match: {path: ^/a/b, method: GET}, " +
			"key: [ip], limits: [9/hour]}", "3:27", "continue: true", "never matches", put("name: a", "name: a, ")},
		{"- {name: a, match: {path: ^/a}, unlimited: true}\n- {name: b, match: {path: ^/a/b}, key: [ip], limits: [9/hour]}",
			"3:27", "", "Move it before that rule. A request", nil},

		{"- {name: a, key: [user], limits: [5/second, 1000/minute]}", "2:45", "304/minute",
			`limit "minute" of rule "a" never denies first: limit "second" lets at most 305 units through meanwhile`,
			put("1000/minute")},
		{"- {name: a, key: [user], limits: [{limit: 1000, window: 1m, name: m}, 5/second]}", "2:43", "limit: 304",
			`limit "m"`, put("limit: 1000")},
		{"- {name: a, key: [user], limits: [{limit: 1000, window: 1m, algorithm: sliding_window, sub_windows: 6}, 5/second]}",
			"2:43", "limit: 354", `limit "minute"`, put("limit: 1000")},
		{"- {name: a, key: [user], limits: [{limit: 1, window: 1h, algorithm: sliding_log}, {limit: 500, window: 1m, " +
			"algorithm: gcra}]}", "2:83", "", "Remove it", nil},
		{"- {name: a, key: [user], algorithm: sliding_log, limits: [1/hour, 5/minute]}", "2:67", "",
			`limit "minute" of rule "a" never denies first: limit "hour" lets at most 1 units through`, nil},

		{"- {name: a, match: {path: ^/towns$}, key: [user], limits: [5/second]}", "2:27", "path: '^/towns/?$'",
			`rule "a" matches "/towns" and not "/towns/"`, put("path: ^/towns$")},
		{"- {name: a, match: {path: ^/towns/$}, key: [user], limits: [5/second]}", "2:27", "path: '^/towns/?$'",
			`rule "a" matches "/towns/" and not "/towns"`, put("path: ^/towns/$")},
		{"- {name: a, match: {path: '^/a$|^/b$'}, key: [user], limits: [5/second]}", "2:27", `path: '^/a$|^/b$|^/a/$'`,
			"matches \"/a\" and not \"/a/\"", nil},
		{"- {name: a, match: {path: '^/" + strings.Repeat("a", 1014) + "(?:b|c)$'}, key: [user], limits: [5/second]}", "2:27",
			"", "take for the same: match both", nil},
		{"- {name: a, match: {path: '^\\Q/a\\E$'}, key: [user], limits: [5/second]}", "2:27", `path: '^\Q/a\E/?$'`,
			"matches \"/a\" and not \"/a/\"", put(`path: '^\Q/a\E$'`)},
		{"- {name: a, match: {path: ^/towns/?$}, limits: [5/second]}", "2:27", "key: [rule, user]",
			`"/towns" and "/towns/" have a limit each for each user`, put("name: a", "name: a, ")},

		{"- {name: a, match: {path: /search}, key: [user], limits: [5/second]}", "2:27", "path: '^/search'",
			"matches anywhere in a path, not only where it begins: write path: '^/search', or path: '.*/search'",
			put("path: /search")},
		{"- {name: a, match: {path: '/search/?$'}, key: [user], limits: [5/second]}", "2:27", "path: '^/search/?$'",
			"matches anywhere", put("path: '/search/?$'")},
		{"- {name: a, match: {path: /a|/b}, key: [user], limits: [5/second]}", "2:27", "path: '^(/a|/b)'", "matches anywhere",
			put("path: /a|/b")},
		{"- {name: a, match: {path: '^/a|/b|/c'}, key: [user], limits: [5/second]}", "2:27", "path: '^(/a|/b|/c)'",
			"^ is a part of the first alternative only", put("path: '^/a|/b|/c'")},
		{"- {name: a, key: [user], limits: [5/second], cost: [{path: '^/a|/b', cost: 2}, {cost: 1}]}", "2:60",
			"path: '^(/a|/b)'", "first alternative only", put("path: '^/a|/b'")},
		{`- {name: a, match: {path: '^/search\?q=x'}, key: [user], limits: [5/second]}`, "2:27", "path: '^/search/?$'",
			"asks for a query, and the path of a request has none", put(`path: '^/search\?q=x'`)},
		{"- {name: a, match: {path: ^/search/?page_size=, group: [x]}, key: [user], limits: [5/second]}", "2:27",
			"path: '^/search/?$'", "asks for a query", put("path: ^/search/?page_size=")},
		{`- {name: a, match: {path: '^/(a\?q|b)'}, key: [user], limits: [5/second]}`, "2:27", "attributes:",
			"asks for a query", nil},

		{"- {name: a, key: [ip, user], limits: [5/second]}", "2:18", "keys: [[ip], [user]]",
			`neither an address with many users nor a user at many addresses has a limit: write "keys: [[ip], [user]]" for a ` +
				`limit of each, or "keys: [[ip, user]]" if pairs are meant`, put("key: [ip, user]")},
		{"- {name: a, key: [path, user, ip, 'attr:a b'], match: {attributes: {a b: }}, limits: [5/second]}", "2:18",
			"keys: [[path, ip, 'attr:a b'], [path, user, 'attr:a b']]", `or "keys: [[path, user, ip, 'attr:a b']]"`,
			put("key: [path, user, ip, 'attr:a b']")},

		{"- {name: a, keys: [[ip], [user]], limits: [5/minute, 20/hour]}", "2:19", "continue: true",
			`rule "a" counts by each key with each limit: [ip] has 5/minute and 20/hour, and so has [user]. For 5/minute by ` +
				`[ip] and 20/hour by [user] write two rules, the first with "key: [ip]", "limits: [5/minute]" and`, nil},
		{"- {name: a, match: {method: [GTE]}, key: [user], limits: [5/second]}", "2:30", "method: GET",
			`method "GTE" in rule "a" is not a method of HTTP or gRPC`, put("method: [GTE]")},
		{"- {name: a, match: {method: [put, GTE]}, key: [user], limits: [5/second]}", "2:35", "method: [put, GET]",
			`method "GTE" in rule "a" is not a method`, put("method: [put, GTE]")},
		{"- {name: a, cost: [{method: GTE, cost: 2}], key: [user], limits: [5/second]}", "2:29", "method: GET",
			`method "GTE" in rule "a" is not a method`, put("method: GTE")},
		{"- {name: a, match: {not_method: optons}, key: [user], limits: [5/second]}", "2:33", "not_method: OPTIONS",
			`"optons" in rule "a" is not a method`, put("not_method: optons")},
		{"- {name: a, key: [user], limits: [5/second]}\ndefaults: {cost: [{method: GTE, cost: 2}]}", "3:28", "method: GET",
			`method "GTE" in the defaults is not a method`, put("method: GTE")},

		{"- {name: a, key: [user], cost: 2, unlimited: true}", "2:13", "",
			`rule "a" is unlimited and counts nothing, so these fields have no effect: "key", "cost". Remove them`, nil},
		{"- {name: a, unlimited: true, block: 5m}", "2:30", "", `these fields have no effect: "block"`, nil},
	} {
		w := warningsOf(t, "rules:\n"+x.file+"\n")
		if len(w) != 1 || fmt.Sprintf("%d:%d", w[0].Line, w[0].Column) != x.at || w[0].Instead != x.instead ||
			!strings.Contains(w[0].Text, x.text) || !strings.Contains(w[0].Text, x.instead) {
			t.Errorf("%s:\n got %+v\nwant %s, instead %q, %s", x.file, w, x.at, x.instead, x.text)
			continue
		}
		// With what is to be written in place, the file is valid and the warning is gone.
		if x.fix == nil {
			continue
		}
		fixed := x.fix(x.file, x.instead)
		if w := warningsOf(t, "rules:\n"+fixed+"\n"); fixed == x.file || len(w) > 0 {
			t.Errorf("%s:\nwritten instead: %s\n got %+v", x.file, fixed, w)
		}
	}
}

// Files that do what their authors probably meant have no warnings.
func TestNoFalseAlarms(t *testing.T) {
	for _, file := range []string{
		"- {name: a, key: [user], limits: [5/30d, 5/90d]}",
		"- {name: a, key: ['attr:c'], match: {attributes: {c: }}, limits: [5/second]}",
		"- {name: a, key: ['attr:c'], match: {attributes: {c: {not: \"\"}}}, limits: [5/second]}",
		"- {name: a, key: ['attr:c'], match: {attributes: {c: {pattern: ^k}}}, limits: [5/second]}",
		"- {name: a, key: ['attr:c'], match: {attributes: {c: [x, y]}}, limits: [5/second]}",
		"- {name: a, keys: [['attr:c'], [ip]], limits: [5/second]}",
		"- {name: a, match: {group: x}, unlimited: true}",
		"- {name: a, keys: [[ip, user]], limits: [5/second]}",
		"- {name: a, keys: [[ip], [user]], limits: [5/second]}",
		"- {name: a, keys: [[ip], [user]], limits: [5/second, 50/minute, 100/hour]}",
		"- {name: a, keys: [[ip], [user]], limits: [{name: burst, limit: 5, window: 1m}, 20/hour]}",
		"- {name: a, match: {path: '.*/search'}, key: [user], limits: [5/second]}",
		"- {name: a, match: {path: '^(/a/|.*/b/)'}, key: [user], limits: [5/second]}",
		"- {name: a, match: {path: '(^/a/|/b/)'}, key: [user], limits: [5/second]}",
		"- {name: a, match: {path: /}, key: [user], limits: [5/second]}",
		"- {name: a, match: {path: '^/a/?b|^/b/|^/a=?/'}, key: [user], limits: [5/second]}",

		"- {name: a, continue: true, key: [user], limits: [5/second]}\n- {name: b, key: [ip], limits: [9/hour]}",
		"- {name: a, match: {path: ^/a/b}, key: [user], limits: [5/second]}\n- {name: b, match: {path: ^/a}, key: [ip], " +
			"limits: [9/hour]}",
		"- {name: a, match: {path: ^/a, method: GET}, key: [user], limits: [5/second]}\n- {name: b, match: {path: ^/a}, " +
			"key: [ip], limits: [9/hour]}",
		"- {name: a, match: {path: '^/a/[0-9]+$'}, key: [user], limits: [5/second]}\n- {name: b, match: {path: ^/a/}, key: " +
			"[ip], limits: [9/hour]}",
		"- {name: a, match: {ip: 10.0.0.0/8}, key: [user], limits: [5/second]}\n- {name: b, match: {ip: 10.0.0.0/7}, key: " +
			"[ip], limits: [9/hour]}",

		"- {name: a, key: [user], limits: [5/second, 300/minute, 2000/hour]}",
		"- {name: a, key: [user], limits: [5/second, {limit: 1000, window: 1m, count_rejected: all}]}",
		"- {name: a, key: [user], limits: [{limit: 5, window: 1s, algorithm: token_bucket, burst: 800}, 1000/minute]}",
		"- {name: a, key: [user], limits: [{limit: 100, window: 1m, algorithm: gcra, burst: 10}, {limit: 10, window: 1s, " +
			"algorithm: fixed_window, name: s}]}",

		"- {name: a, match: {path: ^/towns$}, key: [user], limits: [5/second]}\n- {name: b, match: {path: ^/towns/}, key: " +
			"[user], limits: [5/second]}",
		"- {name: a, match: {path: ^/towns$}, unlimited: true}",
		"- {name: a, match: {path: ^/$}, key: [user], limits: [5/second]}",
		"- {name: a, match: {path: ^/towns/?$}, key: [path, user], limits: [5/second]}",
		"- {name: a, match: {method: [PROPFIND, get, EXECUTE]}, key: [user], limits: [5/second]}",
	} {
		if w := warningsOf(t, "rules:\n"+file+"\n"); len(w) > 0 {
			t.Errorf("%s:\n%+v", file, w)
		}
	}
}

// What a rule covers is judged rightly: a rule that is called unreachable is not found
// by any of many requests, and most that cannot be found are called so.
func TestCoveredRulesAreNeverFound(t *testing.T) {
	inWire(t)
	conditions := []string{
		"", "path: ^/a", "path: ^/a/b", "path: ^/a$", "path: '^/(a|b)$'", "path: b", "path: '^/a', not_path: /b$",
		"method: GET", "method: [GET, PUT]",
		"not_method: GET", "not_method: [GET, PUT]", "group: [free, default]", "group: free", "not_group: free",
		"ip: 10.0.0.0/8", "ip: 10.0.0.0/8, method: GET", "ip: 10.1.0.0/16", "ip: [10.1.0.1, 192.0.2.0/24]",
		"ip: 10.0.0.0/8, not_ip: 10.1.0.0/16", "not_ip: 10.1.0.0/16", "not_ip: [10.1.0.1, 192.0.2.0/24]",
		"host: '*.a.example'", "host: [x.a.example, '*.b.a.example']",
		"not_ip: 10.0.0.0/8", "host: a.example", "host: '*.example'", "not_host: a.example", "attributes: {x: }",
		"attributes: {x: a}", "attributes: {x: [a, b]}",
		"attributes: {x: {pattern: a}}", "attributes: {x: {not: a}}", "attributes: {x: {pattern: a, not: ab}}",
		`attributes: {x: ""}`, "attributes: {x: a, y: }",
		"user: a", "user: [a, b]", "not_user: a", "not_user: [a, b]", `user: ""`, `not_user: ""`, "user: {pattern: a}",
		"user: [a, ab], not_user: a", "not_user: {pattern: a}",
	}
	covered := 0
	for _, first := range conditions {
		for _, second := range conditions {
			file := "rules:\n- {name: a, match: {" + first + "}, key: [user], limits: [5/second]}\n- {name: b, match: {" +
				second + "}, key: [user], limits: [5/second]}\n"
			s := mustSet(t, file, rules.Options{})
			warned := strings.Contains(fmt.Sprint(s.Warnings()), `rule "b" never matches`)
			if warned {
				covered++
			}
			if warned && findable(t, s, "b") {
				t.Errorf("{%s} before {%s}: warned, and found", first, second)
			} else if first == second && !warned {
				t.Errorf("{%s} twice: not warned", first)
			}
		}
	}
	if covered < 2*len(conditions)+20 {
		t.Errorf("only %d pairs are covered", covered)
	}
}

// findable reports whether one of many requests finds a rule.
func findable(tb testing.TB, s *rules.Set, rule string) bool {
	tb.Helper()
	var c arith.Charge
	for _, path := range []string{"/a", "/a/b", "/a/b/c", "/b", "/c", "/ab"} {
		for _, method := range []string{"", "GET", "PUT", "POST"} {
			for _, group := range []string{"", "free", "gold"} {
				for _, ip := range []string{"", "10.0.0.1", "10.1.0.1", "10.1.0.2", "192.0.2.1"} {
					for _, host := range []string{"", "a.example", "b.example", "x.a.example", "c.b.a.example"} {
						for _, x := range []string{"", "a", "ab", "b", "c"} {
							for _, y := range []string{"", "1"} {
								r := limiter.Request{Path: path, Method: method, Group: group, IP: ip, User: "u",
									Attributes: map[string]string{"host": host, "x": x, "y": y}}
								if m, err := s.Resolve(&r, &c); err != nil {
									tb.Fatal(err)
								} else if m.Rule == rule {
									return true
								}
							}
						}
					}
				}
			}
		}
	}
	return false
}

// TestNothingLimitsBehindAShadow: where a shadow rule takes all requests of another, to move
// the other one before it is not what is advised: then the shadow rule would see nothing.
func TestNothingLimitsBehindAShadow(t *testing.T) {
	got := warningsOf(t, `version: 1
rules:
  - {name: a, key: [user], shadow: true, limits: [5/second]}
  - {name: b, match: {path: ^/b}, key: [user], limits: [9/hour]}
`)
	want := `"b" never matches: all its requests go to rule "a" on line 3. That rule is in shadow, so nothing limits ` +
		`them: write "continue: true" in rule "a"`
	for _, w := range got {
		if strings.Contains(w.Text, want) {
			return
		}
	}
	t.Errorf("none of %+v", got)
}
