package bench

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
)

// The scripts measure the nodes that they started, and nothing else that answers at
// their ports.
func TestNodesAreOurs(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer other.Close()
	at := other.Listener.Addr().String()
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	run := func(script string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "bash", "-euc", ". ./nodes.sh; "+script).CombinedOutput()
		return string(out), err
	}
	// The process of which another's answer is taken for has ended and is waited for.
	ended := "false & p=$!; wait $p || true; ready $p " + at + " /dev/null"
	for script, want := range map[string]string{"free " + port: "already", ended: "has ended"} {
		if out, err := run(script); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %s", script, err, out)
		}
	}
	if out, err := run("ready $$ " + at + " /dev/null"); err != nil {
		t.Errorf("%v, %s", err, out)
	}
	if out, err := run("free 1"); err != nil {
		t.Errorf("%v, %s", err, out)
	}
}
