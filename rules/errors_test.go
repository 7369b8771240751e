package rules_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// problemsOf parses a file that is not valid and returns the lines of the
// error.
func problemsOf(tb testing.TB, file string) []string {
	tb.Helper()
	s, err := rules.Parse("f", []byte(file), rules.Options{})
	if err == nil || s != nil {
		tb.Fatalf("accepted:\n%s", file)
	}
	if !errors.Is(err, limiter.ErrInvalid) {
		tb.Errorf("the error does not wrap ErrInvalid: %v", err)
	}
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "f:")
	}
	return lines
}

// Everything wrong with a file comes at once, in the order of the file.
func TestAllErrorsAtOnce(t *testing.T) {
	got := problemsOf(t, `version: 1
defaults:
  algorithm: sliding_cuonter
rules:
  - name: towns
    match: {path: "^/towns(", methd: GET}
    key: [path, usr]
    limits: [5/secnd, {limit: 10, window: 0s}]
  - name: towns
    limts: [1/minute]
  - name: login
    limits: [1/minute, 2/60s]
    cost: {POST: -1}
    on_unreachable: fail
`)
	want := []string{
		`3:14: unknown algorithm "sliding_cuonter"; did you mean "sliding_counter"?`,
		`6:19: path: "^/towns(" is not a valid regular expression (RE2): missing closing ): ` + "`^/towns(`",
		`6:31: unknown field "methd"; did you mean "method"? (in match)`,
		`7:17: unknown part of a key "usr"; did you mean "user"?`,
		`8:14: "secnd" is not a duration; did you mean "second"?`,
		`8:43: window 0s is out of range: a window is 1ms to 400 days long`,
		`9:11: there is another rule named "towns" on line 5; names must be unique`,
		`10:5: unknown field "limts"; did you mean "limits"? (in a rule)`,
		`12:24: two limits of this rule are named "minute", the other one on line 12: give one a name, as in {name: other, ` +
			`limit: 2, window: 60s}`,
		`13:18: cost: -1 is out of range: give 0 to 9007199254740991 units`,
		`14:21: unknown on_unreachable "fail"; known: local, open, closed`,
	}
	same(t, "problems", got, want)
}

// rule wraps fields of one rule; the first is at 2:3.
func rule(fields string) string { return "rules:\n- " + fields + "\n  name: a\n" }

// limit wraps one limit, which begins at 2:12.
func limit(s string) string { return rule("limits: [" + s + "]") }

