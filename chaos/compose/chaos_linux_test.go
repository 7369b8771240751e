package compose

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/scenario"
)

// A few of the faults of `go run ./chaos -on docker`, each once, on the image that
// was built: no promise is broken, and the faults show in its checks.
func (e *engine) testChaos(t *testing.T) {
	g := fleet.Containers{Engine: e.Engine, Image: e.tag(), Root: e.tree(t),
		Project: fmt.Sprintf("weirtest%dchaos", os.Getpid())}
	c := fleet.Config{Seed: 1, Ground: g, Dir: t.TempDir()}
	shows := map[string]func(*history.Op) bool{
		"kill":  func(o *history.Op) bool { return o.Outcome == history.Refused || o.Outcome == history.Unknown },
		"pause": func(o *history.Op) bool { return o.Outcome == history.Unknown },
		"split": (*history.Op).ByPolicy,
	}
	all := scenario.All()
	var f *fleet.Fleet
	for _, name := range []string{"kill", "pause", "split"} {
		s := all[slices.IndexFunc(all, func(s scenario.Scenario) bool { return s.Name == name })]
		if why := g.Lacks(s.Needs); why != "" {
			if os.Getenv("CI") != "" {
				t.Fatalf("CI must be able to try %s: %s", name, why)
			}
			aloud("\n*** %s is NOT tried on containers: %s ***\n\n", name, why)
			continue
		}
		if f == nil {
			var err error
			if f, err = s.Fleet(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			defer e.closed(t, f, g.Project, c.Dir)
		}
		r, err := s.Try(t.Context(), f, 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %+v", r.What(), r.Figures)
		for _, v := range r.Violations {
			t.Errorf("%s: %v", r.What(), v)
		}
		fault := r.Faults[0]
		during := 0
		for i := range r.Ops {
			if o := &r.Ops[i]; slices.Contains(fault.Nodes, o.Node) && o.Call > fault.At && o.Call < fault.Until &&
				shows[name](o) {
				during++
			}
		}
		if during < 10 || r.Figures.Allowed < 100 || r.Figures.Denied == 0 {
			t.Errorf("%s: %d checks show it, of %+v: the fault did not happen, or too little was decided to tell", r.What(),
				during, r.Figures)
		}
	}
}

// closed ends a fleet, of which nothing is left.
func (e *engine) closed(t *testing.T, f *fleet.Fleet, project, dir string) {
	t.Helper()
	if t.Failed() {
		t.Log(f.Keep(context.Background()))
		logs, _ := filepath.Glob(filepath.Join(dir, "*.log")) // the pattern is right
		for _, name := range logs {
			text, err := os.ReadFile(name)
			t.Log(name, err, string(text[max(0, len(text)-8000):]))
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	for _, what := range [][]string{{"ps", "-aq"}, {"network", "ls", "-q"}, {"volume", "ls", "-q"}} {
		if left := e.run(t, append(what, "--filter", "label=com.docker.compose.project="+
			project)...); strings.TrimSpace(left) != "" {
			t.Errorf("docker %v still has %q of the project", what, left)
		}
	}
}
