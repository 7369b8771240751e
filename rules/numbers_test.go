package rules_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

func limitsOf(t *testing.T, s *rules.Set, r *limiter.Request) (text string, u *rules.Unzoned) {
	t.Helper()
	var c arith.Charge
	m, err := s.Resolve(r, &c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Len() {
		for _, l := range c.Key(i).Rule.Limits {
			text += fmt.Sprintf("%s %d/%s; ", l.Name(), l.Limit(), l.Window())
		}
	}
	return strings.TrimSuffix(text, "; "), m.Unzoned
}

// The number of a limit is that of the request's plan, or of else: never none.
func TestNumbersByPlan(t *testing.T) {
	for _, file := range []string{`
rules:
- name: a
  key: [user]
  limits: [{limit: {by: "attr:plan", of: {free: 100/minute, pro: 1000/minute}, else: 10/minute}}, 5000/hour]
`, `
rules:
- name: a
  key: [user]
  limits:
    - window: 1m
      name: minute
      limit:
        else: 10
        of: {"free": 100, pro: 1_000}
        by: attr:plan
    - {limit: {by: attr:plan, of: {other: 3/hour}, else: 5000/hour}}
`} {
		s := mustSet(t, file, rules.Options{})
		for plan, want := range map[string]int{"free": 100, "pro": 1000, "": 10, "Pro": 10, "gold": 10, " pro": 10,
			"-1": 10} {
			r := &limiter.Request{Path: "/", User: "ada", Attributes: map[string]string{"plan": plan}}
			if plan == "" {
				r.Attributes = nil
			}
			got, u := limitsOf(t, s, r)
			if want := fmt.Sprintf("minute %d/1m0s; hour 5000/1h0m0s", want); got != want {
				t.Errorf("plan %q: %s, want %s", plan, got, want)
			}
			if (u != nil) != (want == 10) || u != nil && (!u.Number || u.Missing != (plan == "") || u.Rule != "a") {
				t.Errorf("plan %q: %+v", plan, u)
			}
		}
	}
}

// A number that the request states counts up to most, and that of else for what is no number.
func TestStatedNumbers(t *testing.T) {
	s := mustSet(t, `
rules:
- {name: a, key: [user], limits: [{limit: {from: "attr:limit", most: 1000/minute, else: 10/minute}}]}
`, rules.Options{})
	for stated, want := range map[string]int{"1": 1, "999": 999, "1000": 1000, "1001": 1000, "0050": 50,
		"99999999999999999999999": 1000, "9223372036854775808": 1000, "": 10, "0": 10, "-5": 10, "+5": 10,
		"1.5": 10, "1e3": 10,
		" 7": 10, "7 ": 10, "١": 10, "0x10": 10, "1_000": 10, "100/minute": 10} {
		for range 2 { // also from the cache
			got, u := limitsOf(t, s, &limiter.Request{Path: "/", User: "ada", Attributes: map[string]string{"limit": stated}})
			if want := fmt.Sprintf("minute %d/1m0s", want); got != want || (u != nil) != strings.HasSuffix(want, " 10/1m0s") {
				t.Errorf("%q: %s, want %s, %+v", stated, got, want, u)
			}
		}
	}
	for n := 1; n <= 1000; n++ {
		want := fmt.Sprintf("minute %d/1m0s", n)
		if got, _ := limitsOf(t, s, &limiter.Request{Attributes: map[string]string{"limit": fmt.Sprint(n)}}); got != want {
			t.Fatalf("%d: %s", n, got)
		}
	}
}

// Tenants, users and groups choose numbers, too; a quota has them as a rule does.
func TestSourcesOfNumbers(t *testing.T) {
	s := mustSet(t, `
quotas:
- {name: q, key: [user], limits: [{limit: {by: tenant, of: {acme: 7/hour}, else: 6/hour}}]}
rules:
- {name: u, match: {path: ^/u$}, key: [user], limits: [{limit: {by: user, of: {ada: 5/minute}, else: 4/minute}}]}
- name: g
  match: {path: ^/g$}
  key: [user]
  limits: [{limit: {by: group, of: {staff: 3/minute, default: 2/minute}, else: 1/minute}}]
- {name: d, match: {path: ^/d$}, quotas: [q]}
`, rules.Options{})
	for _, c := range []struct {
		r    limiter.Request
		want string
	}{
		{limiter.Request{Path: "/u", User: "ada"}, "minute 5/1m0s"},
		{limiter.Request{Path: "/u", User: "bob"}, "minute 4/1m0s"},
		{limiter.Request{Path: "/g", Group: "staff"}, "minute 3/1m0s"}, {limiter.Request{Path: "/g"}, "minute 2/1m0s"},
		{limiter.Request{Path: "/g", Group: "x"}, "minute 1/1m0s"},
		{limiter.Request{Path: "/d", Tenant: "acme"}, "hour 7/1h0m0s"}, {limiter.Request{Path: "/d"}, "hour 6/1h0m0s"},
	} {
		if got, _ := limitsOf(t, s, &c.r); got != c.want {
			t.Errorf("%+v: %s, want %s", c.r, got, c.want)
		}
	}
}

func TestNumbersErrors(t *testing.T) {
	for limit, want := range map[string]string{
		`{by: "attr:plan", of: {a: 1/minute}}`:                     `1:49: this limit has no "else"`,
		`{by: "attr:plan", else: 1/minute}`:                        `this table has no "of"`,
		`{from: "attr:limit", else: 1/minute}`:                     `this limit has no "most": a request could`,
		`{of: {a: 1/minute}, else: 1/minute}`:                      `this limit says neither "by" nor "from"`,
		`{by: plan, of: {a: 1/minute}, else: 1/minute}`:            `by: "plan" does not choose a number`,
		`{from: tenant, most: 5/minute, else: 1/minute}`:           `from: a request states its number in an attribute`,
		`{by: "attr:plan", of: {a: 0/minute}, else: 1/minute}`:     `"a": 0 is out of range: give 1 to`,
		`{by: "attr:plan", of: {a: deny}, else: 1/minute}`:         `"a": "deny" is not a whole number`,
		`{by: "attr:plan", of: {a: 5/hour}, else: 1/minute}`:       `else: "1/minute" and, on line 1, "5/hour" have`,
		`{by: "attr:plan", of: {a: 5}, else: 1/minute}`:            `"5" has no window, and "1/minute" on line 1 has one`,
		`{by: "attr:plan", of: {a: 5}, else: 1}`:                   `this limit has no "window"`,
		`{by: "attr:plan", of: {}, else: 1/minute}`:                `of: the table is empty`,
		`{by: "attr:plan", of: {a: 1/minute}, default: 1/hour}`:    `"default" is written as "else" here`,
		`{by: "attr:plan", of: {a: }, else: 1/hour}`:               `"a" has no number; give one or remove it`,
		`{by: "attr:plan", of: {file: p.yaml}, else: 1/hour}`:      `the numbers of "p.yaml" are in another file`,
		`{from: "attr:n", most: 9/hour, of: {a: 1}, else: 1/hour}`: `"of" is a table, by which no number is stated`,
		`{by: "attr:n", from: "attr:m", else: 1/hour}`:             `"by" chooses from a table and "from" takes the number`,
	} {
		_, err := rules.Parse("f", []byte("rules: [{name: a, key: [user], limits: [{limit: "+limit+"}]}]"), rules.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", limit, err, want)
		}
	}
	for file, want := range map[string]string{
		`[{limit: {by: "attr:p", of: {a: 1/hour}, else: 1/hour}, window: 1m}]`: `"1/hour" has a window, and`,
		`[{limit: {by: "attr:p", of: {a: 1/hour}, else: 1/hour}}, {limit: {by: tenant, of: {a: 1/minute}, ` +
			`else: 1/minute}}]`: `two limits of this rule take their numbers from ` +
			`different parts of the request, "tenant" and, on line 1, "attr:p": make them two rules`,
		`[{limit: {by: "attr:p", of: {a: 1/hour}, else: 1/hour}}, {limit: 5, calendar: day, zone: "attr:tz"}]`: `this rule ` +
			`takes a number from its requests, and on line 1 a time zone: make them two rules`,
		`[{limit: {by: "attr:p", of: {a: 1}, else: 9000000000}, window: 1h, algorithm: sliding_log}]`: `takes 1 to 1000000`,
		`[{limit: {by: "attr:p", of: {a: 9000000000}, else: 1}, window: 1h, algorithm: sliding_log}]`: `9000000000: `,
	} {
		_, err := rules.Parse("f", []byte("rules: [{name: a, key: [user], limits: "+file+"}]"), rules.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}

// A table that lets requests without a plan do more than those with one is probably a mistake, and
// limits that another plan has more of are none.
func TestNumbersWarnings(t *testing.T) {
	set := func(rest string) *rules.Set {
		return mustSet(t, "rules: [{name: a, key: [user], "+rest+"}]", rules.Options{})
	}
	s := set(`limits: [{limit: {by: "attr:p", of: {a: 5/hour, b: 6/hour}, else: 7/hour}}]`)
	if w := s.Warnings(); len(w) != 1 || !strings.Contains(w[0].Text, "else is 7, which is above each number") {
		t.Error(w)
	}
	s = set(`cost: 30, limits: [{limit: {by: "attr:p", of: {a: 40/hour}, else: 5/hour}}, 60/day]`)
	if w := s.Warnings(); len(w) != 0 {
		t.Error(w)
	}
	s = set(`cost: 30, limits: [{limit: {from: "attr:p", most: 20/hour, else: 5/hour}}]`)
	if w := s.Warnings(); len(w) != 1 || !strings.Contains(w[0].Text, "admits at most 20 at once") {
		t.Error(w)
	}
}

func files(of map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		text, ok := of[name]
		if !ok {
			return nil, fmt.Errorf("file of numbers %s cannot be opened: %w", name, os.ErrNotExist)
		}
		return []byte(text), nil
	}
}

// A table in a file beside the rules is the same as one in the rules, wherever it is named.
func TestNumbersFile(t *testing.T) {
	const plans = "# plans\r\n\r\n  acme: 100/minute\n\"a: b\": 7/minute # a comment\n" +
		"'#c': 8/minute\n---\nüml äut: 1_000 / minute\n"
	in := `{by: tenant, of: {acme: 100/minute, "a: b": 7/minute, "#c": 8/minute, üml äut: 1000/minute}, else: 5/minute}`
	want := mustSet(t, "rules: [{name: a, key: [user], limits: [{limit: "+in+"}]}]", rules.Options{})
	for _, file := range []string{
		"rules: [{name: a, key: [user], limits: [{limit: {by: tenant, of: {file: plans.yaml}, else: 5/minute}}]}]",
		"\ufeffrules: [{name: a, key: [user], limits: [{limit: {by: tenant, of: {file: \"plans.yaml\"}, " +
			"else: 5/minute}}]}] # x",
		"rules:\r\n- name: a\r\n  key: [user]\r\n  limits:\r\n  - limit:\r\n      by: tenant\r\n" +
			"      of:\r\n        file: 'plans.yaml' # here\r\n" +
			"      else: 5/minute\r\n",
	} {
		data, err := rules.Expand([]byte(file), files(map[string]string{"plans.yaml": plans}))
		if err != nil {
			t.Fatal(err)
		}
		s, err := rules.Parse("rules.yaml", data, rules.Options{})
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		if s.Hash() != want.Hash() {
			t.Errorf("%s: another hash", data)
		}
		got, _ := limitsOf(t, s, &limiter.Request{Tenant: "a: b"})
		if got != "minute 7/1m0s" {
			t.Errorf("%s: %s", data, got)
		}
		if n := s.Rules()[0].Numbers; n.By != "tenant" || len(n.Limits[0].Of) != 4 || n.Limits[0].Of["üml äut"] != 1000 {
			t.Errorf("%+v", n)
		}
		changed := map[string]string{"plans.yaml": strings.ReplaceAll(plans, "100/", "101/")}
		other, _ := rules.Expand([]byte(file), files(changed))
		if s, err = rules.Parse("rules.yaml", other, rules.Options{}); err != nil || s.Hash() == want.Hash() {
			t.Errorf("%v: another number, and the same hash", err)
		}
		if twice, err := rules.Expand(data, files(nil)); err != nil || string(twice) != string(data) {
			t.Errorf("expanded again: %v\n%s", err, twice)
		}
	}
	plan := "rules: [{name: a, key: [user], limits: [{limit: {by: tenant, of: {file: 5/minute}, else: 5/minute}}]}]"
	if data, err := rules.Expand([]byte(plan), files(nil)); err != nil || string(data) != plan {
		t.Errorf("a plan with the name file: %v\n%s", err, data)
	}
}

func TestNumbersFileErrors(t *testing.T) {
	const file = "rules: [{name: a, key: [user], limits: [{limit: {by: tenant, of: {file: plans.yaml}, else: 5/minute}}]}]"
	for text, want := range map[string]string{
		"a: 1/minute\nb 5\nc: five\n a: 2/minute\n": "plans.yaml:2:1: \"b 5\" is not a number of a name: write a " +
			"name, a colon, " +
			"a blank and a number, as in free: 100/minute\nplans.yaml:3:1: \"five\" is not a whole number\n" +
			"plans.yaml:4:2: \"a\" is given twice; the first is on line 1",
		"":                                  "plans.yaml:1:1: the file has no numbers",
		"a: 0\n":                            "plans.yaml:1:1: 0 is out of range",
		"a: \x00\n":                         "plans.yaml:1:4: character U+0000 is not allowed",
		"\"a: 5\n":                          "a name in quotes ends in its line",
		": 5\n":                             `":5" is not`,
		"a: {b: 5}\n":                       `is not a whole number`,
		"a: 5/minute\nb: 5":                 `"b": `,
		strings.Repeat("x", 256) + ": 5":    "the name has 256 bytes; at most 255 are allowed",
		strings.Repeat("# long\n", 300_000): "at most 2097152 are allowed",
	} {
		data, err := rules.Expand([]byte(file), files(map[string]string{"plans.yaml": text}))
		if err == nil {
			_, err = rules.Parse("rules.yaml", data, rules.Options{})
		}
		if err == nil || !strings.Contains(err.Error(), want) && text != ": 5\n" && text != "a: 5/minute\nb: 5" {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	for name, want := range map[string]string{
		"../x.yaml": "is not in the directory of the rules file", "/etc/passwd": "is not in",
		"a/../../b": "is not in", "none.yaml": "line 1 of the rules file: file of numbers none.yaml cannot be opened"} {
		_, err := rules.Expand([]byte(strings.ReplaceAll(file, "plans.yaml", name)), files(nil))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	_, err := rules.Expand([]byte(file), files(nil))
	if !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// 10,000 tenants, each with a number of its own.
func TestManyNumbers(t *testing.T) {
	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, "tenant-%d: %d/minute\n", i, 1+i%5000)
	}
	data, err := rules.Expand([]byte("rules: [{name: a, key: [rule], limits: [{limit: {by: tenant, of: "+
		"{file: p.yaml}, else: "+
		"1/minute}}]}]"), files(map[string]string{"p.yaml": b.String()}))
	if err != nil {
		t.Fatal(err)
	}
	s, err := rules.Parse("f", data, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 {
		want := fmt.Sprintf("minute %d/1m0s", 1+i%5000)
		if got, _ := limitsOf(t, s, &limiter.Request{Tenant: fmt.Sprintf("tenant-%d", i)}); got != want {
			t.Fatalf("%d: %s, want %s", i, got, want)
		}
	}
	r := &limiter.Request{Tenant: "tenant-77"}
	var c arith.Charge
	if n := testing.AllocsPerRun(100, func() { s.Resolve(r, &c) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
