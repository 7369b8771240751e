package cli

import (
	"strings"
	"testing"
	"time"
)

// A reset says how many counters it deleted, and if there was none.
func TestReset(t *testing.T) {
	at, err := time.Parse(time.RFC3339, noon)
	if err != nil {
		t.Fatal(err)
	}
	node := frozen(t, func() time.Time { return at })
	overGRPC, overHTTP := serveNode(t, node)
	for i, step := range []struct {
		args, server string
		status       int
		want         string
	}{
		{"check /towns --user ada --cost 2", overHTTP, 0, "0 of 2 left"},
		{"reset /towns --user eve", overHTTP, 3, "there is no such counter: nothing was deleted\n"},
		{"reset /towns --user ada", overHTTP, 0, "2 counters deleted\n"},
		{"check /towns --user ada --cost 0", overHTTP, 0, "2 of 2 left"},
		{"reset /towns --user ada --json", overHTTP, 3, `"counters":`},
		{"reset /towns --user ada --tenant bank", overHTTP, 1, "this node has no permissions file, and so no tenants"},
		{"check /towns --user ada --tenant bank", overHTTP, 1, "this node has no permissions file, and so no tenants"},
		{"reset /towns --user ada", overGRPC, 2, "give --server http://HOST:PORT"},
		{"check /towns --user ada --tenant bank", overGRPC, 2, "--tenant is asked over HTTP"},
		{"reset", overHTTP, 2, "no path is given"},
	} {
		got := person{}.run(t, append(strings.Fields(step.args), "--server", step.server)...)
		if got.status != step.status || !strings.Contains(got.out+got.err, step.want) {
			t.Errorf("%d: weir %s: %d %s%s, want %d %s", i, step.args, got.status, got.out, got.err, step.status, step.want)
		}
	}
}
