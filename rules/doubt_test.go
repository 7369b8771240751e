package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/rules"
)

// A valid part that probably means something else has its position, and the line to write.
func TestDoubtfulParts(t *testing.T) {
	const later = "\n- {name: b, match: {path: ^/a}, key: [user], limits: [5/second]}"
	for _, x := range []struct{ file, at, instead, text string }{
		{"- {name: a, key: [user], limits: [9/second], shadow: true}" + later,
			"", "", `rule "b" never matches`}, // said of the rule that is covered
		{"- {name: a, match: {method: GET}, key: [user], limits: [9/second], shadow: true}" + later,
			"2:3", "continue: true", `rule "a" is in shadow and ends the matching: the limits of rule "b" on line 3 are off`},
		{"- {name: a, match: {path: ^/a/b, attributes: {x: [1, 2]}}, key: [user], limits: [9/second], shadow: true}" +
			"\n- {name: b, match: {attributes: {x: [2, 3]}}, key: [user], limits: [5/second]}",
			"2:27", "continue: true", `the limits of rule "b" on line 3 are off`},
		{"- {name: users, match: {path: ^/a}, key: [user], limits: [9/second]}\n- {name: ceiling, key: [rule], limits: " +
			"[99/second], continue: true}",
			"3:3", "", `rule "ceiling" has "continue: true" and no rule follows it: requests of rule "users" on line 2 end ` +
				`there`},
		{"- {name: users, key: [user], limits: [9/second]}\n- {name: ceiling, key: [rule], limits: [99/second], continue: " +
			"true}",
			"", "", `rule "ceiling" never matches`},
		{"- {name: a, match: {attributes: {path: {pattern: ^/a}}}, key: [user], limits: [5/second]}",
			"2:34", "path:", `"path" under attributes is an attribute of that name, not the request's path: write "path:" in ` +
				`match`},
		{"- {name: a, match: {attributes: {method: POST}}, key: [user], limits: [5/second]}",
			"2:34", "method: POST", `"method" under attributes is an attribute`},
		{"- {name: a, match: {attributes: {not_ip: 10.0.0.0/8}}, key: [user], limits: [5/second]}",
			"2:34", "not_ip: 10.0.0.0/8", `not the request's ip`},
		{"- {name: a, match: {path: '^/users/{id}/?$'}, key: [user], limits: [5/second]}",
			"2:27", "path: '^/users/[^/]+/?$'", `"{id}" stands for itself`},
		{"- {name: a, match: {path: '/users/{id}/x/{y}'}, key: [user], limits: [5/second]}",
			"2:27", "path: '^/users/[^/]+/x/[^/]+'", `stands for itself`},
		{"- {name: a, match: {not_path: '/api/*'}, key: [user], limits: [5/second]}",
			"2:31", "not_path: '^/api/'", `"/*" stands for any number of slashes`},
		{"- {name: a, match: {path: '^/a/*/b/?$'}, key: [user], limits: [5/second]}",
			"2:27", "path: '^/a/[^/]*/b/?$'", `any number of slashes`},
		{"- {name: a, key: [user], limits: [5/second], cost: [{path: '/x/*', cost: 2}, {cost: 1}]}",
			"2:60", "path: '^/x/'", `any number of slashes`},
		{"- {name: a, key: [user], limits: [5/second], cost: 6}",
			"2:52", "", `a request that costs 6 is never allowed, since limit "second" of rule "a" admits at most 5 at once: ` +
				`lower the cost, or raise the limit`},
		{"- {name: a, key: [user], limits: [5/second], cost: {default: 1, POST: 7}}",
			"2:52", "", `costs 7 is never allowed`},
		{"- {name: a, key: [user], limits: [{limit: 30, window: 1m, algorithm: token_bucket, burst: 20}], cost: 21}",
			"2:103", "", `admits at most 20 at once: lower the cost, or raise the burst`},
		{"- {name: a, key: [user], limits: [50/second], cost: {search: 5}}",
			"2:54", "cost: [{path: ^/search, cost: 5}, {cost: 1}]", `"search" is the cost of the HTTP method SEARCH`},
	} {
		w := warningsOf(t, "rules:\n"+x.file+"\n")
		if len(w) != 1 || x.at != "" && (fmt.Sprintf("%d:%d", w[0].Line, w[0].Column) != x.at || w[0].Instead != x.instead) ||
			!strings.Contains(w[0].Text, x.text) || !strings.Contains(strings.ReplaceAll(w[0].Text, `\"`, `"`), x.instead) {
			t.Errorf("%s:\n got %+v\nwant %s, instead %q, %s", x.file, w, x.at, x.instead, x.text)
		}
	}
	for cost, want := range map[int]int{50: 0, 2000: 2} { // one alternative that admits is enough
		if w := warningsOf(t, fmt.Sprintf("quotas: [{name: own, key: [user], limits: [10/minute]}, "+
			"{name: pool, key: [rule], limits: [1000/minute]}]\n"+
			"rules: [{name: a, quotas: [{any: [own, pool], cost: %d}]}]\n", cost)); len(w) != want {
			t.Errorf("alternatives with cost %d: %+v", cost, w)
		}
	}
	w := warningsOf(t,
		"quotas:\n- {name: q, key: [user], limits: [5/hour]}\nrules:\n- {name: a, key: [user], limits: [9/hour], quotas: "+
			"[{name: q, cost: 6}]}\n")
	if len(w) != 1 || w[0].Line != 4 || w[0].Column != 69 ||
		!strings.Contains(w[0].Text, `limit "hour" of quota "q" admits at most 5`) {
		t.Errorf("a draw above the quota: %+v", w)
	}
}

