package weir_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// Warnings about rules are logged when they come into force, at Open and later, with
// their position and the line to write. Of those that were logged before, the number is.
func TestWarningsOfRulesAreLogged(t *testing.T) {
	var log bytes.Buffer
	const bad = "version: 1\nrules:\n  - {name: towns, match: {path: \"^/towns\"}, limits: [5/second]}\n"
	n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(bad), RulesName: "r.yaml",
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	logs := func(what string, want ...string) {
		t.Helper()
		for _, w := range want {
			if got := log.String(); strings.Count(got, w) != 1 {
				t.Errorf("%s: the log lacks %s: %s", what, w, got)
			}
		}
		log.Reset()
	}
	logs("at Open", "level=WARN", "file=r.yaml", "line=3", "column=33", "rule=towns", `instead="key: [rule, user]"`)
	moved := strings.Replace(bad, "rules:\n",
		"rules:\n  - {name: villages, match: {path: \"^/villages\"}, limits: [5/second]}\n", 1)
	for _, c := range []struct {
		rules string
		want  []string
	}{{bad, []string{"level=WARN", "mistakes=1"}}, {moved, []string{"mistakes=1", "line=3", "rule=villages"}}} {
		if err := n.SetRules([]byte(c.rules)); err != nil {
			t.Fatal(err)
		}
		logs("at SetRules", c.want...)
	}
	if err := n.SetRules([]byte(bad)); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	if err := n.SetRules([]byte(strings.Replace(bad, "limits", "key: [path, user], limits", 1))); err != nil ||
		log.Len() > 0 {
		t.Errorf("a key that is given: %v, logged %s", err, log.String())
	}
}

// With StrictRules a file with warnings is refused, at Open and later, and the old rules
// stay. Without it the node has the warnings.
func TestStrictRules(t *testing.T) {
	const good = "rules:\n- {name: a, key: [rule, user], limits: [5/second]}\n"
	const odd = "rules:\n- {name: a, key: [rule, user], limits: [5/second, 5000/minute]}\n"
	if _, err := weir.Open(t.Context(), weir.Config{Rules: []byte(odd), StrictRules: true}); !errors.Is(err,
		weir.ErrInvalid) {
		t.Errorf("Open: %v", err)
	}
	n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(good), RulesName: "r.yaml", StrictRules: true})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	hash := n.RulesHash()
	if err := n.SetRules([]byte(odd)); !errors.Is(err, weir.ErrInvalid) ||
		!strings.Contains(err.Error(), "r.yaml:2:51: ") || n.RulesHash() != hash {
		t.Errorf("SetRules: %v, hash %x", err, n.RulesHash())
	}
	lax, err := weir.Open(t.Context(), weir.Config{Rules: []byte(good)})
	if err != nil {
		t.Fatal(err)
	}
	defer lax.Close()
	if err := lax.SetRules([]byte(odd)); err != nil {
		t.Fatal(err)
	}
	if w := lax.Rules()[0].Warnings; len(w) != 1 || w[0].Line != 2 || w[0].Column != 51 || w[0].Instead != "304/minute" {
		t.Errorf("%+v", w)
	}
}

