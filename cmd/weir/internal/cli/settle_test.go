package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// A reservation is made, explained, extended, settled and cancelled at a node, over gRPC and
// over HTTP, and each says what was done.
func TestReservations(t *testing.T) {
	at, err := time.Parse(time.RFC3339, noon)
	if err != nil {
		t.Fatal(err)
	}
	now := at
	node := frozen(t, func() time.Time { return now })
	overGRPC, overHTTP := serveNode(t, node)
	for name, server := range map[string]string{"ada": overGRPC, "eve": overHTTP} {
		for i, step := range []struct {
			args   string
			status int
			want   string
		}{
			{"check /steps --cost 3 --id 1 --hold 5m", 0, "allowed by rule steps\n"},
			{"check /steps --cost 3 --id 1 --hold 5m", 0, "its id was used before"},
			{"check /steps --cost 3 --id 2 --hold 5m", 3, "denied by steps/minute"},
			{"check /steps --cost 0 --explain", 0, "hold: 3 until 2026-01-02T12:05:00.000000Z, then given back"},
			{"extend /steps --id 1 --hold 6m --cost 4", 0, "extended by 6m0s, or what the rule allows; 4 are reserved\n"},
			{"extend /steps --id 1 --hold 6m --cost 6", 3, "denied: the reservation is as it was, retry in 1m10s\n"},
			{"settle /steps --id 1 --actual 1", 0, "settled: 1 of 4 were used, 3 came back\n"},
			{"settle /steps --id 1 --actual 1", 0, "it was settled with 1 before; nothing has changed\n"},
			{"settle /steps --id 1 --actual 2", 1, "the id stands for 1 units for good"},
			{"check /steps --cost 1 --id 3 --hold 5m", 0, "3 of 5 left"},
			{"settle /steps --id 3 --actual 9 --id-ttl 30s", 0,
				"settled: 9 were used, 8 more than reserved, 5 of them beyond a limit\n"},
			{"settle /steps --id 4 --actual 2 --if-unknown ignore", 0, "the id is not known; nothing has changed\n"},
			{"settle /steps --id 4 --actual 2", 0, "the id is not known, so 2 were charged, 2 of them beyond a limit\n"},
			{"check /towns --cost 2 --id 1 --hold 5m", 0, "0 of 2 left"},
			{"cancel /towns --id 1", 0, "settled: 0 of 2 were used, 2 came back\n"},
			{"check /towns --cost 0", 0, "2 of 2 left"},
			{"check /budget --attr tokens=4 --attr udollars=90 --id 5 --hold 5m", 0, "allowed"},
			{"settle /budget --id 5 --actual 3", 1, "the costs differ"},
			{"settle /budget --id 5 --actual tokens=3", 1, `rule "money" takes its cost from attribute "udollars"`},
			{"settle /budget --id 5 --actual tokens=7 --actual udollars=30", 0,
				"settled by what was used of each attribute; the first rule had reserved 90, 2 of them beyond a limit\n"},
			{"settle /budget --id 5 --actual tokens=7 --actual udollars=30", 0, "it was settled with the same before"},
			{"settle /budget --id 6 --actual tokens=1 --actual udollars=0", 0, "not known, so what was used was charged"},
			{"extend /towns --id 9 --hold 5m", 3, "the id is not known; nothing has changed\n"},
			{"cancel /towns --id 9", 0, "the id is not known; nothing has changed\n"},
		} {
			got := person{}.run(t, append(strings.Fields(step.args), "--user", name, "--server", server)...)
			if got.status != step.status || !strings.Contains(got.out+got.err, step.want) {
				t.Errorf("%s, %d: weir %s: %d %s%s, want %d %s", name, i, step.args, got.status, got.out, got.err, step.status,
					step.want)
			}
		}
	}
	if n := node.Stats().Holds; n != 0 {
		t.Errorf("%d holds are left", n)
	}
	for _, server := range []string{overGRPC, overHTTP} {
		got := person{}.run(t, "extend", "/plans", "--id", "7", "--hold", "1m", "--json", "--server", server)
		var out map[string]any
		if err := json.Unmarshal([]byte(got.out), &out); err != nil || got.status != 3 || out["state"] != "unknown" {
			t.Errorf("%+v", got)
		}
	}
}

// Under a rules file a reservation ends by the clock of the check.
func TestHoldUnderRules(t *testing.T) {
	rules := file(t, "rules.yaml", checkRules)
	got := person{}.run(t, "check", "/towns", "--user", "ada", "--rules", rules, "--at", noon, "--id", "7", "--hold",
		"100ms", "--times", "2", "--every", "100ms")
	if got.status != 0 || strings.Contains(got.out, "used before") || strings.Count(got.out, "1 of 2 left") != 2 {
		t.Errorf("%+v", got)
	}
}

// A command line that cannot settle says what is missing.
func TestBadReservations(t *testing.T) {
	for args, want := range map[string]string{
		"settle":                                                  "no path is given whose reservation to settle",
		"settle /a /b":                                            `one path at a time, but "/b" follows "/a"`,
		"settle /a --id 1 --actual 1":                             "no node is named that has the reservation: give --server",
		"cancel /a --server a:1":                                  "no reservation is named: give --id",
		"settle /a --server a:1 --id 1":                           "what was used is not given: give --actual UNITS",
		"settle /a --server a:1 --id 1 --actual x":                `--actual "x" is not a number of units`,
		"settle /a --server a:1 --id 1 --actual -1":               `--actual "-1" is not a number of units`,
		"settle /a --server a:1 --id 1 --actual t=x":              `--actual "t=x" is not a number of units`,
		"settle /a --server a:1 --id 1 --actual t=1 --actual 1":   `--actual "1" stands beside others`,
		"settle /a --server a:1 --id 1 --actual t=1 --actual t=2": `--actual says twice what was used of attribute "t"`,
		"extend /a --server a:1 --id 1":                           "extended by no time: give --hold",
		"extend /a --server a:1 --id 1 --hold 25h":                "--hold 25h0m0s is out of range: give 1ms to 24h0m0s",
		"check /a --server a:1 --hold 5s":                         "--hold needs --id",
		"cancel /a --server a:1 --id 1 --actual 1":                "there is no flag --actual",
		"reset /a":                               "no node is named: give --server http://",
		"reset /a --server a:1":                  `in place of "a:1"`,
		"settle /a --server a --id 1 --actual 1": "is no address",
		"settle /a --server a:1 --id 1 --actual 1 --if-unknown die": `--if-unknown "die" is not valid: give charge or ignore`,
	} {
		if got := (person{}).run(t, strings.Fields(args)...); got.status != ExitUsage || !strings.Contains(got.err, want) {
			t.Errorf("weir %s: %+v, want %s", args, got, want)
		}
	}
}