func TestErrors(t *testing.T) {
	long := strings.Repeat("x", 65)
	for _, test := range []struct{ name, file, want string }{
		// The file.
		{"nothing", "", `1:1: the file is empty; to have no rules at all write "rules: []"`},
		{"only a comment", "# later\n", `1:1: the file is empty; to have no rules at all write "rules: []"`},
		{"no rules", "version: 1", `1:1: the file has no rules: add "rules:", or "rules: []" for none at all`},
		{"rules left out", "rules:\n", `1:1: "rules" has no value; give one or remove it`},
		{"rules a mapping", "rules: {a: 1}", `1:8: "rules" is a list of rules, not a mapping`},
		{"a list", "- a", `1:1: a rules file is a mapping of fields to values, not a list`},
		{"text", "towns", `1:1: a rules file is a mapping of fields to values, not a single value`},
		{"version", "version: 2\nrules: []", `1:10: version "2" is not known here; this program reads version 1`},
		{"version long", "version: " + strings.Repeat("é", 60) + "\nrules: []",
			`1:10: version "` + strings.Repeat("é", 50) + `"... is not known here; this program reads version 1`},
		{"unknown", "rules: []\nlimits: 5",
			`2:1: unknown field "limits"; known: version, rules_count, defaults, quotas, rules (in a rules file)`},
		{"twice", "rules: []\nversion: 1\nrules: []", `3:1: "rules" is given twice; the first is on line 1`},
		{"defaults", "defaults: 5\nrules: []", `1:11: defaults is a mapping of fields to values, not a single value`},
		{"not inherited", "defaults: {limits: [1/second]}\nrules: []",
			`1:12: "limits" cannot be a default: write it in a rule or a limit`},

		// A rule.
		{"rule of text", "rules: [a]", `1:9: a rule is a mapping of fields to values, not a single value`},
		{"rule left out", "rules:\n-\n- {name: a, unlimited: true}", `2:2: this rule is empty`},
		{"no name", "rules:\n- limits: [1/second]", `2:3: this rule has no name; names must be unique and appear in answers`},
		{"name empty", "rules: [{name: '', unlimited: true}]", `1:16: the rule's name is empty`},
		{"name long", "rules: [{name: " + long + ", unlimited: true}]",
			`1:16: the rule's name has 65 bytes; at most 64 are allowed`},
		{"name control", `rules: [{name: "a\nb", unlimited: true}]`,
			`1:16: the rule's name "a\nb" contains a control character`},
		{"name a list", "rules: [{name: [a], unlimited: true}]", `1:16: the rule's name is a single value, not a list`},
		{"name reserved", "rules: [{name: request, unlimited: true}]",
			`1:16: "request" is reserved for limits that come with a request; choose another name`},
		{"misplaced", rule("path: ^/x\n  limits: [1/second]"), `2:3: "path" belongs under "match"`},
		{"misplaced limit", rule("limit: 5\n  unlimited: true"),
			`2:3: "limit" belongs in an element of "limits", such as "limits: [5/second]"`},
		{"no limits", rule("match: {path: ^/x}"),
			`2:3: this rule has no limits: add "limits", "unlimited: true" to let everything pass, or "deny: true" to let ` +
				`nothing pass`},
		{"limited group", rule("match: {group: x}\n  unlimited: false"),
			`2:3: this rule has no limits: add "limits", "unlimited: true" to let everything pass, or "deny: true" to let ` +
				`nothing pass`},
		{"both", rule("limits: [1/second]\n  unlimited: true"), `2:11: "unlimited: true" and "limits" exclude each other`},
		{"unlimited yes", rule("unlimited: yes"), `2:14: unlimited: "yes" is neither true nor false`},
		{"unlimited misspelled", rule("unlimted: true"),
			`2:3: unknown field "unlimted"; did you mean "unlimited"? (in a rule)`},
		{"quoted true", rule("unlimited: 'true'"), `2:14: unlimited: "true" is neither true nor false`},
		{"unlimited continue", rule("unlimited: true\n  continue: true"),
			`3:3: "continue: true" cannot be combined with "unlimited: true": the next match would limit the request again`},
		{"shadow", rule("limits: [1/second]\n  shadow: [true]"), `3:11: shadow is a single value, not a list`},
		{"replication", rule("limits: [1/second]\n  replication: strickt"),
			`3:16: unknown replication "strickt"; did you mean "strict"?`},
		{"share", rule("limits: [1/second]\n  max_share: 20"),
			`3:14: max_share "20" is not a share of the table: give 0.1% to 100%, such as 20%`},
		{"share above all", rule("limits: [1/second]\n  max_share: 100.1%"),
			`3:14: max_share "100.1%" is not a share of the table: give 0.1% to 100%, such as 20%`},
		{"share of nothing", rule("limits: [1/second]\n  max_share: 0%"),
			`3:14: max_share "0%" is not a share of the table: give 0.1% to 100%, such as 20%`},
		{"share below nothing", rule("limits: [1/second]\n  max_share: -5%"),
			`3:14: max_share "-5%" is not a share of the table: give 0.1% to 100%, such as 20%`},
		{"share too exact", rule("limits: [1/second]\n  max_share: 1.25%"),
			`3:14: max_share "1.25%" is not a share of the table: give 0.1% to 100%, such as 20%`},
		{"shares", rule("limits: [1/second]\n  max_share: [1%]"), `3:14: max_share is a single value, not a list`},
		{"id time", rule("limits: [1/second]\n  id_ttl: 60"),
			`3:11: id_ttl: "60" lacks a unit: write 60s for seconds, for example`},
		{"id time long", rule("limits: [1/second]\n  id_ttl: 25h"), `3:11: id_ttl: "25h" is out of range: give 1ms to 24h`},
		{"id time short", rule("limits: [1/second]\n  id_ttl: 1us"), `3:11: id_ttl: "1us" is out of range: give 1ms to 24h`},
		{"id time none", rule("limits: [1/second]\n  id_ttl: 0"), `3:11: id_ttl: "0" is out of range: give 1ms to 24h`},
		{"hold long", rule("limits: [1/second]\n  hold: 25h"), `3:9: hold: "25h" is out of range: give 1ms to 24h`},
		{"expiry", rule("limits: [1/second]\n  on_expiry: keeps"), `3:14: unknown on_expiry "keeps"; did you mean "keep"?`},
		{"hold of quota", "quotas: [{name: q, key: [user], limits: [1/second], hold: 1m}]\nrules: [{name: a, quotas: [q]}]",
			`1:53: "hold" belongs in the rules that draw on the quota`},
		{"hold of limit", rule("limits: [{limit: 1, window: 1s, hold: 1m}]"),
			`2:35: "hold" belongs in the rule, beside "limits"`},
		{"key of limit", rule("limits: [{limit: 1, window: 1s, key: [user]}]"),
			`2:35: "key" belongs in the rule, beside "limits"`},
		{"id time of quota",
			"quotas: [{name: q, key: [user], limits: [1/second], id_ttl: 1m}]\nrules: [{name: a, quotas: [q]}]",
			`1:53: "id_ttl" belongs in the rules that draw on the quota`},
		{"policy", rule("limits: [1/second]\n  on_unreachable: {a: b}"),
			`3:19: on_unreachable is a single value, not a mapping`},
		{"option", rule("limits: [1/second]\n  burst: []"), `3:10: burst is a single value, not a list`},
		{"dashes", rule("limits: [1/second]\n  count-rejected: all"),
			`3:3: unknown field "count-rejected"; did you mean "count_rejected"? (in a rule)`},

		// What it matches.
		{"match", rule("match: ^/x\n  limits: [1/second]"),
			`2:10: match is a mapping of fields to values, not a single value: write match: {path: '^/x'}`},
		{"match left out", rule("match:\n  limits: [1/second]"), `2:3: "match" has no value; give one or remove it`},
		{"path list", rule("match: {path: [a]}\n  limits: [1/second]"), `2:17: path is a single value, not a list`},
		{"path long", rule("match: {path: " + strings.Repeat("a", 1025) + "}\n  limits: [1/second]"),
			`2:17: path: the pattern has 1025 bytes; at most 1024 are allowed`},
		{"path backreference", rule(`match: {path: '^/(a)\1'}` + "\n  limits: [1/second]"),
			`2:17: path: "^/(a)\\1" is not a valid regular expression (RE2): invalid escape sequence: ` + "`\\1`"},
		{"path break", rule("match:\n    path: |\n      ^/x\n  limits: [1/second]"),
			`3:11: path: the pattern contains a control character such as a line break; write it as \n, for example, in ` +
				`single quotes`},
		{"path large", rule("match: {path: '" + strings.Repeat("a{1000}", 11) + "'}\n  limits: [1/second]"),
			`2:17: path: the pattern is too large: it takes 11012 steps, at most ` +
				`10000 are allowed; lower its repetition counts`},
		{"method empty", rule("match: {method: []}\n  limits: [1/second]"),
			`2:19: the list of method is empty; remove it to match any`},
		{"method number", rule("match: {method: [GET, {}]}\n  limits: [1/second]"),
			`2:25: method is a single value, not a mapping`},
		{"star", rule("match: {attributes: {plan: '*'}}\n  limits: [1/second]"),
			`2:30: "*" is not a wildcard; leave the value out, as in "plan:", to match any`},
		{"attribute name", rule("match: {attributes: {\"a\\u0007\": x}}\n  limits: [1/second]"),
			`2:24: an attribute's name "a\a" contains a control character`},
		{"attributes list", rule("match: {attributes: [plan]}\n  limits: [1/second]"),
			`2:23: attributes is a mapping of names to values, not a list: write attributes: {plan: } for any value of one`},

		// What it counts by.
		{"key", rule("key: [usr]\n  limits: [1/second]"), `2:9: unknown part of a key "usr"; did you mean "user"?`},
		{"key far off", rule("key: [colour]\n  limits: [1/second]"),
			`2:9: unknown part of a key "colour"; known: path, rule, user, ip, group, method, attr:NAME`},
		{"key empty", rule("key: []\n  limits: [1/second]"),
			`2:8: key is empty; to count all requests together write [rule]`},
		{"key twice", rule("key: [ip, ip]\n  limits: [1/second]"), `2:13: "ip" is in the key already`},
		{"key attr", rule("key: ['attr:']\n  limits: [1/second]"),
			`2:9: attr: lacks the name of an attribute, as in attr:plan`},
		{"key attr blank", rule("key: [attr: plan]\n  limits: [1/second]"),
			`2:9: write attr:NAME without a blank after the colon`},
		{"key attr long", rule("key: ['attr:" + long + "']\n  limits: [1/second]"), `2:9: the attribute's name is too long`},
		{"key of lists", rule("key: [[ip]]\n  limits: [1/second]"),
			`2:9: a part of a key is one of path, rule, user, ip, group, method, attr:NAME; this is a list`},
		{"key parts", rule("key: [path, rule, user, ip, group, method, 'attr:a', 'attr:b', 'attr:c']\n  limits: [1/second]"),
			`2:66: key has 9 elements; at most 8 are allowed`},
		{"keys", rule("keys: [ip, [user]]\n  limits: [1/second]"),
			`2:10: "keys" is a list of lists, such as [[ip], [user]]; this element is a single value`},
		{"keys text", rule("keys: ip\n  limits: [1/second]"),
			`2:9: "keys" is a list of lists, such as [[ip], [user]]; for one key of several parts write "key"`},
		{"keys twice", rule("keys: [[ip], [user], [ip]]\n  limits: [1/second]"), `2:24: this key is in the list already`},
		{"key and keys", rule("key: [ip]\n  keys: [[user]]\n  limits: [1/second]"),
			`3:3: "key" and "keys" exclude each other; the other one is on line 2`},
		{"cost", rule("cost: many\n  limits: [1/second]"), `2:9: cost: "many" is not a whole number`},
		{"cost fraction", rule("cost: 1.5\n  limits: [1/second]"), `2:9: cost: "1.5" is not a whole number`},
		{"cost large", rule("cost: 9007199254740992\n  limits: [1/second]"),
			`2:9: cost: 9007199254740992 is out of range: give 0 to 9007199254740991 units`},
		{"cost list", rule("cost: [1]\n  limits: [1/second]"),
			`2:10: an element of cost is a mapping such as {method: POST, cost: 5}, not a single value`},
		{"cost of a method", rule("cost: {GET: [1]}\n  limits: [1/second]"),
			`2:15: a cost is a whole number of units, not a list`},
		{"cost twice", rule("cost: {get: 1, GET: 2}\n  limits: [1/second]"), `2:18: the cost of method "GET" is given twice`},

		// Its limits.
		{"limits empty", rule("limits: []"),
			`2:11: the list of limits is empty; write "unlimited: true" instead to let everything pass, or "deny: true" to ` +
				`let nothing pass`},
		{"limit a number", limit("5"), `2:12: "5" is not a limit: write units per window, such as 5/second or 20/15m`},
		{"limit a list", limit("[5/second]"),
			`2:12: a limit is written as 5/second or as a mapping with limit and window; this is a list`},
		{"limit 0", limit("0/second"),
			`2:12: limit 0 is out of range: sliding_counter takes 1 to 9007199254740991 units; a rule that denies every ` +
				`request has "deny: true" in place of limits`},
		{"limit negative", limit("-5/second"),
			`2:12: limit -5 is out of range: sliding_counter takes 1 to 9007199254740991 units`},
		{"limit huge", limit("99999999999999999999/second"), `2:12: "99999999999999999999" is too large a number`},
		{"limit of a log", limit("{limit: 1000001, window: 1s, algorithm: sliding_log}"),
			`2:20: limit 1000001 is out of range: sliding_log takes 1 to 1000000 units`},
		{"unit", limit("5/minuet"), `2:12: "minuet" is not a duration; did you mean "minute"?`},
		{"unit plural", limit("5/seconds"), `2:12: "5/seconds" is not a limit; did you mean "5/second"?`},
		{"unit short", limit("5/s"), `2:12: "5/s" is not a limit; did you mean "5/second"?`},
		{"unit missing", limit("5/60"), `2:12: "60" lacks a unit: write 60s for seconds, for example`},
		{"window empty", limit("5/"),
			`2:12: "" is not a duration: write a unit (second, minute, hour, day, week, month, year) or a duration such as ` +
				`15m, 1h30m or 2d`},
		{"window zero", limit("5/0s"), `2:12: window 0s is out of range: a window is 1ms to 400 days long`},
		{"window long", limit("5/401d"), `2:12: window 9624h0m0s is out of range: a window is 1ms to 400 days long`},
		{"window overflow", limit("5/999999999w"),
			`2:12: "999999999w" is not a duration: write a unit (second, minute, hour, day, week, month, year) or a duration ` +
				`such as 15m, 1h30m or 2d`},
		{"window sum overflow", limit("5/15000w15000w"),
			`2:12: "15000w15000w" is not a duration: write a unit (second, minute, hour, day, week, month, year) or a ` +
				`duration such as 15m, 1h30m or 2d`},
		{"window negative", limit("{limit: 5, window: -1s}"),
			`2:31: window: "-1s" is not a duration: write a unit (second, minute, hour, day, week, month, year) or a duration ` +
				`such as 15m, 1h30m or 2d`},
		{"window fine", limit("5/1500500ns"), `2:12: window 1.5005ms is not a whole number of microseconds`},
		{"window list", limit("{limit: 5, window: [1s]}"), `2:31: window is a single value, not a list`},
		{"no window", limit("{limit: 5}"), `2:12: this limit has no "window"`},
		{"no limit", limit("{window: 5s}"), `2:12: this limit has no "limit"`},
		{"rate in limit", limit("{limit: 5/second, window: 1s}"),
			`2:20: limit: "5/second" has a window in it: write "limit: 5" and "window: second", or the short form 5/second by ` +
				`itself`},
		{"rate", limit("{rate: 5/second, limit: 5, window: 1s}"),
			`2:13: unknown field "rate" (in a limit); write "limit" and "window", or the short form 5/1s`},
		{"limit name", limit("{limit: 5, window: 1s, name: " + long + "}"),
			`2:41: the limit's name has 65 bytes; at most 64 are allowed`},
		{"names twice", limit("5/second, {limit: 9, window: 1m, name: second}"),
			`2:22: two limits of this rule are named "second", the other one on line 2: give one a name, as in {name: other, ` +
				`limit: 9, window: 1m}`},
		{"not used", limit("{limit: 5, window: 1s, burst: 9}"),
			`2:35: sliding_counter does not use "burst"; it is an option of token_bucket, leaky_bucket, gcra`},
		{"not used drip", limit("{limit: 5, window: 1s, algorithm: gcra, drip: interval}"),
			`2:52: gcra does not use "drip"; it is an option of leaky_bucket`},
		{"sub_windows 0", limit("{limit: 5, window: 1s, algorithm: sliding_window, sub_windows: 0}"),
			`2:75: sub_windows: 0 is out of range: give 1 to 3600 sub-windows`},
		{"sub_windows uneven", limit("{limit: 5, window: 1s, algorithm: sliding_window, sub_windows: 7}"),
			`2:75: window 1s cannot be divided into 7 sub-windows of whole microseconds`},
		{"sub_windows inherited", "defaults: {algorithm: sliding_window, sub_windows: 7}\n" + limit("5/second"),
			`1:52: window 1s cannot be divided into 7 sub-windows of whole microseconds`},
		{"burst 0", limit("{limit: 5, window: 1s, algorithm: gcra, burst: 0}"),
			`2:59: burst: 0 is out of range: give 1 to 9007199254740991 units`},
		{"weight", limit("{limit: 5, window: 1s, weight: 1.001}"), `2:43: weight: "1.001" is out of range: give 0 to 1`},
		{"weight decimals", limit("{limit: 5, window: 1s, weight: 0.1234}"),
			`2:43: weight: "0.1234" has more than three decimals`},
		{"weight text", limit("{limit: 5, window: 1s, weight: 50%}"),
			`2:43: weight: "50%" is not a number from 0 to 1, such as 0.5`},
		{"weight negative", limit("{limit: 5, window: 1s, weight: -0.5}"),
			`2:43: weight: "-0.5" is not a number from 0 to 1, such as 0.5`},
		{"block", limit("{limit: 5, window: 1s, block: 401d}"),
			`2:42: block 9624h0m0s is out of range: a block is at most 400 days long`},
		{"block of a wide limit", limit("{limit: 4294967296, window: 1500ms, block: 1m}"),
			`2:55: a limit above 4294967295 units has a block only with windows of whole seconds, not of 1.5s`},
		{"block of wide sub-windows", limit("{limit: 4294967296, window: 15s, algorithm: sliding_window, block: 1m}"),
			`2:79: a limit above 4294967295 units has a block only with sub-windows of whole seconds: window 15s has 10`},
		{"block text", limit("{limit: 5, window: 1s, block: long}"),
			`2:42: block: "long" is not a duration: write a unit (second, minute, hour, day, week, month, year) or a duration ` +
				`such as 15m, 1h30m or 2d`},
		{"align", limit("{limit: 5, window: 1s, algorithm: fixed_window, align: first-hit}"),
			`2:67: unknown alignment "first-hit"; did you mean "first_hit"?`},
		{"coverage", limit("{limit: 5, window: 1s, algorithm: sliding_window, coverage: full}"),
			`2:72: unknown coverage "full"; known: strict, lenient`},
		{"rounding", limit("{limit: 5, window: 1s, rounding: up}"),
			`2:45: unknown rounding "up"; known: exact, floor, nearest, ceil`},
		{"drip", limit("{limit: 5, window: 1s, algorithm: leaky_bucket, drip: intervall}"),
			`2:66: unknown drip "intervall"; did you mean "interval"?`},
		{"count_rejected", limit("{limit: 5, window: 1s, count_rejected: yes}"),
			`2:51: unknown count_rejected mode "yes"; known: none, room, all`},
		{"algorithm", limit("{limit: 5, window: 1s, algorithm: slidingwindow, burst: 5}"),
			`2:46: unknown algorithm "slidingwindow"; did you mean "sliding_window"?`},
		{"algorithm list", limit("{limit: 5, window: 1s, algorithm: [gcra]}"),
			`2:46: algorithm is a single value, not a list`},
		{"bad where it is not used", "defaults: {burst: -1}\n" + limit("5/second"),
			`1:19: burst: -1 is out of range: give 1 to 9007199254740991 units`},

		// YAML itself.
		{"bracket", "rules: [", `1:8: YAML cannot be read: sequence end token ']' not found`},
		{"quote", "rules: []\nversion: '1", `2:10: YAML cannot be read: could not find end character of single-quoted text`},
		{"indentation", "rules:\n  - name: a\n   limits: 5",
			`3:4: "limits" is indented by 3 blanks, and nothing above it begins there: indent it by 4 to put it beside "name" ` +
				`of line 2`},
		{"indentation too deep", "rules:\n  - name: a\n      limits: [5/second]",
			`3:7: "limits" is indented by 6 blanks, and nothing above it begins there: indent it by 4 to put it beside "name" ` +
				`of line 2`},
		{"indentation of a list", "rules:\n  - name: a\n    limits: [5/second]\n - name: b",
			`4:2: this element of a list is indented by 1 blank, and nothing above it begins there: indent it by 2 to put it ` +
				`beside "-" of line 2`},
		{"no blank after a dash", "rules:\n  -{name: a, key: [user], limits: [5/second]}\n  - {name: b}",
			`2:3: a dash needs a blank after it: write "- {name: a, key: [user], limits: [5/second]}"`},
		{"a list further in",
			"rules:\n  - {name: a, key: [user], limits: [5/second]}\n    - {name: b, key: [user], limits: [5/second]}",
			`3:5: this element of a list is indented by 4 blanks, and nothing above it begins there: indent it by 2 to put it ` +
				`beside "-" of line 2`},
		{"tab", "rules:\n\t- a", `2:1: this line is indented with a tab, which YAML does not allow: replace it by blanks`},
		{"documents", "rules: []\n---\nrules: []", `2:1: a second document begins here; a rules file is one document`},
		{"anchor", "rules: &x []",
			`1:8: anchors (&name) are not supported; what rules share goes under "defaults"; quote a value that begins with &`},
		{"alias", "rules: *x",
			`1:8: aliases (*name) are not supported; what rules share goes under "defaults"; quote a value that begins with *`},
		{"merge", "<<: {rules: []}", `1:1: merge keys (<<) are not supported; what rules share goes under "defaults"`},
		{"tag", "rules: !!seq []", `1:8: tags (!name) are not supported; quote a value that begins with !`},
		{"directive", "%YAML 1.2\n---\nrules: []",
			`1:1: directives (%NAME) are not supported; quote a value that begins with %`},
		{"question mark", "? rules\n: []", `1:1: keys in the form "? key" are not supported; write "key: value"`},
		{"nul", "rules: []\n# \x00",
			`2:3: character U+0000 is not allowed in a rules file; write it as an escape in double quotes`},
		{"not UTF-8", "# é\nrules: \xff", `2:8: byte 0xff is not UTF-8 text`},
		{"null name", "null: 1\nrules: []", `1:1: a field needs a name`},
	} {
		t.Run(test.name, func(t *testing.T) {
			same(t, "problems of "+test.file, problemsOf(t, test.file), []string{test.want})
		})
	}
}

