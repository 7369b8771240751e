package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const examplesDir = "../../../../examples"

// The tests beside the examples pass.
func TestExamplesPass(t *testing.T) {
	names, err := filepath.Glob(examplesDir + "/tests/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		got := person{}.run(t, "test", name)
		if got.status != 0 || !strings.Contains(got.out, ": OK: ") || got.err != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Each mistake in a rules file fails its tests, with a line that says what happens and what is wanted.
func TestPlantedMistakesFail(t *testing.T) {
	right, err := os.ReadFile(examplesDir + "/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"a pattern without the slash", `^/login/?$`, `^/login$`,
			`test "a password cannot be guessed from one address", step 3 at 2026-01-01 12:00:09: POST /login/ user ` +
				`bob from 192.0.2.1 is allowed, since no rule matches it; want denied`},
		{"another method", "[POST]", "[GET]", `step 1 at 2026-01-01 12:00:00: request 1 of 10, POST /login user ` +
			`ada from 192.0.2.1, is decided by no rule; want rule "login"`},
		{"one key of both", "keys: [[ip], [user]]", "key: [ip, user]", `step 2 at 2026-01-01 12:00:09: POST ` +
			`/login user bob from 192.0.2.1 is allowed by rule "login" with 9 of 10 a minute left; want denied`},
		{"a digit too many", "{limit: 10,", "{limit: 100,", `is allowed by rule "login" with 89 of 100 a minute left, ` +
			`99 of 100 a minute left; want denied`},
		{"another window", "window: 1m", "window: 1h", `POST /login user bob from 192.0.2.1 is to wait ` +
			`59m51s; want 51s`},
		{"left in shadow", "keys: [[ip], [user]]", "keys: [[ip], [user]]\n    shadow: true",
			`is allowed by rule "login"; a rule in shadow would deny it; want denied`},
		{"else is the best plan", "else: 10/minute", "else: 1000/minute", `test "who has no plan, or an unknown one, has ` +
			`little", step 1 at 2026-01-01 12:00:00: request 11 of 11, GET /api/orders user eve, is allowed by rule "api" ` +
			`with 989 of 1000 a minute left; want the first 10 allowed and the others denied`},
		{"another attribute", "attr:plan", "attr:Plan", `request 11 of 120, GET /api/orders user ada plan=free, is ` +
			`denied by rule "api", limit "minute" of 10, for 1m0s; want the first 100 allowed and the others denied`},
		{"the opposite network", "not_ip:", "ip:", `GET /admin/users from 192.0.2.1 is allowed, since no rule ` +
			`matches it; want denied`},
		{"a change is as cheap as a look", "cost: 20", "cost: 2", `request 6 of 6, POST /api/orders/7 user ada ` +
			`plan=free, is allowed by rule "api" with 88 of 100 a minute left; want the first 5 allowed and the others denied`},
		{"one counter for all", "key: [rule, user]", "key: [rule]", `step 2 at 2026-01-01 12:00:00: request 1 of ` +
			`11, GET /api/orders user mallory plan=platinum, is denied by rule "api"`},
		{"probes are limited", "unlimited: true", "limits: [100/minute]", `request 101 of 1000, GET /health from ` +
			`192.0.2.1, is denied by rule "health", limit "minute" of 100, for`},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrong := strings.Replace(string(right), c.old, c.new, 1)
			if wrong == string(right) {
				t.Fatalf("%q is not in the file", c.old)
			}
			got := person{}.run(t, "test", "--rules", file(t, "shop.yaml", wrong), examplesDir+"/tests/shop.yaml")
			if got.status != 1 || !strings.Contains(got.out, c.want) ||
				!strings.Contains(got.out, "tests/shop.yaml: FAILED: ") {
				t.Errorf("status %d, %s%s\nwant a line with %s", got.status, got.out, got.err, c.want)
			}
		})
	}
}

