package rules_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/rules"
)

// warningsOf returns the warnings of a valid file.
func warningsOf(tb testing.TB, file string) []rules.Warning {
	tb.Helper()
	s, err := rules.Parse("f", []byte(file), rules.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	fitsSchema(tb, file)
	return s.Warnings()
}

// openPathsOf returns the warnings about paths that are counted separately because there
// is no key.
func openPathsOf(tb testing.TB, file string) []rules.Warning {
	tb.Helper()
	return slices.DeleteFunc(warningsOf(tb, file), func(w rules.Warning) bool {
		return !strings.Contains(w.Text, "each path has a limit of its own")
	})
}

// A rule that matches an unlimited number of paths and has no key counts each path
// separately. The file is valid, but a caller who varies the path is not limited.
func TestOpenEndedPatternsWithoutKeyAreWarnedOf(t *testing.T) {
	for pattern, open := range map[string]bool{
		`^/towns`:                        true, // anything may follow
		`^/towns/`:                       true,
		`/towns$`:                        true, // anything may come before
		`towns`:                          true,
		``:                               true,
		`^`:                              true,
		`$`:                              true,
		`^/towns/.*$`:                    true,
		`^/towns/\S+$`:                   true,
		`^/towns/[^/]+$`:                 true,
		`^/towns/[0-9]+/?$`:              true,
		`^/towns/\d{2,}$`:                true,
		`^/towns(/.*)?$`:                 true,
		`^/towns/(ulm|[a-z]*)$`:          true,
		`^/towns|^/lakes$`:               true, // the first may go on
		`^/towns$|/lakes$`:               true, // the second may begin with anything
		`(^/towns)?/lakes$`:              true, // the anchor may be left out
		`(?m)^/towns$`:                   true, // of a line, and a path may have several
		`^/towns/.$`:                     true, // a million characters
		`^/towns/[0-9]{3}$`:              true, // 1000, more than anyone lists
		`^/towns/[a-z]{1,2}$`:            true,
		`(?i)^/towns$`:                   true, // /TOWNS too
		`^/towns/(?:(?:a|b){1,7})$`:      true,
		`^/towns$`:                       false,
		`^/towns/?$`:                     false,
		`\A/towns\z`:                     false,
		`^(/towns|/lakes)$`:              false,
		`^/towns$|^/lakes$`:              false,
		`^/(?:towns|lakes)/(?:a|b|xyz)$`: false,
		`^/v[0-9]/towns$`:                false,
		`^/v\d{1,1}/towns(/new)?$`:       false,
		`^/towns/[0-9]{2}$`:              false, // 100
		`^(^/towns$){1,3}$`:              false,
		`^/towns\b$`:                     false,
		`(?i)^/123$`:                     false,
	} {
		file := "rules:\n- name: towns\n  match: {path: '" + pattern + "'}\n  limits: [5/second]\n"
		w := openPathsOf(t, file)
		if got := len(w) == 1; got != open || len(w) > 1 {
			t.Errorf("%q: warned %t, want %t: %+v", pattern, got, open, w)
		}
		for _, key := range []string{"key: [path, user]", "key: [rule, user]", "keys: [[path], [ip]]"} {
			if w := openPathsOf(t, file+"  "+key+"\n"); len(w) != 0 {
				t.Errorf("%q with %s: %+v", pattern, key, w)
			}
			if w := openPathsOf(t, "defaults:\n  "+key+"\n"+file); len(w) != 0 {
				t.Errorf("%q with %s under defaults: %+v", pattern, key, w)
			}
		}
	}
}

// The rules files that people begin with have no warnings: those of the README and of docs/embed.md, the demo's, the
// example's, that of the containers, and that of the middlewares' examples.
func TestRulesThatPeopleCopyHaveNoWarnings(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	files := map[string]string{}
	for _, name := range []string{"examples/towns.yaml", "deploy/weir/rules.yaml", "cmd/node/internal/demo/rules.yaml"} {
		files[name] = read(name)
	}
	// In other files they are what lies between a line "version: 1" and the quote or
	// fence that ends them.
	for name, least := range map[string]int{"README.md": 1, "docs/embed.md": 1, "examples/middleware/doc.go": 1} {
		found := strings.Split(read(name), "\nversion: 1\n")[1:]
		if len(found) < least {
			t.Errorf("%s has %d rules files, want %d", name, len(found), least)
		}
		for i, rest := range found {
			text, _, _ := strings.Cut(rest, "`")
			files[fmt.Sprintf("%s, number %d", name, i+1)] = text
		}
	}
	for name, text := range files {
		set, err := rules.Parse(name, []byte(text), rules.Options{})
		if err != nil {
			t.Errorf("%v", err)
		} else if w := set.Warnings(); len(w) > 0 || set.Len() == 0 {
			t.Errorf("%s: %d rules, %+v", name, set.Len(), w)
		}
	}
}

func TestWarning(t *testing.T) {
	w := warningsOf(t, `version: 1
rules:
  - name: second
    limits: [1/second]
    key: [path, user]
    match: {path: "^/lakes/?$"}
  - {name: towns, match: {path: "^/towns"}, limits: [5/second]}
  - {name: admins, match: {path: "^/admin"}, unlimited: true}
  - {name: many, match: {path: "^/[0-9]{3}$"}, limits: [5/second]}
  - {name: cased, match: {path: "(?i)^/me$"}, limits: [5/second]}
  - name: rest
    limits: [100/second]
    shadow: true
`)
	want := []struct {
		line, column int
		rule, text   string
	}{
		{7, 33, "towns", `pattern "^/towns" matches any number of paths`},
		{9, 32, "many", "matches more than 100 paths"},
		{10, 33, "cased", "matches paths in upper and lower case"},
		{11, 5, "rest", "it has no pattern, so it matches every path"},
	}
	if len(w) != len(want) {
		t.Fatalf("%+v", w)
	}
	for i, x := range want {
		if w[i].Line != x.line || w[i].Column != x.column || w[i].Rule != x.rule || w[i].Instead != "key: [rule, user]" ||
			!strings.Contains(w[i].Text, x.text) || !strings.Contains(w[i].Text, w[i].Instead) {
			t.Errorf("got %+v, want %+v", w[i], x)
		}
	}
	if w := rules.Empty(rules.Options{}).Warnings(); len(w) != 0 {
		t.Errorf("no rules: %+v", w)
	}
}

// The end of a file may be missing and the rest be valid: rules_count detects that.
func TestRulesCount(t *testing.T) {
	const body = "rules:\n- {name: a, limits: [1/second], key: [ip]}\n- {name: b, limits: [1/second], key: [ip]}\n"
	parse := func(file string) (*rules.Set, error) { return rules.Parse("f", []byte(file), rules.Options{}) }
	whole, err := parse("rules_count: 2\n" + body)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := parse(body)
	if err != nil || plain.Hash() != whole.Hash() {
		t.Errorf("%v; the count changes what the file means: %x and %x", err, plain.Hash(), whole.Hash())
	}
	if _, err := parse("rules_count: 0\nrules: []\n"); err != nil {
		t.Error(err)
	}
	for file, want := range map[string]string{
		"rules_count: 2\n" + strings.Join(strings.SplitAfter(body, "\n")[:2],
			""): "f:1:14: rules_count is 2, but the number of rules in the file is 1: ",
		body + "rules_count: 3\n":   "f:4:14: rules_count is 3, but the number of rules in the file is 2: ",
		"rules_count: -1\n" + body:  "f:1:14: rules_count is -1, but the number of rules in the file is 2: ",
		"rules_count: two\n" + body: `f:1:14: rules_count: "two" is not`,
		"rules_count: [2]\n" + body: "f:1:14: rules_count is a single value, not a list",
		"rules_count: 1\nrules:\n":  `"rules" has no value`,
		"rules_count:\n" + body:     `"rules_count" has no value`,
	} {
		if _, err := parse(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", file, err, want)
		}
	}
}
