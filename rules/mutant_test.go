package rules_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/rules"
)

// mutant is a way in which a person writes a good file wrong.
type mutant struct {
	name string
	// change returns all files that the slip makes of a good one.
	change func(file string) []string
}

// at returns the file with each match of a pattern replaced, one at a time.
func at(pattern, replacement string) func(string) []string {
	re := regexp.MustCompile(pattern)
	return func(file string) (out []string) {
		for _, m := range re.FindAllStringSubmatchIndex(file, -1) {
			out = append(out, file[:m[0]]+string(re.ExpandString(nil, replacement, file, m))+file[m[1]:])
		}
		return out
	}
}

// The name of an attribute, or of a plan, is any word, so a slip in one cannot be noticed. (One of a plan
// counts by else.)
var attributeName = regexp.MustCompile(`attributes: \{(lpan|pln): |of: \{(rfee|fre|lgobex|glbex): |, rpo: 1000`)

// mutants are slips after each of which a file does something else than its author's
// words, or than he meant.
func mutants() []mutant {
	return []mutant{
		{"two letters of a field change places", at(`([a-z])([a-z])([a-z_]+):( |$)`, "$2$1$3:$4")},
		{"a field loses a letter", at(`([a-z]{2})[a-z]([a-z_]+):( |$)`, "$1$2:$3")},
		{"a field is in the plural", at(`(match|path|method|group|limit|window|key|cost|algorithm|burst|block): `,
			"${1}s: ")},
		{"no blank after a colon", at(`(limit|window|algorithm|name|cost|burst|block|shadow): ([a-z0-9]+)\b`, "$1:$2")},
		{"a comma is missing", at(`([a-z0-9]), ([a-z_]+: )`, "$1 $2")},
		{"a comma is missing in a list", at(`/([a-z]+), ([0-9])`, "/$1 $2")},
		{"a window without a unit", at(`/(second|minute|hour)\b`, "/60")},
		{"a window is misspelt", at(`/(secon|minut|hou)[a-z]\b`, "/$1")},
		{"a limit is no number", at(`\b[0-9]+/(second|minute|hour)`, "many/$1")},
		{"a limit is 0", at(`\b[0-9]+/(second|minute|hour)`, "0/$1")},
		{"a limit is negative", at(`\b([0-9]+/(second|minute|hour))`, "-$1")},
		{"a part of a key is misspelt", at(`\b(use|rul|pat)[er]?\b`, "${1}x")},
		{"a part of a key is a name of an attribute", at(`\[(rule|path), user\]`, "[$1, customer]")},
		{"a blank after attr", at(`attr:([a-z_]+)`, "attr: $1")},
		{"a method is misspelt in a match", at(`method: (\[?)(POST|GET|PUT)`, "method: ${1}PSOT")},
		{"methods in one word", at(`method: \[(POST|GET), (PUT|HEAD)\]`, "method: $1|$2")},
		{"a method is misspelt in a cost", at(`POST: ([0-9])`, "PSOT: $1")},
		{"a default cost is misspelt", at(`default: ([0-9])`, "defualt: $1")},
		{"a value is a glob", at(`plan: ([a-z]+)`, "plan: '$1*'")},
		{"a value is a pattern", at(`plan: ([a-z]+)`, "plan: '^$1'")},
		{"an address in a network", at(`10\.0\.0\.0/8`, "10.0.0.7/8")},
		{"a network with a star", at(`10\.0\.0\.0/8`, "10.*")},
		{"an address whose length is lost", at(`10\.0\.0\.0/8`, "10.0.0.0")},
		{"an address whose end is lost", at(`10\.0\.0\.0/8`, "10.0.0/8")},
		{"a network with a mask", at(`10\.0\.0\.0/8`, "10.0.0.0/255.0.0.0")},
		{"an address with a port", at(`10\.0\.0\.0/8`, "10.0.0.1:80")},
		{"networks in one word", at(`\[10\.0\.0\.0/8, "[^"]*"`, `["10.0.0.0/8, 192.168.0.0/16"`)},
		{"a network is negated", at(`10\.0\.0\.0/8`, `"!10.0.0.0/8"`)},
		{"a network is a path", at(`ip: \[(10\.0\.0\.0/8)[^]]*\]`, "path: $1")},
		{"a network is a group", at(`ip: \[(10\.0\.0\.0/8)[^]]*\]`, "group: $1")},
		{"a network is a method", at(`ip: \[(10\.0\.0\.0/8)[^]]*\]`, "method: $1")},
		{"a network is a host", at(`ip: \[(10\.0\.0\.0/8)[^]]*\]`, "host: $1")},
		{"a network is an attribute", at(`ip: \[(10\.0\.0\.0/8)[^]]*\]`, "attributes: {client: $1}")},
		{"an address is an attribute", at(`ip: \[10\.0\.0\.0/8[^]]*\]`, "attributes: {client_ip: 10.0.0.1}")},
		{"a network has no field", at(`match: \{ip: (\[10\.0\.0\.0/8[^]]*\])\}`, "match: $1")},
		{"a network has another field", at(`match: \{ip: (\[10\.0\.0\.0/8[^]]*\])\}`, "match: {cidr: $1}")},
		{"a path is an address", at(`ip: \[10\.0\.0\.0/8[^]]*\]`, "ip: /internal")},
		{"an attribute has no field", at(`attributes: \{((?:api_key|customer|plan): [a-z]*)\}`, "$1")},
		{"attributes are a list", at(`attributes: \{((?:api_key|customer)): \}`, "attributes: [$1]")},
		{"an attribute has the prefix of keys", at(`attributes: \{(api_key|customer|plan): `, `attributes: {"attr:$1": `)},
		{"an attribute is negated by its name", at(`plan: free`, "not_plan: free")},
		{"a value is negated", at(`plan: free`, `plan: "!free"`)},
		{"values in one word", at(`plan: free`, `plan: "free, gold"`)},
		{"any is a word", at(`attributes: \{(api_key|customer): `, "attributes: {$1: any")},
		{"an attribute with a dash in a match", at(`attributes: \{api_key: `, "attributes: {api-key: ")},
		{"an attribute with a dash in a key", at(`attr:api_key`, `attr:api-key`)},
		{"an attribute in upper case in a match", at(`attributes: \{(?:customer): `, "attributes: {Customer: ")},
		{"an attribute in upper case in a key", at(`attr:customer`, "attr:Customer")},
		{"an attribute has another prefix", at(`attr:(api_key|customer)`, "attribute:$1")},
		{"a part of a key is an attribute", at(`\[(\[?)(ip|user)\]`, "[$1'attr:$2']")},
		{"a pattern without its end", at(`\^/([a-z]+)\(`, "^/$1((")},
		{"a slash is forgotten", at(`/\?\$`, "$$")},
		{"the key is forgotten", at(` key: \[rule, user\],`, "")},
		{"a month is meant by the calendar", at(`\b([0-9]+)/hour`, "$1/month")},
		{"the second limit is lost in the first", at(`5/second, 40/minute`, "5/second, 4000/minute")},
		{"a list of keys under key", at(`keys: \[\[`, "key: [[")},
		{"two keys are one", at(`keys: \[\[(ip)\], \[(user)\]\]`, "key: [$1, $2]")},
		{"a path without its beginning", at(`path: ("?)\^/([a-z])`, "path: $1/$2")},
		{"a path with a query", at(`path: "\^/([a-z]+)(/\?\$|\(/\|\$\))"`, `path: "^/$1?id="`)},
		{"a list of parts under keys", at(`keys: \[\[(ip)\], \[(user)\]\]`, "keys: [$1, $2]")},
		{"true is a word", at(`: true\b`, ": yes")},
		{"an option of another algorithm", at(`algorithm: token_bucket`, "algorithm: sliding_log")},
		{"an algorithm is misspelt", at(`algorithm: ([a-z]+)_([a-z]+)`, "algorithm: $1-$2s")},
		{"a rule is given twice", at(`(?m)^  - \{name: [^\n]*\n`, "$0$0")},
		{"a catch-all comes first", func(file string) []string {
			return []string{strings.Replace(file, "rules:\n", "rules:\n  - {name: first, key: [user], limits: [100/second]}\n",
				1)}
		}},
		{"the attribute of the key is not asked for", at(`, attributes: \{api_key: \}`, "")},
		{"an option of a rule without its algorithm", at(`algorithm: token_bucket, burst`, "burst")},
		{"an option of a rule without its calendar", at(`calendar: day`, "window: day")},
		{"the limits are forgotten", at(`, limits: \[[^\n]*\]\}`, "}")},
		{"a group, and what it counts by, without limits", at(`(match: \{group: staff\})`, "$1, key: [user], block: 5m")},
		{"unlimited beside what counts", at(`unlimited: true`, "unlimited: true, key: [user]")},
		{"an attribute is null", at(`plan: free`, "plan: null")},
		{"a cost from something else", at(`from: "attr:[a-z]+"`, "from: tokens")},
		{"a time between drips that is not that of the limit", at(`every: 10s`, "every: 20s")},
		{"an amount of drips that does not divide the limit", at(`amount: 5`, "amount: 7")},
		{"an amount of drips is lost", at(`amount: 5, `, "")},
		{"drips of another algorithm", at(`algorithm: leaky_bucket`, "algorithm: gcra")},
		{"a quota is misspelt where a rule draws on it", at(`quotas: \[\{name: units`, "quotas: [{name: unit")},
		{"a quota is misspelt where it is defined", at(`- \{name: units`, "- {name: untis")},
		{"the quota of a draw is a rule", at(`quotas: \[\{name: units`, "quotas: [{name: login")},
		{"a quota has the name of a rule", at(`- \{name: units`, "- {name: login")},
		{"a draw is given twice", at(`(\{name: units, cost: [0-9]+\})`, "$1, $1")},
		{"the quotas are lost", at(`quotas:\n  - [^\n]*\n`, "")},
		{"a quota without a key", at(`(\{name: units), key: \[[^]]*\]`, "$1")},
		{"a quota has the cost of the draws", at(`(\{name: units, key)`, "{name: units, cost: 5, key")},
		{"a draw has limits", at(`(\{name: units, cost)`, "{name: units, limits: [5/second], cost")},
		{"no rule draws on a quota", func(file string) []string {
			return []string{regexp.MustCompile(`, quotas: \[\{[^\n]*\}\]`).ReplaceAllString(file, "")}
		}},
		{"a draw in shadow on a quota that is not", at(`(, quotas: \[\{name: units)`, ", shadow: true$1")},
		{"a path is a template", at(`path: "\^/([a-z]+)(/\?\$|\(/\|\$\))"`, `path: "^/$1/{id}"`)},
		{"a path is a glob", at(`path: "\^/([a-z]+)(/\?\$|\(/\|\$\))"`, `path: "/$1/*"`)},
		{"a path is under attributes", at(`match: \{path: ("?\^[^",}]*"?), attributes: \{`,
			"match: {attributes: {path: $1, ")},
		{"a path without its slash", at(`path: ("?)\^/([a-z])`, "path: $1^$2")},
		{"a path with a method", at(`path: "\^/([a-z]+)`, `path: "GET /$1`)},
		{"a path with a host", at(`path: "\^/([a-z]+)`, `path: "^https://a.example/$1`)},
		{"a path is negated", at(`path: "\^`, `path: "!^`)},
		{"a path is that of a router", at(`path: "\^/([a-z]+)(/\?\$|\(/\|\$\))"`, `path: "^/$1/:id"`)},
		{"a path ends with a star", at(`path: "\^/([a-z]+)(/\?\$|\(/\|\$\))"`, `path: "^/$1*"`)},
		{"words are a class", at(`path: "\^/([a-z]+)(/\?\$|\(/\|\$\))"`, `path: "^/[$1|other]"`)},
		{"a condition excludes another", at(`method: (POST|GET|PUT)`, "method: $1, not_method: [$1, HEAD]")},
		{"a group is negated", at(`group: ([a-z]+)`, "group: '!$1'")},
		{"groups in one word", at(`group: ([a-z]+)`, "group: '$1, other'")},
		{"all addresses are those of IPv4", at(`ip: \[10\.0\.0\.0/8[^]]*\]`, "ip: 0.0.0.0/0")},
		{"a method is meant to be free", at(`POST: 2`, "POST: 0")},
		{"a zone has the opposite sign", at(`Europe/Berlin`, "Etc/GMT+1")},
		{"a key is within another", at(`keys: \[\[(ip)\], \[(user)\]\]`, "keys: [[$1], [$1, $2]]")},
		{"a group is a glob", at(`group: ([a-z]+)`, "group: '$1*'")},
		{"a cost is above the limit", at(`cost: 5\}`, "cost: 5000000}")},
		{"a cost of a method is above the limit", at(`POST: 2`, "POST: 2000")},
		{"a name of an operation is the method of another protocol", at(`POST: 2`, "search: 2")},
		{"a shadow rule is not last and does not continue",
			at(`match: \{(attributes: \{plan: free\})\}`, "shadow: true, match: {$1}")},
		{"a cost after one for all", at(`(cost: \[)`, "$1{cost: 1}, ")},
		{"a field is indented too far", at(`(?m)^    (key|keys|limits|quotas|match): `, "      $1: ")},
		{"a field is indented too little", at(`(?m)^    (key|keys|limits|quotas|match): `, "   $1: ")},
		{"a field is indented with a tab", at(`(?m)^    (key|keys|limits|quotas|match): `, "\t$1: ")},
		{"a rule is indented too little", at(`(?m)^  - (\{?name)`, " - $1")},
		{"a rule is indented too far", at(`(?m)^  - (\{?name)`, "    - $1")},
		{"no blank after a dash", at(`(?m)^  - (\{?name)`, "  -$1")},
	}
}

