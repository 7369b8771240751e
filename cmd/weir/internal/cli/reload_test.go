package cli

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir/transport"
)

// The tool prints what a reload warns of, and why a file is refused.
func TestReloadCommand(t *testing.T) {
	var refused error
	site := transport.NewAdmin(transport.AdminOptions{Reload: func(context.Context) (transport.Reloaded, error) {
		return transport.Reloaded{RulesHash: "00aa", Rules: 2,
			Warnings: []transport.RuleWarning{{Line: 3, Column: 7, Text: "odd"}}}, refused
	}})
	h := httptest.NewServer(site.Handler())
	defer h.Close()
	addr := strings.TrimPrefix(h.URL, "http://")
	if status, out, errs := runAs(t, "reload", "--server", addr); status != ExitOK ||
		out != "2 rules in force, hash 00aa, 1 warning\n" || errs != "rules file:3:7: warning: odd\n" {
		t.Errorf("%d %q %q", status, out, errs)
	}
	if status, out, _ := runAs(t, "reload", "--json", "--server", addr); status != ExitOK ||
		!strings.Contains(out, `"text": "odd"`) {
		t.Errorf("%d %q", status, out)
	}
	refused = errors.New("rules.yaml:1:2: bad")
	if status, out, errs := runAs(t, "reload", "--server", addr); status != ExitFailed || out != "" ||
		!strings.Contains(errs, "the old rules stay in force: rules.yaml:1:2: bad") {
		t.Errorf("%d %q %q", status, out, errs)
	}
	if status, _, _ := runAs(t, "reload", "--server", "127.0.0.1:1"); status != ExitUsage {
		t.Error(status)
	}
}
