package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
)

// outcome is what a person sees of one run.
type outcome struct {
	status   int
	out, err string
}

// person is someone who runs the tool.
type person struct {
	stdin  string
	screen term.Style
	now    time.Time
	step   time.Duration // how far the wall clock moves at each look
}

func (p person) run(t *testing.T, args ...string) outcome {
	t.Helper()
	var out, err bytes.Buffer
	status := Run(t.Context(), args, Streams{
		In: strings.NewReader(p.stdin), Out: &out, Err: &err, OutStyle: p.screen, ErrStyle: p.screen,
		Now: func() time.Time { p.now = p.now.Add(p.step); return p.now },
	})
	for _, s := range []string{"goroutine ", "panic", ".go:"} {
		if strings.Contains(err.String(), s) {
			t.Errorf("a stack or a place in the source is shown: %s", err.String())
		}
	}
	return outcome{status, out.String(), err.String()}
}

// file writes a file and returns its name.
func file(t *testing.T, name, text string) string {
	t.Helper()
	full := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return full
}

const townRules = `version: 1
rules:
  - {name: towns, match: {path: "^/towns"}, key: [path, user], limits: [{limit: 2, window: 1m, algorithm: fixed_window}]}
  - {name: admins, match: {group: admin}, unlimited: true}
`

// logLine is a line of a log, at a second of a minute.
func logLine(user string, second int, path string) string {
	return fmt.Sprintf("10.0.0.1 - %s [17/May/2015:10:%02d:%02d +0000] \"GET %s HTTP/1.1\" 200 1\n", user, second/60,
		second%60, path)
}

// townLog has five requests for towns by ada, the third and fourth too many,
// out of order, and one that no rule matches.
func townLog() string {
	return logLine("ada", 30, "/towns?page=2") + logLine("ada", 10, "/towns") + logLine("ada", 61, "/towns") +
		logLine("ada", 20, "/towns") + logLine("ada", 59, "/towns") + logLine("-", 1, "/")
}

