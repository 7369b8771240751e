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
	good, bad, twice := t.TempDir(), t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		filepath.Join(good,
			"a.yaml"): "domain: a\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 2}}]",
		filepath.Join(good, "b.yaml"):  "domain: b",
		filepath.Join(bad, "a.yaml"):   "domain: a\ndescriptors: [{value: x}]",
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
