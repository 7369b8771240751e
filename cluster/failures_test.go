package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// A failure that occurs a thousand times a second is logged once, with its number.
func TestComplaintsAreSummed(t *testing.T) {
	var said strings.Builder
	m := &member{log: slog.New(slog.NewTextHandler(&said, nil))}
	r := &reports{member: m}
	for i := range 1000 {
		r.Problem("an update of a key cannot be kept", fmt.Errorf("no room for key %d", i))
	}
	r.Problem("a snapshot of a partition cannot be kept", errors.New("no room"))
	if said.Len() != 0 {
		t.Errorf("before the report it says %s", said.String())
	}
	r.failures.report(m.log)
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `error="no room for key 999" times=1000`) ||
		!strings.Contains(lines[1], "times=1") {
		t.Errorf("it says %s", said.String())
	}
	said.Reset()
	r.failures.report(m.log)
	if said.Len() != 0 {
		t.Errorf("with nothing new it says %s", said.String())
	}
}

// told is a writer that passes on what is written.
type told chan string

func (c told) Write(b []byte) (int, error) {
	select {
	case c <- string(b):
	default: // nobody reads any more
	}
	return len(b), nil
}

// A member logs with its reports what its core could not do.
func TestMembersSayWhatCannotBeDone(t *testing.T) {
	said := make(told, 100)
	n, err := weir.Open(t.Context(), weir.Config{
		Logger:  slog.New(slog.NewTextHandler(said, nil)),
		Cluster: &Config{Name: "node-1", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	n.Cluster().(*member).reports.Problem("an update of a key cannot be kept", errors.New("no room"))
	for line := range said { // the test's own deadline bounds it
		if strings.Contains(line, "an update of a key cannot be kept") {
			return
		}
	}
}
