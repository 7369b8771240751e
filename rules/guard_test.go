package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// hostile are files of some size that would take a YAML parser minutes, or more
// stack or memory than there is.
func hostile(size int) map[string]string {
	fill := func(unit string) string { return strings.Repeat(unit, size/len(unit)) }
	upTo := func(head, unit string) string { return head + strings.Repeat(unit, (size-len(head))/len(unit)) }
	files := map[string]string{
		"brackets":           fill("["),
		"braces":             fill("{a: "),
		"brackets in pairs":  fill("[]"),
		"dashes in a line":   fill("- "),
		"dashes, unreadable": upTo("a: @\n", "- "),
		"dashes":             fill("-\n"),
		"dashes, commented":  fill("- #\n"),
		"question marks":     fill("? "),
		"keys":               fill("a:\n"),
		"lone keys":          upTo("rules: {", "a,"),
		"keys without value": upTo("rules: {", "a:,"),
		"lone keys, closed":  fill("- {a, b}\n"),
		"keys in a list":     upTo("rules: [", "a: 1,\n"),
		"pairs in a list":    upTo("rules: [", "a: ,"),
		"anchors":            fill("&a "),
		"aliases":            fill("*a "),
		"tags":               fill("!!a "),
		"directives":         fill("%"),
		"documents":          fill("---\n"),
		"document ends":      fill("...\n"),
		"quotes":             fill(`"`),
		"colons":             fill(":"),
		"colons apart":       fill(": "),
		"commas":             fill(","),
		"bars":               fill("|"),
		"folds":              upTo("a: >\n", "  x\n\n"),
		"blanks":             fill(" "),
		"tabs":               fill("\t"),
		"carriage returns":   fill("\r"),
		"reserved":           fill("@"),
		"backslashes":        upTo(`a: "`, `\\`),
		"closing brackets":   upTo("rules: [", "]"),
		"closing braces":     upTo("rules: {", "}"),
		"elements":           upTo("rules: [", "1,"),
		"short rules":        upTo("rules: [", "{},"),
		"mixed":              fill("- {a: [b, {c: "),
		"long keys":          fill(strings.Repeat("k", 500) + ":\n  - x\n"),
		"one line":           upTo("rules: [{name: ", "x"),
	}
	var nested, wide, named strings.Builder
	for i := range 700 {
		nested.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	for i := range size / 11 {
		fmt.Fprintf(&wide, "a%d: 1\n", i)
	}
	const depth = 10
	for i := range depth - 2 {
		named.WriteString(strings.Repeat(" ", i) + strings.Repeat("n", limiter.MaxNameBytes) + ":\n")
	}
	named.WriteString(strings.Repeat(" ", depth) + "[")
	files["nested"], files["wide"] = nested.String(), wide.String()
	files["long names"] = upTo(named.String(), "1,")
	files["billion laughs"] = "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nrules: [*c]"
	return files
}

// No file stops the process, or keeps it for long.
func TestHostileFiles(t *testing.T) {
	size := maxFileBytes / 4 // what grows with the square still shows
	if testing.Short() {
		size /= 4
	}
	for name, file := range hostile(size) {
		start := time.Now()
		if _, err := Parse("f", []byte(file), Options{}); err == nil {
			t.Errorf("%s: accepted", name)
		} else if len(err.Error()) > 1<<18 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
		// How long it took is for people: a file that takes for ever ends the
		// test by its own bound, and no other time can be asserted.
		t.Logf("%-20s %v", name, time.Since(start))
	}
}

// Values left out are fine in numbers that a person would write.
func TestValuesLeftOut(t *testing.T) {
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "- name: r%d\n  match:\n    attributes:\n      device: # any\n      plan:\n  limits:\n  - "+
			"1/second\n  - 2/minute\n", i)
	}
	s, err := Parse("f", []byte(b.String()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Rules()[999].Attributes; len(got) != 2 || len(got["device"]) != 0 {
		t.Errorf("attributes %v", got)
	}
	if _, err = Parse("f", []byte(b.String()+b.String()[len("rules:\n"):]), Options{}); err == nil ||
		!strings.Contains(err.Error(), "more than 2000 values are left out") {
		t.Errorf("twice as many: %.200v", err)
	}
}

// In block style a list may stand in the column of its key, or further in.
func TestShapes(t *testing.T) {
	for _, file := range []string{
		"rules:\n- name: a\n  limits:\n  - 1/second\n  - {limit: 2, window: 1m}\n  match:\n    method:\n    - GET\n    - " +
			"PUT\n",
		"rules:\n  - name: a\n    limits:\n      - 1/second\n      - limit: 2\n        window: 1m\n    match: {method: " +
			"[GET, PUT]}\n",
		"rules:\n  -\n    name: a\n    limits: [1/second, {limit: 2, window: 1m}]\n    match:\n      method: [\n        " +
			"GET,\n        PUT,\n      ]\n",
		"{rules: [{name: a, limits: [1/second, {limit: 2, window: 1m,}], match: {method: [GET, PUT]}}]}",
		"---\nrules:\n- {name: a, match: {method: [GET, PUT]},\n   limits: [1/second,\n  2/minute]}\n...\n",
		"rules:\n- name: >-\n    a\n  limits: ['1/second', \"2/minute\"]\n  match: {method: [\"GET\",\n   'PUT']}\n",
	} {
		s, err := Parse("f", []byte(file), Options{})
		if err != nil {
			t.Errorf("%v in\n%s", err, file)
			continue
		}
		in := s.Rules()[0]
		if in.Rule.Name != "a" || len(in.Rule.Limits) != 2 || in.Rule.Limits[1].Name() != "minute" ||
			fmt.Sprint(in.Methods) != "[GET PUT]" {
			t.Errorf("%+v from\n%s", in, file)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, file := range hostile(1000) {
		f.Add([]byte(file[:min(len(file), 200)]))
	}
	f.Add([]byte("version: 1\ndefaults: {algorithm: gcra, burst: 5}\nrules:\n- name: a\n  match: {path: ^/a, method: " +
		"[GET], attributes: {x: , y: z}}\n  keys: [[ip], [user, 'attr:x']]\n  limits: [5/second, {limit: 10, window: 1m, " +
		"name: m}]\n  cost: {default: 1, POST: 2}\n"))
	f.Add([]byte(`{"rules":[{"name":"a","key":["path"],"limits":["5/second"],"block":"1h30m","weight":0.5}]}`))
	f.Add([]byte("rules:\n- {name: admins, match: {group: admin}, unlimited: true}\n- name: b # x\n  limits:\n  - 1/1s\n"))
	f.Add([]byte("rules:\n- {name: a, match: {method: [GET], attributes: {x: [::1, fe80::, a:b:c]}}, key: " +
		"[attr:customer, attr:x:y], limits: [5/second]}\n"))
	f.Add([]byte("rules: [{name: a, match: {method: GET group: x}, keys: [[attr:a\n b], [:c], [d :e, f: g], [\"h\":i, " +
		"j:\"k\", l:]], limits: [5/second]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("f", data, Options{PathCacheEntries: 4})
		if (s == nil) == (err == nil) {
			t.Fatalf("set %v, error %v", s, err)
		}
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("the error is a %T", err)
			}
			checkProblems(t, data, e)
			return
		}
		// An accepted file has the same meaning when parsed again, and can be used.
		again, err := Parse("g", data, Options{})
		if err != nil || again.Hash() != s.Hash() {
			t.Fatalf("the second time: %v", err)
		}
		var c arith.Charge
		for _, path := range []string{"/a", "", "/a"} {
			r := limiter.Request{Path: path, User: "u", Method: "GET", IP: "1.1.1.1"}
			if _, err := s.Resolve(&r, &c); err != nil {
				continue
			}
			for i := range c.Len() {
				s.AppendKeyName(nil, &r, c.Key(i), nil)
			}
		}
	})
}

// checkProblems checks that all positions are in the file and in order.
func checkProblems(t *testing.T, data []byte, e *Error) {
	lines := 2 + strings.Count(string(data), "\n") + strings.Count(string(data), "\r")
	last := Problem{Line: 1, Column: 1}
	if len(e.Problems) == 0 {
		t.Fatal("an error without a problem")
	}
	for _, p := range e.Problems {
		if p.Text == "" || p.Line < last.Line || p.Line == last.Line && p.Column < last.Column || p.Line > lines {
			t.Fatalf("problem %+v after %+v in a file of %d lines", p, last, lines)
		}
		last = p
	}
}
