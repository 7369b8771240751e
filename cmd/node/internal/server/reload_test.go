package server

import (
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/forward"
)

// reload asks the node to reload.
func reload(t *testing.T, s *Server) (status int, body string) {
	t.Helper()
	return answerTo(t, http.MethodPost, "http://"+s.Addresses().Admin+"/v1/reload", "")
}

// The answer of a reload has what is in force and what the file is warned of, or all that
// is wrong with it.
func TestReloadAnswers(t *testing.T) {
	const open = "version: 1\nrules:\n  - {name: towns, match: {path: \"^/towns\"}, limits: [5/second]}\n"
	c, _ := plain()
	c.RulesFile = file(t, townRules)
	s := start(t, c)
	if status, body := reload(t, s); status != http.StatusOK ||
		!strings.Contains(body, `"rules_hash":"`+s.RulesHash()+`"`) || !strings.Contains(body, `"warnings":[]`) {
		t.Errorf("%d %s", status, body)
	}
	replace(t, c.RulesFile, open)
	status, body := reload(t, s)
	if status != http.StatusOK || !strings.Contains(body, `"rules_hash":"`+s.RulesHash()+
		`","rules":1,"warnings":[{"line":3,"column":33,"rule":"towns","text":"rule \"towns\" has no key`) ||
		!strings.Contains(body, `"instead":"key: [rule, user]"`) {
		t.Errorf("%d %s", status, body)
	}
	hash := s.RulesHash()
	replace(t, c.RulesFile, "version: 1\nrules:\n  - {name: a}\n  - {name: b}\n")
	status, body = reload(t, s)
	if status != http.StatusBadRequest || !strings.Contains(body, "the old rules stay in force: ") ||
		!strings.Contains(body, ":3:5: ") || !strings.Contains(body, ":4:5: ") || s.RulesHash() != hash {
		t.Errorf("%d %s", status, body)
	}
	if err := os.Remove(c.RulesFile); err != nil {
		t.Fatal(err)
	}
	if status, body := reload(t, s); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, "cannot be opened") || s.RulesHash() != hash {
		t.Errorf("%d %s", status, body)
	}
}

// With StrictRules a file with warnings is refused, and the answer has them.
func TestReloadIsStrict(t *testing.T) {
	c, _ := plain()
	c.RulesFile, c.StrictRules = file(t, townRules), true
	s := start(t, c)
	hash := s.RulesHash()
	replace(t, c.RulesFile, "version: 1\nrules:\n  - {name: towns, match: {path: \"^/towns\"}, limits: [5/second]}\n")
	status, body := reload(t, s)
	if status != http.StatusBadRequest || !strings.Contains(body, `:3:33: rule \"towns\" has no key`) ||
		s.RulesHash() != hash {
		t.Errorf("%d %s", status, body)
	}
}

// A node without a rules file says so.
func TestReloadOfNothing(t *testing.T) {
	c, _ := plain()
	if status, body := reload(t, start(t, c)); status != http.StatusNotFound ||
		!strings.Contains(body, "no rules file was named") {
		t.Errorf("%d %s", status, body)
	}
}

// A rule on concurrency at a node whose clients may not settle is warned of, at the start and at each reload.
func TestSlotsWithoutSettlingAreWarnedOf(t *testing.T) {
	const slots = "version: 1\nrules:\n  - {name: slots, key: [user], hold: 30s, limits: [{limit: 10, algorithm: " +
		"concurrency}]}\n"
	const text = "clients may not settle them"
	for _, allowed := range []bool{false, true} {
		c, log := plain()
		c.AllowRefunds, c.RulesFile = allowed, file(t, slots)
		s := start(t, c)
		want := map[bool]int{false: 1}[allowed]
		if n := strings.Count(log.String(), text); n != want {
			t.Errorf("allowed %t: %d times at the start: %s", allowed, n, log)
		}
		replace(t, c.RulesFile, slots+"  - {name: all, match: {path: ^/a}, key: [user], limits: [5/second]}\n")
		reload(t, s)
		if n := strings.Count(log.String(), text); n != 2*want {
			t.Errorf("allowed %t: %d times with the reload: %s", allowed, n, log)
		}
	}
}

// A rule on concurrency is warned of at a node that web proxies ask, since these never say when a request ends.
func TestSlotsOfProxiesAreWarnedOf(t *testing.T) {
	const slots = "version: 1\nrules:\n  - {name: slots, key: [user], hold: 30s, limits: [{limit: 10, algorithm: " +
		"concurrency}]}\n"
	for id, text := range map[string]string{"": "/v1/auth refuses each",
		"X-Request-ID": "each that /v1/auth allows takes its slot"} {
		for rules, want := range map[string]int{slots: 1,
			"version: 1\nrules:\n  - {name: towns, key: [ip], limits: [5/second]}\n": 0} {
			c, log := plain()
			c.AllowRefunds, c.Rules = true, []byte(rules)
			c.Auth = &forward.Options{Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, ID: id}
			start(t, c)
			if got := strings.Count(log.String(), text); got != want ||
				strings.Contains(log.String(), "clients may not settle") {
				t.Errorf("with the id field %q: %d warnings, want %d: %s", id, got, want, log)
			}
		}
	}
}
