package rules_test

import (
	"fmt"
	"strings"
	"testing"
)

// What can never fit, never be the first to deny or never be charged, and what is probably
// read as something else, has a warning with its position. With what is to be written instead,
// and with the other spelling that says that it is meant, the warning is gone.
func TestWhatIsNeverMeant(t *testing.T) {
	const rest = ", key: [user], limits: [500/second]}"
	match := func(m string) string { return "- {name: a, match: {" + m + "}" + rest }
	for _, x := range []struct {
		file, at, instead, text string
		// fixes are the file with the likely line, and with the one that says that it is meant.
		fixes []string
	}{
		{match("path: $/towns"), "2:27", "path: '^/towns'", `path "$/towns" fits nothing`,
			[]string{match("path: '^/towns'")}},
		{match("path: '^/a/^/b'"), "2:27", "path: '^/a//b'", "fits nothing", nil},
		{match("path: '^/a$/b'"), "2:27", "path: '^/a/b'", "fits nothing", nil},
		{match("path: '^(/a$/b|/c$/d)'"), "2:27", "path: '^(/a/b|/c/d)'", "fits nothing", nil},
		{match("path: ' ^/a'"), "2:27", "path: '^/a'", "fits nothing", nil},
		{match("path: '!^/a'"), "2:27", "not_path: '^/a'", "fits nothing", []string{match("not_path: '^/a'")}},
		{match("path: '!^/a/?$'"), "2:27", "not_path: '^/a/?$'", "fits nothing", []string{match("not_path: '^/a/?$'")}},
		{match("path: '^/a^/b$'"), "2:27", "path: '^/a/b$'", "fits nothing", nil},
		{match("not_path: '!^/a'"), "2:31", "path: '^/a'", "fits nothing", nil},
		{match("attributes: {x: {pattern: 'k^a'}}"), "2:47", "pattern: '^ka'", `pattern "k^a" fits nothing`, nil},
		{match("attributes: {x: {not: {pattern: 'k$a'}}}"), "2:53", "pattern: '^ka'", "fits nothing", nil},

		{match("path: ^towns"), "2:27", "path: '^/towns'", "fits no path that begins with a slash",
			[]string{match("path: '^/towns'"), match("path: '^(t)owns'")}},
		{match("path: ^https://a.example/b"), "2:27", "path: '^/b'", "asks for a host", []string{match("path: '^/b'")}},
		{match("path: http://a.example"), "2:27", "path: '^/'", "asks for a host", nil},
		{match("path: GET /a"), "2:27", "path: '^/a'", `and "method: GET" beside it`,
			[]string{match("path: '^/a', method: GET")}},
		{match("path: ^/users/:id"), "2:27", "path: '^/users/[^/]+'", `in which ":id" stands for itself`,
			[]string{match("path: '^/users/[^/]+'"), match("path: '^/users/[:]id'")}},
		{match("path: /users/:id/x"), "2:27", "path: '^/users/[^/]+/x'", `in which ":id" stands for itself`, nil},
		{match("path: '^/users/<int:id>/x'"), "2:27", "path: '^/users/[^/]+/x'", `in which "<int:id>" stands for itself`,
			[]string{match("path: '^/users/[^/]+/x'")}},
		{match("path: '^/[towns|cities]/'"), "2:27", "path: '^/(towns|cities)/'", `"[towns|cities]", which is one character`,
			[]string{match("path: '^/(towns|cities)/'")}},
		{match("attributes: {x: {pattern: '^[ab|cd]$'}}"), "2:47", "pattern: '^(ab|cd)$'", "which is one character", nil},
		{match("path: '^/towns*'"), "2:27", "path: '^/towns'", `"s*" stands for any number of "s"`,
			[]string{match("path: '^/towns'"), match("path: '^/town(s)*'")}},
		{match("path: '^/towns*$'"), "2:27", "path: '^/towns'", `"s*" stands for`, nil},

		{match("group: '!free'"), "2:28", "not_group: free", "is compared as it stands", []string{match("not_group: free")}},
		{match("not_group: not free"), "2:32", "group: free", "is compared as it stands", nil},
		{match("group: 'free, gold'"), "2:28", "group: [free, gold]", "for either of these",
			[]string{match("group: [free, gold]")}},
		{match("attributes: {size: '>= 1000'}"), "2:40", "size: {pattern: '^[0-9]{4,}$'}", "numbers are not compared by size",
			nil},
		{match("ip: 0.0.0.0/0"), "2:25", `ip: [0.0.0.0/0, "::/0"]`, "all addresses of IPv4 and none of IPv6",
			[]string{match(`ip: [0.0.0.0/0, "::/0"]`), match("ip: [0.0.0.0/1, 128.0.0.0/1]")}},
		{match(`not_ip: "::/0"`), "2:29", `not_ip: [0.0.0.0/0, "::/0"]`, "all addresses of IPv6 and none of IPv4", nil},

		{match("path: ^/a/b, not_path: ^/a/"), "2:44", "", "not_path excludes all that path asks for",
			[]string{match("path: ^/a/, not_path: ^/a/b")}},
		{match("path: '^/a[0-9]', not_path: '^/a[0-9]'"), "2:49", "", "not_path excludes all", nil},
		{match("method: [get], not_method: [GET, HEAD]"), "2:48", "", "not_method excludes all",
			[]string{match("method: [GET, PUT], not_method: GET")}},
		{match("group: free, not_group: [free, x]"), "2:45", "", "not_group excludes all",
			[]string{match("group: [free, y], not_group: [free, x]")}},
		{match("ip: [10.1.0.0/16, 10.2.3.4], not_ip: 10.0.0.0/8"), "2:58", "", "not_ip excludes all",
			[]string{match("ip: 10.0.0.0/8, not_ip: 10.1.0.0/16")}},
		{match("attributes: {x: {pattern: a, not: {pattern: a}}}"), "2:37", "", `no value of attribute "x" fits`,
			[]string{match("attributes: {x: {pattern: a, not: a}}")}},
		{"- {name: a, key: [user], limits: [500/second], cost: [{method: GET, not_method: GET, cost: 2}]}", "2:81", "",
			"not_method excludes all", nil},

		{"- {name: a, match: {method: POST}, cost: {GET: 2}" + rest, "2:43", "",
			`this cost is never used, since the rule does not match method "GET"`,
			[]string{"- {name: a, match: {method: [GET, POST]}, cost: {GET: 2}" + rest}},
		{"- {name: a, match: {path: ^/a}, cost: [{path: ^/b, cost: 2}, {cost: 1}]" + rest, "2:40", "",
			"the rule matches no request that fits it",
			[]string{"- {name: a, match: {path: ^/a}, cost: [{path: ^/a/b, cost: 2}, {cost: 1}]" + rest}},
		{"- {name: a, cost: [{path: ^/ex, cost: 2}, {path: ^/export, cost: 3}]" + rest, "2:43", "",
			"all its requests fit the element on line 2: move it before",
			[]string{"- {name: a, cost: [{path: ^/export, cost: 3}, {path: ^/ex, cost: 2}]" + rest}},
		{"- {name: a, cost: {get: 0}" + rest, "2:20", "not_method: GET",
			"is denied all the same while others have used up the limit",
			[]string{"- {name: a, match: {not_method: GET}" + rest,
				"- {name: a, cost: [{method: GET, cost: 0}, {cost: 1}]" + rest}},

		{"- {name: a, keys: [[ip], [user, ip]], limits: [5/second]}", "2:26", "",
			"key [user, ip] can never be the first to deny, since key [ip] counts all its requests",
			[]string{"- {name: a, keys: [[ip], [user]], limits: [5/second]}"}},
		{"- {name: a, key: [user], limits: [5/second, 5/minute]}", "2:35", "4/second",
			`limit "second" of rule "a" never denies first: limit "minute" lets at most 5 units through`,
			[]string{"- {name: a, key: [user], limits: [4/second, 5/minute]}"}},
		{"- {name: a, key: [user], limits: [{limit: 100, calendar: day}, {limit: 100, calendar: month}]}", "2:43",
			"limit: 99", `limit "day" of rule "a" never denies first: limit "month" lets at most 100`,
			[]string{"- {name: a, key: [user], limits: [{limit: 99, calendar: day}, {limit: 100, calendar: month}]}"}},
		{"- {name: a, key: [user], limits: [{limit: 100, calendar: day}, {limit: 5000, calendar: month}]}", "2:72",
			"limit: 3589", `limit "month" of rule "a" never denies first`,
			[]string{"- {name: a, key: [user], limits: [{limit: 100, calendar: day}, {limit: 3000, calendar: month}]}"}},
		{"- {name: a, key: [user], algorithm: token_bucket, burst: 20, limits: [5/second, 1000/hour]}", "2:71", "",
			`limit "second" of rule "a" never denies first: limit "hour" lets at most 20 units through`,
			[]string{"- {name: a, key: [user], algorithm: token_bucket, limits: " +
				"[{limit: 5, window: 1s, burst: 20}, 1000/hour]}"}},
		{"- {name: a, key: [user], limits: [100/hour, {limit: 5000, calendar: day}]}", "2:53", "limit: 2699",
			`limit "day" of rule "a" never denies first`, nil},

		{"- {name: a, key: [user], limits: [{limit: 5, calendar: day, zone: Etc/GMT+2}]}", "2:67", "Etc/GMT-2",
			`zone "Etc/GMT+2" is UTC-2`,
			[]string{"- {name: a, key: [user], limits: [{limit: 5, calendar: day, zone: America/Noronha}]}"}},
		{"- {name: a, key: [user], limits: [{limit: 5, calendar: day, zone: {from: 'attr:tz', default: Etc/GMT-14}}]}",
			"2:94", "Etc/GMT+14", "is UTC+14, the opposite of what it seems to say: write Etc/GMT+14 for UTC-14", nil},
		{"- {name: a, key: [user], zone: EST, limits: [{limit: 5, calendar: day}]}", "2:32", "America/New_York",
			`zone "EST" has no daylight saving time`,
			[]string{"- {name: a, key: [user], zone: America/Panama, limits: [{limit: 5, calendar: day}]}"}},
	} {
		w := warningsOf(t, "rules:\n"+x.file+"\n")
		if len(w) != 1 || fmt.Sprintf("%d:%d", w[0].Line, w[0].Column) != x.at || w[0].Instead != x.instead ||
			!strings.Contains(w[0].Text, x.text) {
			t.Errorf("%s:\n got %+v\nwant %s, instead %q, %s", x.file, w, x.at, x.instead, x.text)
		}
		for _, file := range x.fixes {
			if w := warningsOf(t, "rules:\n"+file+"\n"); len(w) > 0 {
				t.Errorf("%s:\nwritten instead: %s\n got %+v", x.file, file, w)
			}
		}
	}
	for file, at := range map[string]string{
		"quotas:\n- {name: q, key: [user], limits: [{limit: 5, calendar: day, " +
			"zone: MST}]}\nrules:\n- {name: a, quotas: [q]}": "2:67",
		"quotas:\n- {name: q, keys: [[user], [user, group]], limits: " +
			"[5/hour]}\nrules:\n- {name: a, quotas: [q]}": "2:28",
		"quotas:\n- {name: q, key: [user], limits: [5/hour]}\nrules:\n- {name: a, match: {path: ^/a}, quotas: [{name: q, " +
			"cost: [{path: ^/b, cost: 2}]}]}": "4:59",
		"defaults: {zone: EST}\nrules:\n- {name: a, key: [user], limits: [{limit: 5, calendar: day}]}": "1:18",
		"rules:\n- {name: a, match: {ip: 10.0.0.0/8}, unlimited: true}\n- {name: b, match: {ip: [10.1.0.0/16, 10.9.9.9]}, " +
			"key: [user], limits: [5/second]}": "3:3",
		"rules:\n- {name: a, match: {host: '*.example'}, unlimited: true}\n- {name: b, match: {host: a.example}, key: " +
			"[user], limits: [5/second]}\n- {name: c" + rest: "3:3",
	} {
		if w := warningsOf(t, file+"\n"); len(w) != 1 || fmt.Sprintf("%d:%d", w[0].Line, w[0].Column) != at {
			t.Errorf("%s: %+v, want one at %s", file, w, at)
		}
	}
}

