package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/rules"
)

// What is written for an address, and is compared with something else or with too little,
// has its position and the line to write. So has a condition on an attribute that means
// something else.
func TestMisreadConditions(t *testing.T) {
	for _, x := range []struct{ match, at, instead, text string }{
		{"ip: 10.0.0.0", "2:25", "ip: 10.0.0.0/8", `10.0.0.0 is one address`},
		{"ip: [192.168.0.0, 10.1.2.3]", "2:26", "192.168.0.0/16", `or 192.168.0.0/32 for this address`},
		{"not_ip: 192.0.2.0", "2:29", "not_ip: 192.0.2.0/24", `for the network`},
		{"ip: 0.0.0.0", "2:25", "ip: 0.0.0.0/0", `for the network`},
		{"ip: '2001:db8::'", "2:25", `ip: "2001:db8::/32"`, `2001:db8::/128 for this address`},
		{"ip: 'fd00:0:0:1::'", "2:25", `ip: "fd00:0:0:1::/64"`, `for the network`},
		{"ip: 'fd00::8'", "2:25", `ip: "fd00::/8"`,
			`fd00::8 is one address, and ends in what is the length of its network: write ip: "fd00::/8" for the network, or ` +
				`fd00::8/128`},
		{"ip: ['fd00::7', 'fd00::9']", "2:26", `"fc00::/7"`, `or fd00::7/128 for this address`},
		{"ip: 'fe80::10'", "2:25", `ip: "fe80::/10"`, `one address`},
		{"not_ip: '2001:db8::32'", "2:29", `not_ip: "2001:db8::/32"`, `one address`},
		{"ip: '2001:db8:0:7::64'", "2:25", `ip: "2001:db8:0:7::/64"`, `one address`},
		{"path: 10.0.0.0/8", "2:27", "ip: 10.0.0.0/8", `is compared with the path of a request`},
		{"path: '^10\\.0\\.0\\.1'", "2:27", "ip: 10.0.0.1", `is compared with the path`},
		{"not_path: '2001:db8::/32'", "2:31", `not_ip: "2001:db8::/32"`, `is compared with the path`},
		{"group: 10.0.0.1", "2:28", "ip: 10.0.0.1", `is compared with the group of a request`},
		{"attributes: {client: 10.0.0.0/8}", "2:42", "ip: 10.0.0.0/8",
			`attribute "client" is compared with "10.0.0.0/8" as it stands`},
		{"attributes: {x-real-ip: [10.0.0.7]}", "2:46", "ip: 10.0.0.7", `and not with the request's address`},
		{"attributes: {'attr:plan': free}", "2:34", "plan: free", `which names have in keys only`},
		{"attributes: {'attr:plan': }", "2:34", "plan:", `in keys only`},
		{"attributes: {not_plan: free}", "2:34", "plan: {not: free}", `not the opposite of attribute "plan"`},
		{"attributes: {plan: '!free'}", "2:40", "plan: {not: free}", `for all others`},
		{"attributes: {plan: not free}", "2:40", "plan: {not: free}", `for all others`},
		{"attributes: {plan: any}", "2:40", "plan:", `for any one`},
		{"user: any", "2:27", `not_user: ""`, `or user: [any] for one of that name`},
		{"not_user: all", "2:31", `user: ""`, `or not_user: [all] for one of that name`},
		{"group: everyone", "2:28", "", `remove it to match any group, or write group: [everyone]`},
		{"method: ANY", "2:29", "", `remove it to match any method`},
		{"method: '!get'", "2:29", "not_method: GET", `for all others`},
		{"not_method: [POST, '!GET']", "2:40", "method: GET", `for all others`},
		{"path: '= /a.js'", "2:27", `path: '^/a\.js$'`, `begins as a location of nginx`},
		{"path: '^~ /a/'", "2:27", `path: '^/a/'`, `a path is a regular expression alone`},
		{"not_path: '~ ^/a/'", "2:31", `not_path: '^/a/'`, `location of nginx`},
		{"path: '~* ^/a/'", "2:27", `path: '(?i)^/a/'`, `location of nginx`},
		{"attributes: {plan: 'free, gold'}", "2:40", "plan: [free, gold]", `for either of these`},
	} {
		w := warningsOf(t, "rules:\n- {name: a, match: {"+x.match+"}, key: [user], limits: [5/second]}\n")
		if len(w) != 1 || fmt.Sprintf("%d:%d", w[0].Line, w[0].Column) != x.at || w[0].Instead != x.instead ||
			!strings.Contains(w[0].Text, x.text) || !strings.Contains(strings.ReplaceAll(w[0].Text, `\"`, `"`), x.instead) {
			t.Errorf("%s:\n got %+v\nwant %s, instead %q, %s", x.match, w, x.at, x.instead, x.text)
		}
	}
}

