package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// "weir envoy check" accepts what a node would serve, and says what is wrong with the rest.
func TestEnvoyCheck(t *testing.T) {
	good, bad, twice, many := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		filepath.Join(good,
			"a.yaml"): "domain: a\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 2}}]",
		filepath.Join(good, "b.yaml"): "domain: b",
		filepath.Join(bad, "a.yaml"):  "domain: a\ndescriptors: [{value: x}]",
		filepath.Join(many, "a.yaml"): "domain: a\ndescriptors: [{key: user, rate_limit: {unit: second, " +
			"requests_per_unit: 500}}]",
		filepath.Join(twice, "a.yaml"): "domain: a",
		filepath.Join(twice, "b.yaml"): "domain: a",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"check", good}, ExitOK, "all rate limit configs ok: 2 files, 2 domains\n"},
		{[]string{"check", "--quotas", "1", good}, ExitOK, "warning: a.user cannot be assigned to 1 Envoy as quotas: it " +
			"admits less than one request a second\nall rate limit configs ok"},
		{[]string{"check", "--quotas", "50", many}, ExitOK, "warning: a.user cannot be assigned to 50 Envoys as quotas: it " +
			"does not admit 20 requests at once and one a second for each Envoy\nall"},
		{[]string{"check", "--quotas", "3", "--algorithm", "token_bucket", many}, ExitOK, "all"},
		{[]string{"check", "--algorithm", "x", good}, ExitUsage, `--algorithm "x" is not valid: give one of`},
		{[]string{"check", bad}, ExitFailed, "error loading rate limit configs: a.yaml: descriptor has empty key"},
		{[]string{"check", twice}, ExitFailed, "b.yaml: duplicate domain 'a' in config file"},
		{[]string{"check", "--merge-domains", twice}, ExitOK, "2 files, 1 domain\n"},
		{[]string{"check", filepath.Join(good, "none")}, ExitFailed, "no such file or directory"},
		{[]string{"check"}, ExitUsage, "name one directory"},
		{[]string{"chek", good}, ExitUsage, `there is no command "envoy chek": did you mean "check"?`},
		{nil, ExitOK, "weir envoy [command]"},
	} {
		var out, errs bytes.Buffer
		status := Run(context.Background(), append([]string{"envoy"}, x.args...),
			Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		if said := out.String() + errs.String(); status != x.status || !strings.Contains(said, x.says) {
			t.Errorf("%v: status %d: %s", x.args, status, said)
		}
	}
}