// What only seems doubtful has no warning.
func TestNoDoubt(t *testing.T) {
	const later = "\n- {name: b, match: {path: ^/a, group: [x, y]}, key: [user], limits: [5/second]}"
	shadow := func(match string) string {
		return "- {name: a, match: {" + match + "}, key: [user], limits: [9/second], shadow: true}" + later
	}
	for _, file := range []string{
		"- {name: a, key: [user], limits: [9/second], shadow: true, continue: true}" + later,
		"- {name: a, match: {path: ^/b}, key: [user], limits: [9/second]}\n- {name: b, match: {path: ^/a}, key: [rule], " +
			"limits: [9/second], continue: true}",
		"- {name: a, match: {path: ^/b}, key: [user], limits: [9/second], continue: true}\n- {name: b, key: [rule], " +
			"limits: [9/second], continue: true}",
		"- {name: a, match: {path: ^/b}, unlimited: true}\n- {name: b, key: [rule], limits: [9/second], continue: true}",
		"- {name: a, key: [rule], limits: [9/second], continue: true}",
		shadow("path: ^/b"), shadow("path: '^/(b|c)/?$'"), shadow("group: z"), shadow("not_group: [x, y, z]"),
		strings.TrimPrefix(later, "\n") + "\n- {name: a, key: [user], limits: [9/second], shadow: true}",
		shadow("attributes: {host: a}, group: z"),
		"- {name: a, match: {path: '^/a\\{id\\}/x|^/x\\p{Greek}[/*]'}, key: [user], limits: [5/second]}",
		"- {name: a, match: {path: '^/a/+$'}, key: [user], limits: [5/second]}",
		"- {name: a, key: [user], limits: [5/second], cost: 5}",
		"- {name: a, match: {user: [any], group: [all]}, key: [user], limits: [5/second]}",
		"- {name: a, match: {user: ['auth0|5f7', ada+test@x, 'b?']}, key: [user], limits: [5/second]}",
		"- {name: a, key: [user], limits: [{limit: 3, window: 1m, algorithm: token_bucket, burst: 20}], cost: 20}",
		"- {name: a, key: [user], limits: [5/second], cost: {SEARCH: 5, post: 2}}",
	} {
		if w := warningsOf(t, "rules:\n"+file+"\n"); len(w) > 0 {
			t.Errorf("%s:\n%+v", file, w)
		}
	}
}