// goodFiles are files that do what their authors meant, by their names.
func goodFiles(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{"many kinds of rules": `version: 1
quotas:
  - {name: units, key: [attr:api_key], limits: [500/hour]}
rules:
  - {name: internal, match: {ip: [10.0.0.0/8, "2001:db8::/32"]}, unlimited: true}
  - {name: login, match: {path: "^/login/?$", method: [POST, PUT]}, keys: [[ip], [user]], limits: [10/minute]}
  - {name: api, match: {path: "^/api(/|$)", attributes: {api_key: }}, key: [attr:api_key], limits: [{limit: 100, window: 1m, algorithm: token_bucket, burst: 20}]}
  - {name: search, match: {path: "^/search(/|$)", attributes: {api_key: }}, key: [attr:api_key], limits: [50/hour], quotas: [{name: units, cost: 5}]}
  - {name: bulk, match: {path: "^/bulk(/|$)", attributes: {api_key: }}, quotas: [{name: units, cost: {default: 1, POST: 2}}]}
  - {name: free, match: {attributes: {plan: free}}, key: [rule, user], limits: [5/second, 40/minute], cost: {default: 1, POST: 2}}
  - {name: bursts, match: {path: ^/burst}, key: [rule, user], algorithm: token_bucket, burst: 20, limits: [50/hour]}
  - {name: drips, match: {path: ^/drip}, key: [rule, user], limits: [{limit: 30, window: 1m, algorithm: leaky_bucket, drip: {amount: 5, every: 10s}}]}
  - {name: monthly, match: {path: ^/month}, key: [rule, user], zone: Europe/Berlin, limits: [{limit: 500, calendar: day}]}
  - {name: staff, match: {group: staff}}
  - {name: costly, match: {path: ^/export}, key: [rule, user], limits: [50/hour], cost: [{method: GET, cost: 2}, {from: "attr:tokens", max: 50}]}
  - {name: rest, key: [rule, user], limits: [5/second, 40/minute], shadow: true}
`}
	examples, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(examples) < 6 {
		t.Fatal(examples, err)
	}
	for _, name := range examples {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(name)] = string(text)
	}
	return out
}