// A file that was cut off may be valid: rules that are gone are named.
func TestRulesThatVanishAreLogged(t *testing.T) {
	var log bytes.Buffer
	file := func(from, to int) []byte {
		text := "version: 1\nrules:\n"
		for i := from; i < to; i++ {
			text += fmt.Sprintf("  - {name: rule-%d, match: {method: M%d}, key: [ip], limits: [1/second]}\n", i, i)
		}
		return []byte(text)
	}
	n, err := weir.Open(t.Context(), weir.Config{Rules: file(0, 3), RulesName: "r.yaml",
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for _, row := range []struct {
		from, to int
		want     string
	}{
		{0, 3, ""}, {0, 5, ""}, {0, 2, `gone=3 names="[rule-2 rule-3 rule-4]" rules=2`},
		{1, 3, `gone=1 names=[rule-0] rules=2`}, {0, 100, ""},
		{0, 1, `gone=99 `},
	} {
		log.Reset()
		if err := n.SetRules(file(row.from, row.to)); err != nil {
			t.Fatal(err)
		}
		got := log.String()
		if row.want == "" && got != "" || !strings.Contains(got, row.want) || strings.Count(got, "\n") > 1 ||
			strings.Contains(got, "rule-51") {
			t.Errorf("rules %d to %d: logged %q, want %q", row.from, row.to, got, row.want)
		}
	}
	log.Reset()
	if err := n.SetRules([]byte("rules: [{name: a")); err == nil || log.Len() > 0 {
		t.Errorf("a file that is refused: %v, logged %s", err, log.String())
	}
	// Warnings are bounded too.
	var many strings.Builder
	many.WriteString("version: 1\nrules:\n")
	for i := range 60 {
		fmt.Fprintf(&many, "  - {name: rule-%d, match: {method: M%d}, limits: [1/second]}\n", i, i)
	}
	if err := n.SetRules([]byte(many.String())); err != nil || strings.Count(log.String(), "\n") != 52 ||
		!strings.Contains(log.String(), "more=10") {
		t.Errorf("%v, logged %s", err, log.String())
	}
}

// A reload says which counters begin anew, and no others: who has used all of a limit is then allowed again, unless
// what was used is taken over.
func TestCountersThatBeginAnewAreLogged(t *testing.T) {
	const firstHit = "algorithm: fixed_window, align: first_hit"
	for _, c := range []struct {
		before, now string
		want        string // empty: no counter begins anew
		free        bool
	}{
		{"key: [user], limits: [1/hour]", "key: [ip], limits: [1/hour]",
			`the key of a rule has changed, so its counters begin anew: each caller has the whole limit once more" ` +
				`file=r.yaml rule=a before=[[user]] now=[[ip]] limits=[1/hour]`, true},
		{"key: [user], limits: [1/hour]", "keys: [[ip], [user]], limits: [1/hour]", "the key of a rule has changed", false},
		{"keys: [[ip], [user]], limits: [1/hour]", "key: [user], limits: [1/hour]", "", false},
		{"key: [user], limits: [1/hour]", "key: [user], on_unreachable: closed, limits: [1/hour]",
			"on_unreachable of a rule has changed to or from closed, so its counters begin anew", true},
		{"key: [user], on_unreachable: open, limits: [1/hour]", "key: [user], limits: [1/hour]", "", false},
		{"key: [user], limits: [1/hour]", "key: [user], limits: [1/minute]",
			`a limit of a rule has another name, so it counts anew: keep the name of the limit that it replaces" file=r.yaml ` +
				`rule=a limit=minute before=[1/hour] now=[1/minute]`, true},
		{"key: [user], limits: [1/hour]", "key: [user], limits: [{name: hour, limit: 1, window: 1m}]", "", false},
		{"key: [user], limits: [1/hour]", "key: [user], limits: [1/hour, 9/minute]", "", false},
		{"key: [user], limits: [1/hour]", "key: [user], limits: [2/hour]", "", true},
		{"key: [user], limits: [{name: n, limit: 1, window: 1h, " + firstHit + "}]",
			"key: [user], limits: [{name: n, limit: 1, window: 2h, " + firstHit + "}]",
			`windows from the first hit have another length: those that are open begin anew with what was used in them" ` +
				`file=r.yaml rule=a limit=n before=1h0m0s now=2h0m0s`, false},
		{"key: [user], limits: [{name: n, limit: 1, window: 1h, " + firstHit + "}]",
			"key: [user], limits: [{name: n, limit: 1, window: 2h, algorithm: fixed_window}]", "", false},
	} {
		// A rule and a quota count alike.
		for _, file := range []string{"rules: [{name: a, %s}]",
			"quotas: [{name: a, %s}]\nrules: [{name: b, quotas: [a]}]"} {
			if strings.HasPrefix(file, "quotas") && strings.Contains(c.before+c.now, "on_unreachable") {
				continue // a quota has that of its rules
			}
			var log bytes.Buffer
			n, err := weir.Open(t.Context(), weir.Config{Rules: fmt.Appendf(nil, file, c.before), RulesName: "r.yaml",
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
				Now:    func() time.Time { return time.Date(2026, 1, 1, 0, 0, 9, 0, time.UTC) }})
			if err != nil {
				t.Fatal(err)
			}
			r := weir.Request{User: "ada", IP: "192.0.2.1"}
			if d, err := n.Check(t.Context(), r); err != nil || !d.Allowed {
				t.Errorf("%s: %+v, %v", c.before, d, err)
			}
			log.Reset()
			if err := n.SetRules(fmt.Appendf(nil, file, c.now)); err != nil {
				t.Fatal(err)
			}
			if got := log.String(); !strings.Contains(got, c.want) ||
				strings.Contains(got, "anew") != (c.want != "") {
				t.Errorf(file+", and then %s:\nlogged %s, want %q", c.before, c.now, got, c.want)
			}
			if d, err := n.Check(t.Context(), r); err != nil || d.Allowed != c.free {
				t.Errorf(file+", and then %s: allowed %t, %v", c.before, c.now, d.Allowed, err)
			}
			n.Close()
		}
	}
}
