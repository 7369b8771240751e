package cli

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/limiter"
)

const redisRules = `version: 1
rules:
  - {name: towns, match: {path: "^/towns"}, limits: [{limit: 2, window: 10m, algorithm: token_bucket}, {limit: 9, window: 20m, algorithm: sliding_log}]}
`

// A10, A11: a decision in Redis is explained with the exact EVAL and its
// arguments, which decides the same in a shell.
func TestCheckRedis(t *testing.T) {
	rules := file(t, "rules.yaml", redisRules)
	password := file(t, "password", "open sesame\n")
	socket := redistest.Start(t, "--requirepass", "open sesame").Socket
	args := []string{"check", "/towns", "--user", "ada", "--rules", rules, "--redis-addr", socket, "--redis-db", "2",
		"--redis-password-file", password}
	got := person{}.run(t, append(args, "--explain")...)
	for _, want := range []string{"nothing counted yet", "tokens 2 >= 1", "redis-cli -s '" + socket + "' -n 2 EVAL '",
		"allowed by rule towns"} {
		if got.status != 0 || !strings.Contains(got.out, want) {
			t.Errorf("status %d, %q is not in\n%s%s", got.status, want, got.out, got.err)
		}
	}
	got = person{}.run(t, append(args, "--explain", "--json")...)
	var e limiter.Explanation
	if err := json.Unmarshal([]byte(got.out), &e); err != nil || len(e.Commands) != 1 || len(e.Limits[1].Counts) != 1 ||
		e.Answer.Source != "redis" {
		t.Fatalf("%v: %+v", err, got)
	}
	shell := exec.Command("sh", "-c", e.Commands[0])
	shell.Env = append(shell.Environ(), "REDISCLI_AUTH=open sesame")
	out, err := shell.CombinedOutput()
	if numbers := strings.Fields(string(out)); err != nil || len(numbers) != 7 || numbers[1] != "0" {
		t.Errorf("the third decision, by a shell: %v\n%s", err, out) // the first limit denies: no flags, nothing left
	}
	if got := (person{}).run(t, args...); got.status != 3 || !strings.Contains(got.out, "denied by towns/10m") {
		t.Errorf("%+v", got)
	}
	if got := (person{}).run(t, append(args, "--cluster-name", "other")...); got.status != 0 {
		t.Errorf("nodes of another name count for themselves: %+v", got)
	}
}

func TestCheckRedisBadInput(t *testing.T) {
	rules := file(t, "rules.yaml", redisRules)
	socket := redistest.Start(t, "--requirepass", "secret").Socket
	none := filepath.Join(t.TempDir(), "none")
	for name, c := range map[string]struct {
		args   string
		status int
		want   string
	}{
		"and a node":    {"--server a:1 --rules " + rules, 2, "either Redis decides or a node does"},
		"without rules": {"", 2, "no rules are named: Redis has counters, but no rules"},
		"at":            {"--at 2026-01-01 --rules " + rules, 2, "Redis decides by its own clock"},
		"no password":   {"--rules " + rules, 1, socket + " refuses it: NOAUTH"},
		"password file": {"--redis-password-file " + none + " --rules " + rules, 1,
			"password file " + none + " cannot be opened: no such file"},
		"secret file": {"--secret-file " + none + " --rules " + rules, 1,
			"secret file " + none + " cannot be opened: no such file"},
		"database": {"--redis-db -1 --rules " + rules, 1, "database -1"},
		"too long": {"--redis-password-file " + file(t, "p", "secret") + " --user " +
			strings.Repeat("x", limiter.MaxFieldBytes+1) + " --rules " + rules, 1, "8192"},
	} {
		t.Run(name, func(t *testing.T) {
			got := person{}.run(t, append([]string{"check", "/towns", "--redis-addr", socket}, strings.Fields(c.args)...)...)
			if got.status != c.status || got.out != "" || !strings.Contains(got.err, c.want) {
				t.Errorf("status %d, want %d, with %q: %s%s", got.status, c.status, c.want, got.out, got.err)
			}
		})
	}
	got := person{}.run(t, "check", "/towns", "--redis-addr", none, "--rules", rules)
	if got.status != 2 || !strings.Contains(got.err, "redis "+none+" cannot be used: ") {
		t.Errorf("%+v", got)
	}
}
