package archtest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A program that embeds a node of its own, in no cluster, compiles these packages of
// ours, and of others' these modules.
func TestWhatALocalEmbedderCompiles(t *testing.T) {
	const module = "github.com/weirlimit/weir"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}} {{.Module.Path}}{{end}}", module).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var ours, others []string
	for line := range strings.Lines(string(out)) {
		path, of, _ := strings.Cut(strings.TrimSpace(line), " ")
		if of == module {
			ours = append(ours, strings.TrimPrefix(strings.TrimPrefix(path, module), "/"))
		} else {
			others = append(others, of)
		}
	}
	slices.Sort(ours)
	slices.Sort(others)
	if want := []string{"", "internal/engine", "internal/spelling", "limiter", "limiter/table", "rules"}; !slices.Equal(ours, want) {
		t.Errorf("it compiles %q of ours, want %q", ours, want)
	}
	if got, want := slices.Compact(others), []string{"github.com/dchest/siphash", "github.com/goccy/go-yaml"}; !slices.Equal(got, want) {
		t.Errorf("it compiles %q of others, want %q", got, want)
	}
}