// Positions stay right behind what moves them: comments, blank lines, CRLF,
// characters of several bytes, block scalars, tabs.
func TestPositions(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"comments":   {"# é\n\n# x\nrules: [] # y\n\n  # z\nbogus: 1\n", "7:1:"},
		"CRLF":       {"# é\r\n\r\nrules: []\r\nbogus: 1\r\n", "4:1:"},
		"characters": {"rules: [{name: ééé, unlimited: nein}]", "1:32:"},
		"block":      {"rules:\n- name: >-\n    a\n    b\n  unlimited: true\n  bogus: 1\n", "6:3:"},
		"tabs":       {"{\n\t\t\"bogus\": 1, \"rules\": []}", "2:3:"},
		"BOM":        {"\ufeffrules: []\nbogus: 1", "2:1:"},
	} {
		if got := problemsOf(t, test.file); len(got) != 1 || !strings.HasPrefix(got[0], test.want) {
			t.Errorf("%s: got %q, want it at %s", name, got, test.want)
		}
	}
}

// many returns n lines or elements of a file, each with its number in place of each %[1]d.
func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func TestBounds(t *testing.T) {
	inWire(t)
	for name, test := range map[string]struct{ file, want string }{
		"bytes": {strings.Repeat("#", 1<<20+1), `1:1: the file has 1048577 bytes; at most 1048576 are allowed`},
		"rules": {"rules:\n" + many(10_001, "- {name: r%d, unlimited: true}\n"),
			`10002:3: rules has 10001 elements; at most 10000 are allowed`},
		"limits": {rule("limits:\n" + many(17, "  - 1/1%ds\n")), `19:5: limits has 17 elements; at most 16 are allowed`},
		"keys": {rule("keys:\n" + many(9, "  - ['attr:a%d']\n") + "  limits: [1/second]"),
			`11:5: keys has 9 elements; at most 8 are allowed`},
		"choices": {rule("match: {group: [" + many(65, "g%d,") + "]}\n  limits: [1/second]"),
			`2:265: group has 65 elements; at most 64 are allowed`},
		"attributes": {rule("match: {attributes: {" + many(17, "a%d: x,") + "}}\n  limits: [1/second]"),
			`2:126: attributes has 17 names; at most 16 are allowed`},
		"costs": {rule("cost: {" + many(65, "M%d: 1,") + "}\n  limits: [1/second]"),
			`2:448: cost has 65 methods; at most 64 are allowed`},
		"patterns": {"rules:\n" + many(112, "- {name: r%d, match: {path: '"+strings.Repeat("a{999}", 9)+
			"'}, unlimited: true}\n"),
			`113:30: path: the patterns up to here take 1008112 steps together, at most 1000000 are allowed`},
		"nesting": {"rules: " + strings.Repeat("[", 11), `1:17: nested more than 10 levels deep`},
		"fields":  {many(257, "a%d: 1\n"), `257:1: more than 256 fields in one mapping`},
		"name":    {strings.Repeat("x", 65) + ": 1", `1:1: a field's name has 65 bytes; at most 64 are allowed`},
	} {
		if got := problemsOf(t, test.file); len(got) != 1 || got[0] != test.want {
			t.Errorf("%s: got %q, want %q", name, got[:min(len(got), 3)], test.want)
		}
	}
}

// At the bounds all is well.
func TestAtTheBounds(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("one caller, many times slower under the race detector; make wire runs it")
	}
	s := mustSet(t, "rules:\n"+many(10_000, "- {name: r%[1]d, match: {path: ^/a%[1]d}, limits: [1/second]}\n"),
		rules.Options{})
	var c arith.Charge
	if m, err := s.Resolve(&limiter.Request{Path: "/a9999", User: "u"}, &c); err != nil || m.Rule != "r9" {
		t.Errorf("got %+v, %v; want the first rule that matches, r9", m, err)
	}
	if m, err := s.Resolve(&limiter.Request{Path: "/a", User: "u"}, &c); err != nil || m.Count != 0 {
		t.Errorf("got %+v, %v; want none", m, err)
	}
}

// A file full of mistakes is reported up to a bound.
func TestManyProblems(t *testing.T) {
	got := problemsOf(t, "rules: ["+strings.Repeat("x,", 1500)+"]")
	if len(got) != 1001 || got[1000] != "1:2007: 500 more problems are not shown" {
		t.Errorf("%d problems, the last is %q", len(got), got[len(got)-1])
	}
}
