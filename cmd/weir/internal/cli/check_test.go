package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/limiter"
)

const checkRules = `version: 1
quotas:
  - {name: units, key: [user], limits: [{limit: 1, calendar: day}]}
rules:
  - {name: free, match: {path: "^/free"}, unlimited: true}
  - name: towns
    match: {path: "^/towns"}
    limits: [{limit: 2, window: 1s, algorithm: fixed_window}, {limit: 3, window: 1m, algorithm: fixed_window}]
  - {name: plans, match: {path: "^/plans", group: staff, attributes: {plan: gold}}, limits: [{limit: 2, window: 1m, algorithm: fixed_window}]}
  - {name: daily, match: {path: "^/daily"}, limits: [{limit: 1, window: 24h, algorithm: fixed_window}]}
  - {name: money, continue: true, match: {path: ^/budget}, key: [user], limits: [{limit: 1000, window: 1h}],
    cost: {from: "attr:udollars"}}
  - {name: budget, match: {path: ^/budget}, key: [user], limits: [{limit: 5, window: 1h}], cost: {from: "attr:tokens"}}
  - {name: steps, match: {path: "^/steps"}, limits: [{limit: 5, window: 1m, algorithm: sliding_window, sub_windows: 6}]}
  - {name: login, match: {path: "^/login"}, limits: [{limit: 1, window: 1s, algorithm: fixed_window, block: 30s}]}
  - {name: shadowy, match: {path: "^/shadowy"}, limits: [{limit: 1, window: 1m, algorithm: fixed_window}], shadow: true}
  - {name: search, match: {path: "^/search"}, quotas: [units]}
  - {name: partners, match: {path: "^/partners"}, key: [user], limits: [{limit: 2, calendar: day, zone: "attr:tz"}]}
`

const noon = "2026-01-02T12:00:00Z"

func TestCheck(t *testing.T) {
	rules := file(t, "rules.yaml", checkRules)
	for name, c := range map[string]struct {
		args   string
		status int
		want   string
	}{
		"allowed": {"/towns --user ada", 0, `allowed by rule towns
  /towns:ada:second  towns/second  1 of 2 left, full again in 1s
  /towns:ada:minute  towns/minute  2 of 3 left, full again in 1m0s
`},
		"by address":  {"/towns --ip 10.0.0.1", 0, "/towns:10.0.0.1:second"},
		"peek":        {"/towns --user ada --cost 0", 0, "towns/minute  3 of 3 left\n"},
		"no rule":     {"/", 0, "allowed: no rule matches\n"},
		"unlimited":   {"/free", 0, "allowed by rule free, which has no limits\n"},
		"never":       {"/towns --cost 3 --user ada", 3, "denied by towns/second: it can never be allowed"},
		"other group": {"/plans --attr plan=gold", 0, "no rule matches"},
		"no attr":     {"/plans --group staff", 0, "no rule matches"},
		"other attr":  {"/plans --group staff --attr plan=tin", 0, "no rule matches"},
		"attr, group": {"/plans --group staff --attr plan=gold --attr x=y=z", 0, "allowed by rule plans"},
		"exhausted": {"/towns --user ada --times 3", 3, `denied by towns/second, retry in 1s
  /towns:ada:second  towns/second  0 of 2 left, full again in 1s; retry in 1s
  /towns:ada:minute  towns/minute  1 of 3 left, full again in 1m0s
`},
		"the clock moves": {"/towns --user ada --times 3 --every 500ms", 0,
			"check 3 at 2026-01-02T12:00:01.000000Z\nallowed by rule towns\n"},
		"the longer wait": {"/towns --user ada --times 4 --every 500ms", 3, "denied by towns/minute, retry in 58.5s\n"},
		"blocked": {"/login --user ada --times 3 --every 700ms", 3,
			"denied by login/second, retry in 29.3s\n  /login:ada:second  login/second  0 of 1 left, full again in 29.3s; " +
				"retry in 29.3s, blocked\n"},
		"shadow": {"/shadowy --user ada --times 2", 0,
			"allowed by rule shadowy; a shadow rule would deny it\n  /shadowy:ada:minute  shadowy/minute  0 of 1 left, full " +
				"again in 1m0s; retry in 1m0s, in shadow\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := person{}.run(t, append([]string{"check", "--rules", rules, "--at", noon}, strings.Fields(c.args)...)...)
			if got.status != c.status || got.err != "" || !strings.Contains(got.out, c.want) {
				t.Errorf("status %d, want %d\n%s%s", got.status, c.status, got.out, got.err)
			}
		})
	}
}