// A pattern where a word is compared as it stands, and a path among attributes, are errors.
func TestPatternsInWrongPlaces(t *testing.T) {
	for match, want := range map[string]string{
		"group: 'gold*'": `f:2:28: group: "gold*" seems to be a pattern, and a group is compared as it ` +
			`stands`,
		"group: '*'": `f:2:28: group: "*" is not a wildcard; remove it to match any group`,
		"user: '*@example.com'": `f:2:27: user: "*@example.com" seems to be a pattern, and a user is compared ` +
			`as it stands: write user: {pattern: '@example\.com$'}`,
		"user: [ada, '(?i)bob']":  `f:2:33: user: "(?i)bob" seems to be a pattern`,
		"not_group: [free, '^x']": `f:2:39: not_group: "^x" seems to be a pattern`,
		"attributes: {path: '^/towns'}": `f:2:34: "path" under attributes is an attribute of that name, not the ` +
			`request's path: write "path: ^/towns" in match, beside attributes`,
		"attributes: {path: /towns, x: one}": `f:2:34: "path" under attributes`,
	} {
		_, err := rules.Parse("f", []byte("rules:\n- {name: a, match: {"+match+"}, key: [user], limits: [5/second]}\n"),
			rules.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", match, err, want)
		}
	}
}

// The name of an operation as a method is not taken for a rare method, and the line to
// write has the author's number.
func TestOperationsAsMethodsOfACost(t *testing.T) {
	for cost, want := range map[string]string{
		"export: 50": `"export" is not a method of HTTP or gRPC: for a path write cost: [{path: ^/export, cost: 50}, ` +
			`{cost: 1}], for a method of your own cost: [{method: export, cost: 50}]`,
		"REPROT: 50": `"REPROT" is not a method; did you mean "REPORT"?`,
		"psot: 50":   `"psot" is not a method; did you mean "POST"?`,
	} {
		_, err := rules.Parse("f", []byte("rules:\n- {name: a, key: [user], cost: {"+cost+"}, limits: [99/second]}\n"),
			rules.Options{})
		if err == nil || !strings.Contains(err.Error(), "f:2:33: "+want) {
			t.Errorf("%s:\n got %v\nwant %s", cost, err, want)
		}
	}
}

// A pattern that frees requests must begin where paths do.
func TestPatternsThatFreeTooMuch(t *testing.T) {
	const rest = "\n- {name: rest, key: [user], limits: [5/second]}"
	for rule, instead := range map[string]string{
		"match: {path: /health}, unlimited: true":                                    "path: '^/health'",
		"match: {path: '/it''s$'}, unlimited: true":                                  "path: '^/it''s$'",
		"match: {path: '/health|/ready'}, unlimited: true":                           "path: '^(/health|/ready)'",
		"match: {path: '^/health|/ready'}, unlimited: true":                          "path: '^(/health|/ready)'",
		"match: {path: ^/health}, unlimited: true":                                   "",
		"match: {path: '\\.css$'}, unlimited: true":                                  "",
		"match: {not_path: /static/}, key: [user], limits: [9/second]":               "not_path: '^/static/'",
		"match: {not_path: ^/static/}, key: [user], limits: [9/second]":              "",
		"match: {path: /search}, key: [user], limits: [9/second]":                    "path: '^/search'",
		"match: {path: '(?i)/search'}, key: [user], limits: [9/second]":              "",
		"match: {path: '(^|/)health$', group: internal}, unlimited: true":            "",
		"match: {path: '/health', group: internal}":                                  "path: '^/health'",
		"match: {not_path: '/static/', group: [a]}, unlimited: true":                 "",
		"match: {not_path: '/static/', group: [a]}, key: [user], limits: [9/second]": "not_path: '^/static/'",
	} {
		got := ""
		for _, w := range warningsOf(t, "rules:\n- {name: a, "+rule+"}"+rest) {
			if strings.Contains(w.Text, "matches anywhere in a path") {
				got = w.Instead
			}
		}
		if got != instead {
			t.Errorf("%s: %q, want %q", rule, got, instead)
		}
	}
}
