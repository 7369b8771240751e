package metrics

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// docs/metrics.md lists exactly the metrics that exist, with their labels and states, and the
// sources of decisions.
func TestManual(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	m, r := open(t, Options{
		Table: func() TableStats { return TableStats{Shares: []RuleShare{{Rule: "a"}}} },
		Cluster: func() ClusterStats {
			return ClusterStats{Events: map[string]uint64{"takeover": 1},
				Store: &StoreStats{SavedAt: time.Unix(1, 0)}}
		},
		Validities: func() map[string]Validity { return map[string]Validity{"client": {Expires: time.Now()}} },
		Evicted:    func() uint64 { return 1 },
	})
	fill(m)
	for _, count := range []func(string, bool){m.shadowed, m.overridden, m.lent, m.unzoned, m.unlisted} {
		count("a", true)
	}
	m.repeated("a")
	m.settled("a", false, limiter.AmendDone)
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		names := labels(f.GetMetric()[0])
		row := "\n| `" + f.GetName() + "` | "
		_, rest, ok := strings.Cut(string(manual), row)
		cell, _, _ := strings.Cut(rest, "|")
		if !ok || strings.Count(cell, "`") != 2*len(names) {
			t.Errorf("the manual lacks%swith %v", row, names)
		}
		line, _, _ := strings.Cut(rest, "\n")
		for name := range names {
			if !strings.Contains(cell, "`"+name+"`") {
				t.Errorf("the manual lacks the label %s of %s", name, f.GetName())
			}
			for _, m := range f.GetMetric() {
				if v := labels(m)[name]; name == "state" && !strings.Contains(line, "`"+v+"`") {
					t.Errorf("the manual lacks the state %s of %s", v, f.GetName())
				}
			}
		}
	}
	_, sources, _ := strings.Cut(string(manual), "\n### Sources\n")
	sources, _, _ = strings.Cut(sources, "\n## ")
	for s := limiter.SourceNone; s.String() != "unknown"; s++ {
		if !strings.Contains(sources, "`"+s.String()+"`") {
			t.Errorf("the manual lacks the source %s", s)
		}
	}
	if got := strings.Count(string(manual), "\n| `weir_"); got != len(all) {
		t.Errorf("the manual has %d metrics, there are %d", got, len(all))
	}
}