// What is certainly no address has an error that names the likeliest line.
func TestMisreadAddresses(t *testing.T) {
	for match, want := range map[string]string{
		"{ip: 10.0.0.*}": `f:2:25: ip: "10.0.0.*" is not an address or a prefix: write 10.0.0.0/24 for the ` +
			`network`,
		"{ip: 10}":                     `write 10.0.0.0/8 for the network`,
		"{ip: 10.}":                    `write 10.0.0.0/8 for the network`,
		"{ip: 10/8}":                   `write 10.0.0.0/8 for the network`,
		"{ip: 172.16.0.0/255.240.0.0}": `write 172.16.0.0/12 for the network`,
		"{ip: 172.16.0.0/255.0.240.0}": `is not a prefix; write an address such as`,
		"{ip: 172.16.0.0/33}":          `is not a prefix; write an address such as`,
		"{ip: 10.0.0.1:8080}":          `has a port: write 10.0.0.1`,
		"{ip: '[::1]:80'}":             `has a port: write "::1"`,
		"{ip: '[::1]'}":                `has brackets: write "::1"`,
		"{ip: '10.0.0.1, 10.0.0.2'}":   `is several values in one: write a list, as in [10.0.0.1, 10.0.0.2]`,
		"{ip: '!10.0.0.0/8'}":          `write 10.0.0.0/8 under not_ip`,
		"{ip: 10.0.0.1-10.0.0.9}":      `a range is written as a list of prefixes`,
		"{ip: /internal}":              `for a path write path: '^/internal'`,
		"{ip: alice}":                  `is not an address; write an address such as`,
		"{ip: {not: 10.0.0.0/8}}":      `write not_ip: 10.0.0.0/8 in its place`,
		"{ip: {pattern: ^10}}":         `ip is an address, a prefix or a list of these, not a mapping`,
		"{host: 10.0.0.0/8}":           `for the address of a caller write ip: 10.0.0.0/8`,
		"{method: 10.0.0.1}":           `"10.0.0.1" is not the name of a method`,
		"{method: /towns}":             `"/towns" is not the name of a method`,
		"{cidr: 10.0.0.0/8}": `f:2:21: unknown field "cidr" (in match); the address of a request is "ip": write ` +
			`ip: 10.0.0.0/8`,
		"{client_ip: [10.0.0.1]}": `write ip: [10.0.0.1]`,
		"{headers: {x: y}}":       `what a service sends about a request is under attributes`,
		"{api_key: k1}":           `attributes (in match); for an attribute write attributes: {api_key: k1}`,
		"{'attr:plan': free}":     `for an attribute write attributes: {plan: free}`,
		"{not_attributes: {a: b}}": `write attributes: {plan: {not: free}} for requests whose attribute has another ` +
			`value`,
		"10.0.0.0/8":              `not a single value: write match: {ip: 10.0.0.0/8}`,
		"['10.0.0.0/8', '::1']":   `not a list: write match: {ip: 10.0.0.0/8}`,
		"[]":                      `match is a mapping of fields to values, not a list`,
		"{attributes: [api_key]}": `write attributes: {api_key: } for any value of one`,
	} {
		_, err := rules.Parse("f", []byte("rules:\n- {name: a, match: "+match+", key: [user], limits: [5/second]}\n"),
			rules.Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s:\n got %v\nwant %s", match, err, want)
		}
	}
	_, err := rules.Parse("f", []byte("rules:\n- {name: a, key: ['attribute:x'], limits: [5/second]}\n"), rules.Options{})
	if err == nil || !strings.Contains(err.Error(),
		`f:2:19: unknown part of a key "attribute:x"; an attribute is written as "attr:x"`) {
		t.Error(err)
	}
}

// What only looks like a mistake has no warning.
func TestConditionsThatAreMeant(t *testing.T) {
	for _, match := range []string{
		"ip: [10.0.0.1, 10.0.0.0/8, 10.0.0.0/32, '2001:db8::1', '::1', '::ffff:10.0.0.7']",
		"path: '^/10.0.0.1'", "path: '^/x', not_path: '^/x/10'", "group: [v1.0, a.b.c.d]",
		"attributes: {upstream: 10.0.0.1, plan: {not: free}, version: 1.2.3, client_ip: {pattern: '^10[.]0[.]'}}",
		"attributes: {plan: [free, notable], x: ',', not_before: {not: x}, nothing: }",
	} {
		if w := warningsOf(t, "rules:\n- {name: a, match: {"+match+"}, key: [user], limits: [5/second]}\n"); len(w) > 0 {
			t.Errorf("%s:\n%+v", match, w)
		}
	}
}

