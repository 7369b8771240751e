package cluster_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// A member logs its state when that changes, and not with each reload, which it tells the
// others in the same way.
func TestStateIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer // read when the node is closed
	c := memberConfig("node-1", hundred)
	part(c).Logger = slog.New(slog.NewTextHandler(&log, nil))
	n := open(t, c)
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if err := n.SetRules([]byte(strings.Replace(hundred, "limit: 100", fmt.Sprint("limit: ", 101+i), 1))); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(log.String(), "this node is active"); got != 1 {
		t.Errorf("it says %d times that it is active:\n%s", got, &log)
	}
}