// What only seems to be a mistake has no warning.
func TestWhatMayBeMeant(t *testing.T) {
	for _, rule := range []string{
		"match: {path: '^/a$|^/b/'}", "match: {path: '(?m)^/a$\\n^/b'}", "match: {path: '^/?$'}",
		"match: {path: '^(^/a$|^/b)$'}", "match: {path: '^.*$'}", "match: {path: '^/a(b$)?c'}",
		"match: {path: '^/v1/things:cancel'}", "match: {path: '^/(?P<name>a)'}", "match: {path: '^/[a-z|_]+'}",
		`match: {path: '^/\[ab|cd]'}`, "match: {path: '^/[0-9]*'}", `match: {path: '^/\d*'}`,
		"match: {path: '^/(?:a|b)/[^/:]+'}", "match: {path: towns}", "match: {path: '[.]css$'}",
		"match: {group: [free, default], not_group: [gold]}",
		"match: {attributes: {x: '>', y: '<b>', z: {pattern: '^(a|b)$', not: a}}}",
		"match: {ip: [10.0.0.0/8], not_ip: 10.1.0.0/16}", "match: {path: ^/a, not_path: ^/b}",
		"match: {path: '^/a', not_path: '^/a$'}", "match: {path: '^/a$', not_path: '/a'}", "cost: {POST: 2, default: 1}",
		"cost: [{path: ^/b, cost: 0}, {cost: 1}]",
		"cost: [{method: GET, cost: 2}, {method: [GET, POST], cost: 3}]",
		"match: {path: '/export'}, cost: [{path: '^/export$', cost: 2}]",
	} {
		for _, w := range warningsOf(t, "rules:\n- {name: a, "+rule+", key: [user], limits: [50/second]}\n") {
			if !strings.Contains(w.Text, "matches anywhere") && !strings.Contains(w.Text, "take for the same") {
				t.Errorf("%s: %+v", rule, w)
			}
		}
	}
	for _, file := range []string{
		"defaults: {cost: [{path: ^/export, cost: 5}, {cost: 1}]}\nrules:\n- {name: a, match: {path: ^/towns}, key: " +
			"[user], limits: [50/second]}",
		"rules:\n- {name: a, keys: [[ip], [user]], limits: [5/second]}",
		"rules:\n- {name: a, key: [user], limits: [{limit: 100, calendar: day}, {limit: 3000, calendar: month}]}",
		"rules:\n- {name: a, key: [user], limits: [{limit: 100, calendar: day, zone: Europe/Berlin}, {limit: 150, " +
			"calendar: month}]}",
		"rules:\n- {name: a, key: [user], limits: [{limit: 100, calendar: week}, {limit: 150, calendar: month}]}",
		"rules:\n- {name: a, key: [user], zone: 'attr:tz', limits: [{limit: 100, calendar: day}, {limit: 100, calendar: " +
			"month}]}",
		"rules:\n- {name: a, key: [user], zone: Europe/Berlin, limits: [{limit: 1, calendar: minute}, {limit: 70, " +
			"calendar: hour}]}",
		"rules:\n- {name: a, key: [user], limits: [{limit: 120, calendar: month, anchor_day: 15}, {limit: 110, calendar: " +
			"quarter}]}",
		"rules:\n- {name: a, key: [user], zone: UTC, limits: [{limit: 5, calendar: day, zone: Etc/GMT}]}",
		"rules:\n- {name: a, match: {ip: 10.1.0.0/16}, key: [user], limits: [5/second]}\n- {name: b, match: {ip: " +
			"10.0.0.0/8}, key: [user], limits: [9/second]}",
	} {
		if w := warningsOf(t, file+"\n"); len(w) > 0 {
			t.Errorf("%s: %+v", file, w)
		}
	}
}