// Attributes whose names differ only in case, dashes, underscores or dots are two. The
// rarer spelling of a file has a warning, wherever names stand, and replaces the one about
// requests that lack the attribute.
func TestAttributesThatDifferInSpelling(t *testing.T) {
	const rest = ", limits: [5/second]}\n"
	for _, x := range []struct{ name, file, at, instead, text string }{
		{"a key", "- {name: a, match: {attributes: {api-key: }}, key: [attr:api_key]" + rest,
			"2:53", `"attr:api-key"`, `rule "a": attribute "api_key" differs only in spelling from "api-key" on line 2`},
		{"a match, with another rule", "- {name: a, match: {attributes: {x: }}, key: [attr:x]" + rest +
			"- {name: b, match: {attributes: {X: , y: }}, key: [attr:y]" + rest,
			"3:34", "x:", `rule "b": attribute "X" differs only in spelling from "x" on line 2`},
		{"the first is rarer", "- {name: a, match: {attributes: {Api.Key: k}}, key: [user]" + rest +
			"- {name: b, match: {attributes: {api_key: }}, key: [attr:api_key]" + rest,
			"2:34", "api_key:", `from "api_key" on line 3`},
		{"keys", "- {name: a, match: {attributes: {a_b: }}, keys: [[ip], [user, 'attr:a-b']]" + rest,
			"2:63", `"attr:a_b"`, ``},
		{"a cost", "- {name: a, match: {attributes: {tokens: }}, key: [user], cost: {from: 'attr:Tokens', max: 5}" + rest,
			"2:72", `"attr:tokens"`, ``},
		{"a condition of a cost",
			"- {name: a, match: {attributes: {plan: }}, key: [user], cost: [{attributes: {PLAN: x}, cost: 2}]" + rest,
			"2:78", `plan:`, ``},
		{"a zone", "- {name: a, match: {attributes: {tz: }}, key: [user], limits: [{limit: 5, calendar: day, zone: " +
			"'attr:TZ'}]}\n",
			"2:96", `"attr:tz"`, ``},
		{"a zone of a mapping",
			"- {name: a, match: {attributes: {tz: }}, key: [user], zone: {from: 'attr:TZ', default: UTC}, limits: [{limit: 5, " +
				"calendar: day}]}\n",
			"", `"attr:tz"`, ``},
	} {
		w := warningsOf(t, "rules:\n"+x.file)
		if len(w) != 1 || x.at != "" && fmt.Sprintf("%d:%d", w[0].Line, w[0].Column) != x.at || w[0].Instead != x.instead ||
			!strings.Contains(w[0].Text, x.text) || !strings.Contains(w[0].Text, "write "+x.instead+" here") {
			t.Errorf("%s:\n got %+v\nwant %s, instead %q, %s", x.name, w, x.at, x.instead, x.text)
		}
	}
	for name, file := range map[string]string{
		"a quota": "quotas:\n- {name: q, key: [attr:api_key], limits: [5/hour]}\nrules:\n- {name: a, match: " +
			"{attributes: {api-key: }}, quotas: [q]}\n",
		"the defaults": "defaults: {key: [attr:api_key]}\nrules:\n- {name: a, match: {attributes: {API_KEY: }}, limits: " +
			"[5/hour]}\n",
	} {
		if w := warningsOf(t, file); len(w) != 1 || w[0].Instead != "api_key:" {
			t.Errorf("%s: %+v", name, w)
		}
	}
	if w := warningsOf(t, "rules:\n- {name: a, match: {attributes: {api_key: , apikeys: x}}, key: [attr:api_key]"+
		rest); len(w) > 0 {
		t.Errorf("names that differ in more: %+v", w)
	}
	// Beside errors it is said too.
	_, err := rules.Parse("f", []byte("rules:\n- {name: a, match: {attributes: {a-b: }}, key: [attr:a_b]"+rest+
		"- {name: b, lmits: []}\n"), rules.Options{})
	e, ok := err.(*rules.Error) //nolint:errorlint // Parse returns it as it is
	if !ok || len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0].Text, "differs only in spelling") {
		t.Errorf("beside an error: %v", err)
	}
	// A key by an attribute that has the name of another part is meant as that part.
	for file, at := range map[string]string{
		"rules:\n- {name: a, key: ['attr:ip']" + rest:                                      "2:19",
		"rules:\n- {name: a, keys: [[user, 'attr:ip'], [group]]" + rest:                    "2:27",
		"defaults: {key: ['attr:ip']}\nrules:\n- {name: a, limits: [5/1m]}":                "1:18",
		"quotas:\n- {name: q, key: ['attr:ip']" + rest + "rules: [{name: a, quotas: [q]}]": "2:19",
	} {
		w := warningsOf(t, file)
		if len(w) != 1 || fmt.Sprintf("%d:%d", w[0].Line, w[0].Column) != at || w[0].Instead != "ip" ||
			!strings.Contains(w[0].Text,
				`counts by an attribute with the name "ip", which is not the ip of the request: write "ip" for that`) {
			t.Errorf("%s: %+v", file, w)
		}
	}
	if w := warningsOf(t, "rules:\n- {name: a, match: {attributes: {user: }}, key: ['attr:user']"+rest); len(w) > 0 {
		t.Errorf("an attribute that is asked for: %+v", w)
	}
}
