package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The middlewares of examples/python limit by a node. Their own tests say how.
func TestPythonMiddlewares(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-long runs it")
	}
	rules := write(t, `version: 1
rules:
  - {name: limited, match: {path: "^/limited/[^/]+$"}, key: [path, ip], limits: [{limit: 2, window: 1d}]}
`)
	_, addr, _ := serve(t, "--rules", rules, "--auth-proxy", "127.0.0.1", "--auth-user-header", "X-Weir-User")
	cmd := exec.CommandContext(t.Context(), "python3", "-B", "-m", "unittest", "-v", "test_weir")
	cmd.Dir, cmd.Env = "../../examples/python", append(os.Environ(), "WEIR_NODE="+addr)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Ran 6 tests") {
		t.Errorf("%v\n%s", err, out)
	}
}