func TestTestsOfNothing(t *testing.T) {
	rules := file(t, "rules.yaml", townRules)
	const step = "tests: [{name: a, steps: [{"
	for text, want := range map[string]string{
		"":                   ":1:1: the file is empty",
		"tests: [":           ":1:8: YAML cannot be read",
		"rules: x":           `the file has no tests: add "tests:"`,
		"tests: [{name: a}]": `:1:9: this test has no steps`,
		"tests: [{steps: [{path: /a, expect: allowed}]}]":                      `this test has no name`,
		step + "path: /a}]}]":                                                  `:1:27: this step expects nothing`,
		step + "path: /a, expect: yes}]}]":                                     `expect: "yes" is neither`,
		step + "path: /a, expct: allowed, expect: denied}]}]":                  `"expct" (in a step); did you mean "expect"?`,
		step + "path: /a, times: 3, allow_first: 4}]}]":                        `allow_first is 4, and there are 3 requests`,
		step + "path: /a, after: soon, expect: denied}]}]":                     `"soon" is not a duration such as 30s`,
		step + "path: /a, times: 2000000, expect: denied}]}]":                  `"2000000" is not a whole number`,
		"tests: [{name: a, start: noon, steps: [{path: /a, expect: denied}]}]": `"noon" is not a time after 1970`,
		step + "path: /a, expect: allowed, retry_after: 3s}]}]":                `"retry_after" is of a request that`,
		step + "path: /towns, user: a, cost: 9, expect: allowed}]}]":           `costs more than limit "minute" admits, 2`,
		step + "path: /towns, ip: x, expect: allowed}]}]":                      `is an error: invalid`,
		step + "path: /none, expect: allowed, remaining: 1}]}]":                `is counted by no limit; want 1 remaining`,
		"tests: " + strings.Repeat("[", 100):                                   "nested more than 16 levels deep",
	} {
		got := person{}.run(t, "test", "--rules", rules, file(t, "t.yaml", text))
		if got.status != 1 || !strings.Contains(got.out+got.err, want) {
			t.Errorf("%s: %+v, want %q", text, got, want)
		}
	}
	good := file(t, "t.yaml", step+"path: /towns, user: a, times: 3, allow_first: 2}]}]")
	if got := (person{}).run(t, "test", good); got.status != 1 || !strings.Contains(got.out, `the tests name no rules`) {
		t.Errorf("%+v", got)
	}
	if got := (person{}).run(t, "test", "--rules", rules+".none", good); got.status != 1 || got.err == "" {
		t.Errorf("%+v", got)
	}
	got := person{}.run(t, "test", "--json", "--rules", rules, good)
	var f testedFile
	if err := json.Unmarshal([]byte(got.out), &f); err != nil || got.status != 0 || !f.Passed || f.Tests != 1 ||
		f.Requests != 3 {
		t.Errorf("%v, %+v, %+v", err, f, got)
	}
}

// A check that a node refuses, since its id is that of a reservation which is over, is a problem of its step, and the
// other tests are made.
func TestAnIDThatIsOverFailsItsStep(t *testing.T) {
	rules := file(t, "rules.yaml", "rules:\n- {name: answers, key: [user], limits: [{name: slots, limit: 2, "+
		"algorithm: concurrency}, 9/hour], hold: 1s, on_expiry: keep}\n")
	got := person{}.run(t, "test", "--rules", rules, file(t, "t.yaml", `
tests:
  - name: again
    with: {path: /, user: ada}
    steps: [{id: a, expect: allowed}, {id: a, after: 5s, expect: allowed}]
  - {name: other, steps: [{path: /, user: ada, id: a, expect: denied}]}
`))
	for _, want := range []string{`t.yaml:5:39: test "again", step 2 at`, "is an error: the request is settled",
		`t.yaml:6:27: test "other", step 1`, "FAILED: 2 problems"} {
		if got.status != 1 || !strings.Contains(got.out, want) {
			t.Errorf("%q is not in %+v", want, got)
		}
	}
}
