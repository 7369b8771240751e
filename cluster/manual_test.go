package cluster_test

import (
	"os"
	"strings"
	"testing"
)

// docs/metrics.md lists each event that a member counts.
func TestManualListsEvents(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, found := strings.Cut(string(text), "\n| `weir_partition_events_total` |")
	if !found {
		t.Fatal("the manual has no row of events")
	}
	row, _, _ = strings.Cut(row, "\n")
	s, _ := open(t, memberConfig("node-1", hundred)).Cluster().Stats()
	if len(s.Events) == 0 {
		t.Error("premise: a member counts no events")
	}
	for event := range s.Events {
		if !strings.Contains(row, "`"+event+"`") {
			t.Errorf("the manual lacks the event %s", event)
		}
	}
}