var rewrite = flag.Bool("rewrite", false,
	"write what each mutant of a rules file gets into testdata, to be read before it is committed")

// place is the position with which a problem begins, and lines are those that it names.
var (
	place = regexp.MustCompile(`^f:[0-9]+:[0-9]+: `)
	lines = regexp.MustCompile(`\bline [0-9]+`)
)

// A file with a slip is never called good: it is refused, or there is a warning. The file
// testdata/mutants.txt has what each kind of slip gets, for people to read.
func TestMutatedFiles(t *testing.T) {
	inWire(t)
	total := 0
	gets := map[string]map[string]int{} // by kind and message
	for name, good := range goodFiles(t) {
		set, err := rules.Parse("good", []byte(good), rules.Options{})
		if err != nil || len(set.Warnings()) > 0 {
			t.Fatalf("the good file %s: %v, %+v", name, err, set.Warnings())
		}
		for _, m := range mutants() {
			for _, file := range m.change(good) {
				if file == good || attributeName.MatchString(file) {
					continue
				}
				total++
				now, err := rules.Parse("f", []byte(file), rules.Options{})
				var message string
				switch {
				case err != nil:
					first, _, _ := strings.Cut(err.Error(), "\n")
					message = lines.ReplaceAllString(place.ReplaceAllString(first, "error: "), "line N")
				case len(now.Warnings()) > 0:
					message = lines.ReplaceAllString("warning: "+now.Warnings()[0].Text, "line N")
				case now.Hash() != set.Hash():
					t.Errorf("%s: %s: OK, and it means something else:\n%s", name, m.name, difference(good, file))
					continue
				default:
					message = "it means the same"
				}
				if gets[m.name] == nil {
					gets[m.name] = map[string]int{}
				}
				gets[m.name][message]++
			}
		}
	}
	if t.Logf("%d mutants", total); total < 200 {
		t.Errorf("only %d mutants", total)
	}
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(gets)) {
		fmt.Fprintf(&b, "%s\n", kind)
		for _, message := range slices.Sorted(maps.Keys(gets[kind])) {
			fmt.Fprintf(&b, "  %d x %s\n", gets[kind][message], message)
		}
	}
	const table = "testdata/mutants.txt"
	if *rewrite {
		if err := os.WriteFile(table, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("mutants get other messages than the table has (go test ./rules -run TestMutatedFiles -rewrite writes "+
			"it):\n%s", difference(string(want), got))
	}
}

// difference returns the lines of a file that another one lacks.
func difference(old, now string) string {
	have := strings.Split(old, "\n")
	return strings.Join(slices.DeleteFunc(strings.Split(now, "\n"), func(l string) bool {
		return slices.Contains(have, l)
	}), "\n")
}
