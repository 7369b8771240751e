package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/rules"
)

// The work for warnings is bounded by what the patterns take, not by the number of pairs:
// the file has few rules, and each match takes ten million steps. What could not be looked
// at is said, and strict does not refuse it.
func TestWorkForWarningsIsBounded(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("one caller, many times slower under the race detector; make wire runs it")
	}
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range 30 {
		fmt.Fprintf(&b, "- {name: slow%d, match: {path: '^/%s%dz'}, key: [user], limits: [5/second]}\n", i,
			strings.Repeat(".{0,900}", 9), i)
	}
	for i := range 30 {
		fmt.Fprintf(&b, "- {name: long%d, match: {path: '^/%s%02dz(a|b|c|d|e|f|g)$'}, key: [user], limits: [5/second]}\n", i,
			strings.Repeat("z", 900), i)
	}
	s := mustSet(t, b.String(), rules.Options{Strict: true})
	w := s.Warnings()
	if len(w) != 1 || !w[0].Incomplete || !strings.Contains(w[0].Text, "some warnings may be missing") || s.Doubtful() {
		t.Errorf("%+v", w)
	}
}

// So is the work for warnings about the costs of one rule.
func TestWorkForCostsIsBounded(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("one caller, many times slower under the race detector; make wire runs it")
	}
	var b strings.Builder
	b.WriteString("rules:\n- {name: a, key: [user], limits: [500/second], cost: [")
	for i := range 30 {
		fmt.Fprintf(&b, "{path: '^/%s%dz', cost: 2}, {path: '^/%s%02dz(a|b|c|d|e|f|g)$', cost: 3}, ",
			strings.Repeat(".{0,900}", 9), i, strings.Repeat("z", 900), i)
	}
	w := warningsOf(t, b.String()+"{cost: 1}]}\n")
	if len(w) != 1 || !w[0].Incomplete || w[0].Rule != "a" {
		t.Errorf("%+v", w)
	}
}

// Files with many rules, as people write them, are looked at in full.
func TestLargeFilesAreLookedAtInFull(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("one caller, many times slower under the race detector; make wire runs it")
	}
	w := warningsOf(t, "rules:\n"+many(1000,
		"- {name: a%[1]d, match: {path: '^/towns/%[1]d/[a-z]+/?$', method: [GET, PUT]}, key: [user], limits: [5/second]}\n")+
		"- {name: last, match: {path: '^/towns/7/x/?$', method: GET}, key: [user], limits: [5/second]}\n")
	if len(w) != 1 || w[0].Rule != "last" || w[0].Incomplete {
		t.Errorf("%+v", w)
	}
}

// A client names any host, so a limit by host needs one for the others.
func TestLimitsByHostNeedOneForOtherHosts(t *testing.T) {
	const api = "- {name: a, match: {host: api.example.com, path: ^/v1}, key: [user], limits: [5/second]}\n"
	for more, warned := range map[string]bool{
		"": true,
		"- {name: b, match: {path: ^/v2}, key: [user], limits: [9/second]}":                                          true,
		"- {name: b, match: {host: b.example.com}, key: [user], limits: [9/second]}":                                 true,
		"- {name: b, match: {path: ^/v1}, unlimited: true}":                                                          true,
		"- {name: b, match: {path: ^/v1}, key: [user], limits: [9/second], shadow: true, continue: true}":            true,
		"- {name: b, match: {path: ^/v}, key: [user], limits: [9/second]}":                                           false,
		"- {name: other_hosts, match: {path: ^/v2}, key: [user], limits: [9/second]}":                                true,
		"- {name: b, key: [user], limits: [9/second]}":                                                               false,
		"- {name: c, match: {host: '*.b'}, key: [ip], limits: [1/hour]}\n- {name: b, limits: [9/second], key: [ip]}": false,
	} {
		for _, file := range []string{"rules:\n" + api + more, "rules:\n" +
			strings.Replace(api, "host:", "not_host:", 1) + more} {
			w := warningsOf(t, file)
			if got := len(w) > 0; got != warned || got && (w[0].Rule != "a" ||
				!strings.Contains(w[0].Text, "a client can name any host")) {
				t.Errorf("%s: %+v", file, w)
			}
			if warned {
				if w := warningsOf(t, file+"\n"+w[0].Instead+"\n"); len(w) > 0 {
					t.Errorf("with the rule to write: %+v", w)
				}
			}
		}
	}
	for _, file := range []string{
		"- {name: c, key: [rule], limits: [900/second], continue: true}\n" + api, // limits all hosts
		strings.Replace(api, "key: [user], limits: [5/second]", "unlimited: true", 1),
	} {
		if w := warningsOf(t, "rules:\n"+file); len(w) > 0 {
			t.Errorf("%s: %+v", file, w)
		}
	}
}