// A path without its slash is almost surely a slip.
func TestCheckOfAPathWithoutASlash(t *testing.T) {
	rules := file(t, "rules.yaml", checkRules)
	for path, want := range map[string]string{"towns": "did you mean /towns?", "/nothing": ""} {
		got := person{}.run(t, "check", path, "--user", "ada", "--rules", rules, "--at", noon)
		if got.status != 0 || got.out != "allowed: no rule matches\n" || !strings.Contains(got.err, want) ||
			want == "" && got.err != "" {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

// A3: groups have rules of their own, one without limits is unrestricted, and
// who names no group is in the group "default".
func TestCheckOfGroups(t *testing.T) {
	rules := file(t, "rules.yaml", `version: 1
rules:
  - {name: admins, match: {group: admin}, unlimited: true}
  - {name: others, match: {group: default}, limits: [{limit: 1, window: 1m, algorithm: fixed_window}]}
`)
	for _, c := range []struct {
		group  string
		status int
		want   string
	}{
		{"admin", 0, "allowed by rule admins, which has no limits\n"},
		{"", 3, "denied by others/minute"},
		{"default", 3, "denied by others/minute"},
		{"guests", 0, "allowed: no rule matches\n"},
	} {
		got := person{}.run(t, "check", "/", "--user", "ada", "--rules", rules, "--at", noon, "--times", "2", "--group",
			c.group)
		if got.status != c.status || !strings.Contains(got.out, c.want) {
			t.Errorf("group %q: %+v", c.group, got)
		}
	}
}

// Without --at it is now, and now does not move while checks are repeated.
func TestCheckIsNow(t *testing.T) {
	rules := file(t, "rules.yaml", checkRules)
	at, err := time.Parse(time.RFC3339, "2026-01-02T12:00:59.5Z")
	if err != nil {
		t.Fatal(err)
	}
	got := person{now: at, step: time.Hour}.run(t, "check", "--rules", rules, "/towns", "--user", "ada", "--times", "2")
	at = at.Add(time.Hour)
	if want := "check 2 at " + at.Format("2006-01-02T15:04:05.000000Z"); !strings.Contains(got.out, want) {
		t.Errorf("%q is not in:\n%s", want, got.out)
	}
	if !strings.Contains(got.out, "1 of 3 left, full again in 500ms\n") {
		t.Error(got.out)
	}
}

func TestCheckTimes(t *testing.T) {
	rules := file(t, "rules.yaml", checkRules)
	for _, at := range []string{
		"2026-01-02T12:00:00Z", "2026-01-02T12:00:00.000Z", "2026-01-02T14:30:00+02:30", "2026-01-02T12:00:00",
		"2026-01-02 12:00:00", "02/Jan/2026:12:00:00 +0000",
	} {
		got := person{}.run(t, "check", "/towns", "--rules", rules, "--at", at, "--times", "2")
		if !strings.Contains(got.out, "check 1 at 2026-01-02T12:00:00.000000Z") {
			t.Errorf("--at %q: %+v", at, got)
		}
	}
}

// E3: a day begins at midnight in UTC, whenever one asks.
func TestCheckOfADay(t *testing.T) {
	rules := file(t, "rules.yaml", checkRules)
	got := person{}.run(t, "check", "/daily", "--rules", rules, "--user", "ada", "--at", "2026-01-02T23:59:59Z", "--times",
		"2", "--every", "1s", "--explain")
	if got.status != 0 || !strings.Contains(got.out,
		"window: 2026-01-02T00:00:00.000000Z to 2026-01-03T00:00:00.000000Z") ||
		!strings.Contains(got.out, "window: 2026-01-03T00:00:00.000000Z to 2026-01-04T00:00:00.000000Z") {
		t.Errorf("%+v", got)
	}
}

func TestCheckJSON(t *testing.T) {
	rules := file(t, "rules.yaml", checkRules)
	got := person{}.run(t, "check", "/towns", "--user", "ada", "--rules", rules, "--at", noon, "--json")
	var one limiter.Answer
	if err := json.Unmarshal([]byte(got.out), &one); err != nil || got.status != 0 {
		t.Fatalf("%v: %+v", err, got)
	}
	if !one.Allowed || one.Rule != "towns" || one.Source != "owner" || len(one.Limits) != 2 ||
		one.Limits[1].Remaining != 2 ||
		one.Limits[1].Key != "/towns:ada:minute" || one.Limits[1].ResetAfterMs != 60_000 {
		t.Errorf("%+v", one)
	}
	got = person{}.run(t, "check", "/towns", "--user", "ada", "--rules", rules, "--at", noon, "--json", "--times", "3")
	var all []limiter.Answer
	if err := json.Unmarshal([]byte(got.out), &all); err != nil || got.status != 3 || len(all) != 3 {
		t.Fatalf("%v: %+v", err, got)
	}
	if last := all[2]; last.Allowed || last.BlockedBy != "towns/second" || last.RetryAfterMs == nil ||
		*last.RetryAfterMs != 1000 {
		t.Errorf("%+v", all[2])
	}
}

// A10: a decision can be followed step by step: each key, its state, and the
// comparison that decides.
func TestCheckExplain(t *testing.T) {
	rules := file(t, "rules.yaml", checkRules)
	got := person{}.run(t, "check", "/towns", "--user", "ada", "--rules", rules, "--at", noon, "--times", "3", "--explain")
	want := `check 3 at 2026-01-02T12:00:00.000000Z
/towns:ada:second  towns/second  fixed_window 2/second
  count: 2
  window: 2026-01-02T12:00:00.000000Z to 2026-01-02T12:00:01.000000Z
  2026-01-02T12:00:00.000000Z  2
  2 counted + 1 <= 2: no
/towns:ada:minute  towns/minute  fixed_window 3/minute
  count: 2
  window: 2026-01-02T12:00:00.000000Z to 2026-01-02T12:01:00.000000Z
  2026-01-02T12:00:00.000000Z  2
  2 counted + 1 <= 3: yes
denied by towns/second, retry in 1s
`
	if got.status != 3 || !strings.Contains(got.out, want) {
		t.Errorf("status %d\n%s", got.status, got.out)
	}
	if first, _, _ := strings.Cut(got.out, "denied"); strings.Count(first, "nothing counted yet") != 2 {
		t.Errorf("the first check does not say that nothing is counted yet:\n%s", got.out)
	}
}

// A10: the same for programs, with the answer that the check was given.
func TestCheckExplainJSON(t *testing.T) {
	rules := file(t, "rules.yaml", checkRules)
	got := person{}.run(t, "check", "/towns", "--user", "ada", "--rules", rules, "--at", noon, "--explain", "--json")
	var e limiter.Explanation
	if err := json.Unmarshal([]byte(got.out), &e); err != nil || got.status != 0 {
		t.Fatalf("%v: %+v", err, got)
	}
	if len(e.Limits) != 2 || e.Limits[1].Key != "/towns:ada:minute" ||
		e.Limits[1].Arithmetic != "0 counted + 1 <= 3: yes" ||
		!e.Answer.Allowed || e.Answer.Limits[1].Remaining != 2 {
		t.Errorf("%+v", e)
	}
}

// B8: the counts of the current sub-windows, for graphs.
func TestCheckExplainSubWindows(t *testing.T) {
	rules := file(t, "rules.yaml", checkRules)
	got := person{}.run(t, "check", "/steps", "--user", "ada", "--rules", rules, "--at", noon, "--times", "4", "--every",
		"9s", "--explain", "--json")
	var all []limiter.Explanation
	if err := json.Unmarshal([]byte(got.out), &all); err != nil || len(all) != 4 {
		t.Fatalf("%v: %+v", err, got)
	}
	var counts []string
	for _, c := range all[3].Limits[0].Counts {
		if c.Count > 0 {
			counts = append(counts, fmt.Sprintf("%s %d", c.Start.Time().Format("05"), c.Count))
		}
	}
	if got := strings.Join(counts, ", "); got != "00 2, 10 1" {
		t.Errorf("counts by sub-window: %s", got)
	}
}

func TestCheckColours(t *testing.T) {
	rules := file(t, "rules.yaml", checkRules)
	got := person{screen: term.Style{Terminal: true, Color: true, Width: 80}}.run(t, "check", "/towns", "--rules", rules,
		"--user", "a\x1b[2J", "--times", "3", "--explain")
	if !strings.Contains(got.out, "\x1b[32mallowed\x1b[0m by") || !strings.Contains(got.out, "\x1b[31mdenied\x1b[0m by") ||
		strings.Contains(got.out, "\x1b[2J") {
		t.Errorf("%q", got.out)
	}
}

// TestDryRunsHaveADefaultTable: a rule with a small share of the table (max_share) is not
// denied by check and replay for lack of room, since a node with default options has room.
func TestDryRunsHaveADefaultTable(t *testing.T) {
	rules := file(t, "rules.yaml", `version: 1
rules:
  - {name: window, match: {path: "^/towns"}, key: [user], limits: [{limit: 100, window: 1m, algorithm: fixed_window}, 1000/hour], max_share: 0.1%}
  - {name: log, match: {path: "^/log"}, key: [user], limits: [{limit: 100, window: 1m, algorithm: sliding_log}, 1000/hour], max_share: 0.1%}
`)
	for _, path := range []string{"/towns", "/log"} {
		got := person{}.run(t, "check", "--rules", rules, "--at", noon, "--times", "9", "--user", "ada", path)
		if got.status != 0 || !strings.Contains(got.out, "91 of 100 left") {
			t.Errorf("check %s: %+v", path, got)
		}
		var log strings.Builder
		for i := range 50 {
			log.WriteString(logLine(fmt.Sprint("user-", i), 1, path))
		}
		got = person{stdin: log.String()}.run(t, "replay", "--rules", rules, "-")
		if got.status != 0 || !strings.Contains(got.out, "allowed\t50\n") {
			t.Errorf("replay %s: %+v", path, got)
		}
	}
}

// What is shown of a bucket is its burst; a quota's denial names the rule that draws; a time
// zone that is none is told.
func TestCheckTellsWhatCanBeChecked(t *testing.T) {
	rules := file(t, "rules.yaml", `version: 1
quotas:
  - {name: units, key: ["attr:customer"], limits: [{limit: 12, window: 1h, algorithm: fixed_window}]}
rules:
  - {name: bucket, match: {path: "^/bucket"}, key: [user], limits: [{limit: 30, window: 1m, algorithm: token_bucket, burst: 20}]}
  - {name: search, match: {path: "^/search", attributes: {customer: }}, quotas: [{name: units, cost: 5}]}
  - {name: zoned, match: {path: "^/zoned"}, key: [user], limits: [{limit: 5, calendar: day, zone: "attr:tz"}]}
  - {name: trial, match: {path: "^/trial"}, key: [user], limits: [1/hour], shadow: true, continue: true}
  - {name: real, match: {path: "^/trial"}, key: [user], limits: [9/hour]}
`)
	for args, want := range map[string]string{
		"/bucket --user ada --cost 21": "  ada:minute  bucket/minute  20 of 20 left; never\n",
		"/search --attr customer=acme --times 3": "denied by units/hour, a quota on which rule search draws, retry in " +
			"1h0m0s\n",
		"/zoned --user ada --attr tz=Europe/Berln": "  zoned is counted by its default time zone, since the attribute of " +
			"the request names none of the time zone database\n",
		"/trial --user ada --times 2": "allowed by rule real; a shadow rule would deny it\n",
	} {
		got := person{}.run(t, append([]string{"check", "--rules", rules, "--at", noon}, strings.Fields(args)...)...)
		if got.err != "" || !strings.Contains(got.out, want) {
			t.Errorf("%s: %s%s\nwant %s", args, got.out, got.err, want)
		}
	}
}

// Warnings are shown beside errors, with their own lines.
func TestValidateWarnsBesideErrors(t *testing.T) {
	rules := file(t, "rules.yaml", `version: 1
rules:
  - {name: a, key: [user], limits: [5/month]}
  - {name: b, key: [usr], limits: [5/month]}
`)
	got := person{}.run(t, "validate", rules)
	if got.status != 1 || !strings.Contains(got.err, ":4:21: unknown part of a key") ||
		strings.Count(got.err, "warning: a window of a month") != 1 || !strings.Contains(got.err, ":3:37: warning") {
		t.Errorf("%d %s", got.status, got.err)
	}
}

// Where an override decides, the rule is not said to.
func TestCheckSaysThatAnOverrideDecides(t *testing.T) {
	for want, a := range map[string]limiter.Answer{
		"denied by an override of rule api, with status 429": {Rule: "api", Overridden: true,
			Deny: &limiter.Denial{Status: 429}},
		"allowed by an override of rule api, without a limit": {Rule: "api", Overridden: true, Allowed: true},
		"denied by rule api, which denies each request that it matches, with status 403": {Rule: "api",
			Deny: &limiter.Denial{Status: 403}},
	} {
		if got := new(checkWriter).verdict(&a); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
