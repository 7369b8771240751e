//go:build unix

package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// python is Debian's, which has the packages that scripts/deps.sh installs. Another one may come first in the path.
const python = "/usr/bin/python3"

// inPython runs a command of Python in examples/python, and returns what it wrote.
func inPython(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, append([]string{"-B"}, args...)...)
	cmd.Dir, cmd.Env = "../../examples/python", append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// The package of examples/python: its parts, its clients against scripted nodes, and then both, with its middlewares
// under uvicorn and werkzeug, against three nodes, of which one is killed. Its own tests say how.
func TestPythonPackage(t *testing.T) {
	all := places(t, 3, `version: 1
rules:
  - {name: limited, match: {path: "^/limited/[^/]+$"}, key: [path, ip], limits: [{limit: 2, window: 1d}]}
  - {name: users, match: {path: "^/users/"}, key: [path, user], limits: [{limit: 1, window: 1d}]}
  - {name: tokens, match: {path: "^/tokens/"}, key: [path, user], limits: [{limit: 100, window: 1d}]}
  - {name: big, match: {path: "^/big/"}, key: [path, ip], limits: [{limit: 20, window: 1d}]}
  - {name: closed, match: {path: "^/closed/?$"}, deny: {status: 451, reason: not here}}
`, "--auth-proxy", "127.0.0.1", "--auth-user-header", "X-Weir-User", "--allow-refunds", "--allow-reset")
	var addrs []string
	for _, s := range all {
		s.start(t)
		addrs = append(addrs, s.http)
	}
	settle(t, all)
	out := inPython(t, []string{
		"WEIR_NODES=" + strings.Join(addrs, ","), "WEIR_VICTIM=" + strconv.Itoa(all[0].cmd.Process.Pid),
	}, "-m", "unittest", "-v", "tests.test_parts", "tests.test_sockets", "tests.test_nodes")
	if !strings.Contains(out, "Ran 73 tests") {
		t.Errorf("not all tests ran:\n%s", out)
	}
}

// Its types are what it says.
func TestPythonTypes(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-long runs it")
	}
	inPython(t, nil, "-m", "mypy", "--strict", "--cache-dir=/dev/null", "--python-executable="+python, "-p", "weirlimit")
}