// The expected result for each kind of invalid input: the status, and words of the
// message. Standard output is empty.
func TestBadInput(t *testing.T) {
	rules := file(t, "rules.yaml", townRules)
	bad := file(t, "bad.yaml",
		"version: 1\nrules:\n  - {name: a, limits: [0/minute], colour: red}\n  - {name: a, match: {path: \"(\"}}\n")
	log := file(t, "access.log", townLog())
	binary := file(t, "photo.png", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00")
	empty := file(t, "empty.log", "")
	prose := file(t, "readme.log", "This is no access log.\nNot at all.\n")
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	long := strings.Repeat("x", 8193)
	for name, c := range map[string]struct {
		args   string
		status int
		want   string // with " … " between parts that must all be there
	}{
		"unknown command": {"replya", 2, `there is no command "replya": did you mean "replay"? See "weir --help"`},
		"explain": {"explain", 2,
			`there is no command "explain": did you mean "check --explain"? See "weir --help"`},
		"explain, with a flag": {"explain /towns --server x:1", 2,
			`there is no command "explain": did you mean "check --explain"? See "weir --help"`},
		"nothing like a command":  {"zzzzzz", 2, `there is no command "zzzzzz"; … weir --help`},
		"help for no command":     {"help replya", 2, `there is no command "replya": did you mean "replay"?`},
		"completion for no shell": {"completion tcsh", 2, `there is no completion for "tcsh": give bash, zsh`},
		"unknown flag": {"replay --rule x y", 2,
			`there is no flag --rule: did you mean --rules? … weir replay --help`},
		"nothing like a flag":    {"replay --zzzzzz x y", 2, "there is no flag --zzzzzz; … weir replay --help"},
		"unknown shorthand":      {"replay -z x", 2, "unknown shorthand flag … -z … weir replay --help"},
		"flag without value":     {"replay --rules", 2, "flag needs an argument: --rules"},
		"flag that is no number": {"replay --top many", 2, `"many" … --top … give a whole number`},
		"global unknown flag":    {"--jsn", 2, "there is no flag --jsn … weir --help"},
		"replay without rules":   {"replay " + log, 2, "no rules are named: give --rules FILE"},
		"replay without log":     {"replay --rules " + rules, 2, "no log is named"},
		"top negative":           {"replay --top -1 --rules " + rules + " " + log, 2, "--top -1"},
		"max-lines zero":         {"replay --max-lines 0 --rules " + rules + " " + log, 2, "--max-lines 0 is out of range"},
		"stdin twice":            {"replay --rules " + rules + " - -", 2, "standard input can be read only once"},
		"stdin for both":         {"replay --rules - -", 2, "standard input can be read only once"},
		"rules missing": {"replay --rules " + missing + " " + log, 1,
			"rules file " + missing + " cannot be opened: no such file"},
		"rules a directory": {"replay --rules " + dir + " " + log, 1, "is a directory"},
		"rules invalid": {"replay --rules " + bad + " " + log, 1,
			bad + ":3: … colour … " + bad + ":4: … bad.yaml is not valid: "},
		"rules of two files": {"replay --rules " + bad + " --rules " + missing + " " + log, 1,
			bad + ":3: … " + missing + " cannot be opened"},
		"rules are a log": {"replay --rules " + log + " " + log, 1, log + ":1:"},
		"log missing":     {"replay --rules " + rules + " " + missing, 1, "log " + missing + ": no such file"},
		"log a directory": {"replay --rules " + rules + " " + dir, 1,
			"log " + dir + ": is a directory; name the log files in it"},
		"log empty":      {"replay --rules " + rules + " " + empty, 1, "empty.log … empty"},
		"logs all empty": {"replay --rules " + rules + " " + empty + " " + empty, 1, "all logs are empty"},
		"log binary": {"replay --rules " + rules + " " + binary, 1,
			"photo.png: not an access log: the file is binary"},
		"log binary among others": {"replay --rules " + rules + " " + log + " " + binary, 1,
			"photo.png: not an access log: the file is binary"},
		"log of prose": {"replay --rules " + rules + " " + prose, 1,
			`readme.log: not an access log: none of 2 lines … "This is no access log."`},
		"log is a rules file": {"replay --rules " + rules + " " + rules, 1,
			"not an access log … give it a --rules of its own"},
		"too many lines": {"replay --max-lines 5 --rules " + rules + " " + log, 1,
			"more than 5 requests … --max-lines"},
		"stdin empty":         {"replay --rules " + rules + " -", 1, "log -: not an access log: the file is empty"},
		"validate nothing":    {"validate", 2, "no rules file is named"},
		"validate missing":    {"validate " + missing, 1, "cannot be opened"},
		"validate invalid":    {"validate " + bad, 1, bad + ":3: … bad.yaml is not valid: "},
		"check without path":  {"check --rules " + rules, 2, "no path is given"},
		"check two paths":     {"check /a /b --rules " + rules, 2, `one path at a time`},
		"check without rules": {"check /a", 2, "no rules are named"},
		"check rules invalid": {"check /a --rules " + bad, 1, bad + ":3:"},
		"check cost negative": {"check /towns --cost -1 --rules " + rules, 2,
			`--cost "-1" … 0 (a peek) to 9007199254740991`},
		"check cost too large": {"check /towns --cost 9007199254740992 --rules " + rules, 2, `--cost "9007199254740992"`},
		"check cost huge": {"check /towns --cost 99999999999999999999 --rules " + rules, 2,
			`--cost "99999999999999999999"`},
		"check cost a word": {"check /towns --cost two --rules " + rules, 2, `--cost "two"`},
		"check empty id": {"check /towns --id= --rules " + rules, 2,
			"--id is empty: give 1 to 64 bytes, or leave it out"},
		"check id time": {"check /towns --id 7 --id-ttl 0s --rules " + rules, 2,
			"--id-ttl 0s is out of range: give 1ms to 24h0m0s"},
		"check attribute": {"check /towns --attr plan --rules " + rules, 2,
			`--attr "plan" is no attribute: give KEY=VALUE`},
		"check time":             {"check /towns --at noon --rules " + rules, 2, `--at "noon" is not a time`},
		"check before 1970":      {"check /towns --at 1969-12-31T23:59:59Z --rules " + rules, 2, `is not a time after 1970`},
		"check times":            {"check /towns --times 0 --rules " + rules, 2, `--times 0 is out of range`},
		"check every":            {"check /towns --every -1s --rules " + rules, 2, `--every -1s is negative`},
		"check key too long":     {"check /towns --user " + long + " --rules " + rules, 1, "8192"},
		"version with arguments": {"version 2", 2, `takes no arguments`},
	} {
		t.Run(name, func(t *testing.T) {
			got := person{}.run(t, strings.Fields(c.args)...)
			if got.status != c.status || got.out != "" {
				t.Errorf("status %d, want %d; on standard output: %q", got.status, c.status, got.out)
			}
			for _, want := range strings.Split(c.want, " … ") {
				if !strings.Contains(got.err, want) {
					t.Errorf("%q is not in:\n%s", want, got.err)
				}
			}
			lines := strings.Split(strings.TrimSuffix(got.err, "\n"), "\n")
			if !strings.HasPrefix(lines[len(lines)-1], "weir: ") {
				t.Errorf("the last line does not say who speaks: %s", got.err)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	for _, command := range []string{"", "replay", "validate", "check", "settle", "cancel", "extend", "reset", "top",
		"version", "help", "completion"} {
		got := person{}.run(t, strings.Fields(command+" --help")...)
		if got.status != ExitOK || got.err != "" || !strings.Contains(got.out, "Usage:") {
			t.Errorf("%s: status %d, %s%s", command, got.status, got.out, got.err)
		}
		if command != "completion" && !strings.Contains(got.out, "Examples:\n  ") {
			t.Errorf("%s: the help has no example", command)
		}
		for _, line := range strings.Split(got.out, "\n") {
			if command != "completion" && len(line) > 120 {
				t.Errorf("%s: a line of %d characters: %s", command, len(line), line)
			}
		}
	}
	if help, flag := (person{}).run(t, "help", "check"), (person{}).run(t, "check", "--help"); help != flag {
		t.Errorf("help check: %+v", help)
	}
	if got := (person{}).run(t); got.status != ExitOK || !strings.Contains(got.out, "Available Commands:") {
		t.Errorf("without arguments: %+v", got)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := (person{}).run(t, "completion", shell); got.status != ExitOK || !strings.Contains(got.out, "weir") {
			t.Errorf("%s: %+v", shell, got)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"rep"}, "replay\t"},
		{[]string{"replay", "--ma"}, "--max-lines\t"},
		{[]string{"replay", "--rules", ""}, "yaml\nyml\njson\n:8\n"},
		{[]string{"check", "--rules", ""}, "yaml\nyml\njson\n:8\n"},
		{[]string{"help", "va"}, "validate\n"},
		{[]string{"validate", ""}, "yaml\nyml\njson\n:8\n"},
	} {
		if got := (person{}).run(t, append([]string{"__complete"}, c.args...)...); !strings.HasPrefix(got.out, c.want) {
			t.Errorf("%q completes to %q", c.args, got.out)
		}
	}
}

// The manual page has each command and each of its flags, and no flag of tests.
func TestManualPage(t *testing.T) {
	got := person{}.run(t, "man")
	if got.status != ExitOK || got.err != "" {
		t.Fatalf("%+v", got)
	}
	roff := strings.NewReplacer("-", `\-`)
	var all func(c *cobra.Command)
	all = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Hidden {
				continue
			}
			_, section, found := strings.Cut(got.out, `.SS "`+roff.Replace(sub.CommandPath()))
			if !found {
				t.Errorf("%s is not on the page", sub.CommandPath())
			}
			section, _, _ = strings.Cut(section, "\n.SS ")
			sub.LocalFlags().VisitAll(func(f *pflag.Flag) {
				if there := strings.Contains(section, `\fB`+roff.Replace("--"+f.Name)+`\fR`) ||
					strings.Contains(section, `, \-\-`+roff.Replace(f.Name)+`\fR`); f.Name != "help" && there == f.Hidden {
					t.Errorf("%s --%s on the page: %v", sub.CommandPath(), f.Name, there)
				}
			})
			all(sub)
		}
	}
	all((&app{}).root())
}

func TestVersion(t *testing.T) {
	got := person{}.run(t, "version")
	if got.status != ExitOK || !strings.HasPrefix(got.out, "weir ") || !strings.Contains(got.out, " go1.") ||
		!strings.Contains(got.out, " tzdata 20") {
		t.Errorf("%+v", got)
	}
	if flag := (person{}).run(t, "--version"); flag != got {
		t.Errorf("--version: %+v, version: %+v", flag, got)
	}
}

// A file that everyone may write is valid, and warned of.
func TestValidateWarnsOfTheMode(t *testing.T) {
	good := file(t, "good.yaml", townRules)
	if err := os.Chmod(good, 0o666); err != nil {
		t.Fatal(err)
	}
	got := person{}.run(t, "validate", good)
	if got.status != 0 || !strings.Contains(got.err, "can be written by every user of this machine (mode 0666)") {
		t.Errorf("%+v", got)
	}
	numbers := filepath.Join(filepath.Dir(good), "plans.yaml")
	const named = "version: 1\nrules:\n  - {name: a, key: [user], limits: " +
		"[{limit: {by: \"attr:plan\", of: {file: plans.yaml}, else: 5}, window: 1m}]}\n"
	if err := errors.Join(os.Chmod(good, 0o600), os.WriteFile(good, []byte(named), 0o600),
		os.WriteFile(numbers, []byte("free: 5\n"), 0o600), os.Chmod(numbers, 0o666)); err != nil {
		t.Fatal(err)
	}
	got = person{}.run(t, "validate", good)
	if got.status != 0 || !strings.Contains(got.err, "plans.yaml can be written by every user of this machine") {
		t.Errorf("%+v", got)
	}
}

// All problems of a file come at once, with the line they are about where a
// person watches.
func TestValidate(t *testing.T) {
	good := file(t, "good.yaml", townRules)
	bad := file(t, "bad.yaml", "version: 1\nrules:\n  - {name: a, limits: [0/minute], colour: red}\n")
	got := person{}.run(t, "validate", good)
	if want := (outcome{0, good + ": OK: 2 rules, 1 limit\n", ""}); got != want {
		t.Errorf("%+v", got)
	}
	got = person{stdin: townRules}.run(t, "validate", "-")
	if want := (outcome{0, "-: OK: 2 rules, 1 limit\n", ""}); got != want {
		t.Errorf("%+v", got)
	}
	got = person{}.run(t, "validate", bad, good)
	if got.status != 1 || got.out != good+": OK: 2 rules, 1 limit\n" || strings.Count(got.err, bad+":3:") < 2 ||
		strings.Contains(got.err, "^") {
		t.Errorf("%+v", got)
	}
	for rest, want := range map[string]string{
		"defaults: {shadow: true}\nrules: [{name: b, match: {group: x}, unlimited: true}, {name: a, key: [user], limits: " +
			"[5/second]}]\n": "2 rules, 1 limit, all in shadow: nothing is denied",
		"rules: [{name: a, key: [user], limits: [5/second], shadow: true, continue: true}, {name: b, key: [user], limits: " +
			"[3/second]}]\n": "2 rules, 2 limits, 1 in shadow",
		"defaults: {shadow: true}\nquotas: [{name: q, key: [user], limits: [5/second], shadow: false}]\nrules: [{name: a, " +
			"match: {group: x}, key: [user], limits: [5/second]}, " +
			"{name: b, shadow: false, quotas: [q]}]\n": "2 rules, 1 quota, 2 limits, 1 in shadow",
		"rules: [{name: a, key: [user], hold: 30s, limits: [{limit: 5, algorithm: " +
			"concurrency}]}]\n": "1 rule, 1 limit, for nodes with --allow-refunds\n",
	} {
		f := file(t, "shadow.yaml", rest)
		if got := (person{}).run(t, "validate", f); !strings.HasPrefix(got.out, f+": OK: "+want) {
			t.Errorf("%s: %+v", rest, got)
		}
	}
	got = person{screen: term.Style{Terminal: true, Width: 80}}.run(t, "validate", bad)
	if !strings.Contains(got.err, "\n      - {name: a, limits: [0/minute], colour: red}\n                           ^\n") {
		t.Errorf("the source line is not shown, or the mark is off:\n%s", got.err)
	}
}

// A hint is shown, and --strict accepts it.
func TestValidateHints(t *testing.T) {
	small := file(t, "small.yaml", "rules: [{name: a, key: [user], limits: [5/minute]}]\n")
	got := person{}.run(t, "validate", "--strict", small)
	if got.status != 0 || got.out != small+": OK: 1 rule, 1 limit, 1 hint\n" ||
		!strings.Contains(got.err, small+":1:41: hint: after 5 at the beginning of one window") ||
		!strings.Contains(got.err, "the first 12s of the next") {
		t.Errorf("%+v", got)
	}
	got = person{}.run(t, "validate", "--strict", "--json", small)
	var one jsonValidity
	if err := json.Unmarshal([]byte(got.out), &one); err != nil || got.status != 0 || !one.Valid || len(one.Hints) != 1 {
		t.Fatalf("%v: %+v", err, got)
	}
}

func TestValidateJSON(t *testing.T) {
	good := file(t, "good.yaml", townRules)
	got := person{}.run(t, "validate", "--json", good)
	var one jsonValidity
	if err := json.Unmarshal([]byte(got.out), &one); err != nil || got.status != 0 {
		t.Fatalf("%v: %+v", err, got)
	}
	if diff := cmp.Diff(jsonValidity{File: good, Valid: true, Rules: 2, Limits: 1, Problems: []jsonProblem{},
		Warnings: []jsonWarning{}, Hints: []jsonWarning{}}, one); diff != "" {
		t.Error(diff)
	}
	bad := file(t, "bad.yaml", "version: 2\n")
	got = person{}.run(t, "validate", "--json", good, bad, bad+".none")
	var all []jsonValidity
	if err := json.Unmarshal([]byte(got.out), &all); err != nil || got.status != 1 || got.err != "" || len(all) != 3 {
		t.Fatalf("%v: %+v", err, got)
	}
	if p := all[1].Problems; all[1].Valid || len(p) == 0 || p[0].Line != 1 || p[0].Column == 0 || p[0].Text == "" {
		t.Errorf("%+v", all[1])
	}
	if p := all[2].Problems; all[2].Valid || len(p) != 1 || !strings.Contains(p[0].Text, "cannot be opened") {
		t.Errorf("%+v", all[2])
	}
}

// A warning about valid rules has its position and the line to write.
func TestValidateWarns(t *testing.T) {
	open := file(t, "open.yaml", "rules:\n  - {name: towns, match: {path: \"^/towns\"}, limits: [5/second]}\n")
	got := person{}.run(t, "validate", open)
	if got.status != 0 || got.out != open+": OK: 1 rule, 1 limit, 1 warning\n" || strings.Count(got.err, "\n") != 1 ||
		!strings.HasPrefix(got.err, open+
			`:2:33: warning: rule "towns" has no key, and pattern "^/towns" matches any number of paths`) ||
		!strings.Contains(got.err, `write "key: [rule, user]"`) {
		t.Errorf("%+v", got)
	}
	got = person{screen: term.Style{Terminal: true, Width: 80}}.run(t, "validate", open)
	if !strings.Contains(got.err,
		"\n      - {name: towns, match: {path: \"^/towns\"}, limits: [5/second]}\n                                    ^\n") {
		t.Errorf("the source line is not shown, or the mark is off:\n%s", got.err)
	}
	got = person{}.run(t, "validate", "--json", open)
	var one jsonValidity
	if err := json.Unmarshal([]byte(got.out), &one); err != nil || got.status != 0 || got.err != "" ||
		len(one.Warnings) != 1 {
		t.Fatalf("%v: %+v", err, got)
	}
	if w := one.Warnings[0]; !one.Valid || w.Line != 2 || w.Column != 33 || w.Rule != "towns" ||
		w.Instead != "key: [rule, user]" || w.Text == "" {
		t.Errorf("%+v", w)
	}
}

// With --strict a file with warnings is not valid.
func TestValidateStrict(t *testing.T) {
	good := file(t, "good.yaml", townRules)
	open := file(t, "open.yaml", "rules:\n  - {name: towns, match: {path: \"^/towns\"}, limits: [5/second]}\n")
	got := person{}.run(t, "validate", "--strict", open, good)
	if got.status != 1 || got.out != good+": OK: 2 rules, 1 limit\n" ||
		!strings.HasPrefix(got.err, open+":2:33: warning: rule \"towns\" has no key") ||
		!strings.Contains(got.err, open+" is not valid with --strict: 1 warning") {
		t.Errorf("%+v", got)
	}
	got = person{}.run(t, "validate", "--strict", "--json", open)
	var one jsonValidity
	if err := json.Unmarshal([]byte(got.out), &one); err != nil || got.status != 1 || one.Valid ||
		len(one.Warnings) != 1 || len(one.Problems) != 0 {
		t.Errorf("%v: %+v", err, got)
	}
	if got = (person{}).run(t, "validate", "--strict", good); got.status != 0 {
		t.Errorf("%+v", got)
	}
}

func TestExcerpt(t *testing.T) {
	s := term.Style{Terminal: true, Width: 80}
	for _, c := range []struct {
		line   string
		column int
		want   string
	}{
		{"abc: d", 6, "    abc: d\n         ^\n"},
		{"zürich: d\r", 9, "    zürich: d\n            ^\n"},
		{"\ta\x1b: d", 2, "     a : d\n     ^\n"},
		{"end", 4, "    end\n       ^\n"},
		{"end", 5, ""},
		{"end", 0, ""},
	} {
		if got := excerpt(c.line, c.column, s); got != c.want {
			t.Errorf("%q, %d:\n%s", c.line, c.column, got)
		}
	}
	long := excerpt(strings.Repeat("x", 500)+"HERE"+strings.Repeat("y", 500), 501, s)
	lines := strings.Split(long, "\n")
	if at := strings.Index(lines[1], "^"); len(lines[0]) > 80 || !strings.HasPrefix(lines[0][at:], "HERE") {
		t.Errorf("a long line:\n%s", long)
	}
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
