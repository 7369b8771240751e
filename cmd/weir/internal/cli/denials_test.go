package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/console"
	"github.com/weirlimit/weir/internal/denials"
	"github.com/weirlimit/weir/internal/overrides"
	"github.com/weirlimit/weir/transport"
)

// watched is the administration of a node that remembers what it was asked.
type watched struct {
	asked []string
	sent  []string
	keys  []denials.Key
}

func (n *watched) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	n.asked, n.sent = append(n.asked, r.URL.String()), append(n.sent, string(body))
	at := time.Date(2026, 3, 1, 10, 32, 0, 0, time.UTC)
	var out any
	switch r.URL.Path {
	case "/v1/denials":
		out = console.Denied{Keys: n.keys, Since: at, Missing: []console.Missing{{Member: "n3", Why: "it is dead"}},
			Members: []console.Knows{{Member: "n1", Began: at.Add(time.Hour)}}}
	case "/v1/rules":
		out = console.Rules{Rules: []console.RuleLine{{Name: "login", Line: 3, Limits: []string{"minute: 5/minute"}}},
			Members: []console.InForce{{Member: "n1", Hash: "aa", Since: at, Changed: []string{"login changed"}}},
			File:    "version: 1\n"}
	case "/v1/top":
		out = struct{ Hottest, Denied []transport.TopKey }{}
	default:
		out = console.Overrides{Overrides: []overrides.Entry{{Rule: "login", User: "ada", Deny: true, Why: "abuse",
			Until: at}}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

func watch(t *testing.T, keys ...denials.Key) (*watched, string) {
	t.Helper()
	n := &watched{keys: keys}
	s := httptest.NewServer(n)
	t.Cleanup(s.Close)
	return n, strings.TrimPrefix(s.URL, "http://")
}

func refusedAda() denials.Key {
	at := time.Date(2026, 3, 1, 10, 32, 4, 0, time.UTC)
	return denials.Key{Key: "ada:minute", Rule: "login", Limit: "minute", Count: 214, First: at, Last: at,
		Samples: []denials.Taken{
			{Time: at, Sample: denials.Sample{User: "ada\x1b[31m", Path: "/log'in", Method: "POST", Cost: 1, RetryAfterMs: 8200,
				Source: "owner", Over: "http"}}}}
}

func TestDenialsTellWhy(t *testing.T) {
	n, at := watch(t, refusedAda())
	status, out, errs := runAs(t, "denials", "--server", at, "--user", "ada", "--since", "10:30", "--until", "10:35")
	for _, want := range []string{"ada:minute was refused 214 times by login/minute", "10:32:04", "free again in 8.2s",
		"n3 is missing, as it is dead", "n1 remembers only since"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("status %d, %q lacks %q %s", status, out, want, errs)
		}
	}
	if strings.Contains(out, "\x1b[31m") {
		t.Error("a name has an effect on the terminal")
	}
	if len(n.asked) != 1 || !strings.Contains(n.asked[0], "user=ada") || !strings.Contains(n.asked[0], "since=10%3A30") {
		t.Errorf("asked was %q", n.asked)
	}
	if status, _, _ := runAs(t, "denials", "--server", at, "--user", "ada", "--at", "10:32"); status != 0 ||
		!strings.Contains(n.asked[1], "until=") {
		t.Errorf("--at: %d %q", status, n.asked)
	}
	_, empty := watch(t)
	if status, out, _ := runAs(t, "denials", "--server", empty); status != 3 || !strings.Contains(out,
		"no denial is known") {
		t.Errorf("without one: %d %q", status, out)
	}
	for _, args := range [][]string{{"-n", "0"}, {"--at", "10:32", "--since", "1h"}, {"--at", "soon"}, {"x"}} {
		if status, _, _ := runAs(t, append([]string{"denials", "--server", at}, args...)...); status != 1 && status != 2 {
			t.Errorf("%q: %d", args, status)
		}
	}
}

func TestTopNamesRuleAndReason(t *testing.T) {
	_, at := watch(t, refusedAda())
	status, out, errs := runAs(t, "top", "--server", at)
	for _, want := range []string{"ada:minute", "login/minute", "214", "10:32:04", `weir check '/log'\''in'`,
		"--explain"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("status %d, %q lacks %q %s", status, out, want, errs)
		}
	}
}

func TestOverrideCommands(t *testing.T) {
	n, at := watch(t)
	status, out, errs := runAs(t, "override", "set", "--server", at, "--rule", "login", "--user", "ada", "--deny",
		"--for", "2h", "--why",
		"abuse")
	if status != 0 || !strings.Contains(out, "deny") || n.asked[0] != "/v1/overrides/set" ||
		n.sent[0] != `{"rule":"login","user":"ada","deny":true,"for":"2h0m0s","why":"abuse"}` {
		t.Errorf("set: %d %q %s, sent %q", status, out, errs, n.sent)
	}
	if status, out, _ := runAs(t, "override", "list", "--server", at); status != 0 || !strings.Contains(out, "ada") {
		t.Errorf("list: %d %q", status, out)
	}
	if status, _, _ := runAs(t, "override", "remove", "--server", at, "--rule", "login", "--user", "ada"); status != 0 ||
		n.asked[2] != "/v1/overrides/remove" {
		t.Errorf("remove: %d %q", status, n.asked)
	}
	for name, args := range map[string][]string{
		"no user": {"--rule", "login", "--deny", "--why", "x"}, "no kind": {"--rule", "login", "--user", "a", "--why", "x"},
		"two kinds": {"--rule", "login", "--user", "a", "--deny", "--unlimited", "--why", "x"},
		"no reason": {"--rule", "login", "--user", "a", "--deny"},
		"for ever":  {"--rule", "login", "--user", "a", "--deny", "--why", "x", "--for", "9000h"},
	} {
		if status, _, _ := runAs(t, append([]string{"override", "set", "--server", at}, args...)...); status != 1 &&
			status != 2 {
			t.Errorf("%s: %d", name, status)
		}
	}
	if len(n.asked) != 3 {
		t.Errorf("what is not valid was asked: %q", n.asked)
	}
}

func TestRulesCommand(t *testing.T) {
	_, at := watch(t)
	status, out, errs := runAs(t, "rules", "--server", at)
	for _, want := range []string{"login", "5/minute", "n1 has version aa since 2026-03-01 10:32:00 UTC", "login changed",
		"do not have the same rules"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("status %d, %q lacks %q %s", status, out, want, errs)
		}
	}
	if _, out, _ := runAs(t, "rules", "--server", at, "--file"); out != "version: 1\n" {
		t.Errorf("the file is %q", out)
	}
}
