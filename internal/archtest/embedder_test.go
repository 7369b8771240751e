package archtest

import (
	"io/fs"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the module, and its root package.
const root = "github.com/weirlimit/weir"

// needs returns what packages import, directly or not: packages of ours, by their paths,
// and modules of others. More arguments are for go list.
func needs(t *testing.T, args ...string) (ours, others []string) {
	t.Helper()
	list := append([]string{"list", "-deps", "-f", "{{if .Module}}{{.ImportPath}} {{.Module.Path}}{{end}}"}, args...)
	out, err := exec.CommandContext(t.Context(), "go", list...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if path, of := words[0], words[len(words)-1]; of == root {
			ours = append(ours, path)
		} else {
			others = append(others, of)
		}
	}
	slices.Sort(ours)
	slices.Sort(others)
	return ours, slices.Compact(others)
}

// A program that embeds a node of its own, in no cluster, compiles these packages of
// ours, and of others' these modules. Their tests need no more modules: `go mod tidy`
// downloads those, too, and enters them in the program's go.sum.
func TestWhatALocalEmbedderCompiles(t *testing.T) {
	ours, others := needs(t, root)
	packages := []string{
		root, root + "/internal/address", root + "/internal/engine", root + "/internal/receipt",
		root + "/internal/recent",
		root + "/internal/slices",
		root + "/internal/spelling",
		root + "/internal/waiting", root + "/internal/yamltree", root + "/limiter",
		root + "/limiter/arith", root + "/limiter/calendar", root + "/limiter/table", root + "/rules",
	}
	if !slices.Equal(ours, packages) {
		t.Errorf("it compiles %q of ours, want %q", ours, packages)
	}
	modules := []string{"github.com/dchest/siphash", "github.com/goccy/go-yaml"}
	if !slices.Equal(others, modules) {
		t.Errorf("it compiles %q of others, want %q", others, modules)
	}
	if _, others := needs(t, append([]string{"-test"}, packages...)...); !slices.Equal(others, modules) {
		t.Errorf("the tests of these packages need %q of others, want %q", others, modules)
	}
}

// A program that embeds a member of a cluster with all that a node serves, or a client, compiles
// nothing of OpenTelemetry, and nothing of Kubernetes.
func TestWhatAMemberDoesNotCompile(t *testing.T) {
	_, others := needs(t, root+"/cluster", root+"/serve", root+"/client", root+"/redisstore", root+"/middleware/...",
		root+"/cmd/weir")
	for _, module := range others {
		if strings.HasPrefix(module, "go.opentelemetry.io/") || strings.HasPrefix(module, "k8s.io/") {
			t.Errorf("it compiles %s", module)
		}
	}
	if len(others) < 5 {
		t.Errorf("it compiles only %q", others)
	}
}

// `go install github.com/weirlimit/weir/cmd/weir@latest` works, which refuses a module that replaces
// or excludes others.
func TestCanBeInstalledByGo(t *testing.T) {
	text, err := fs.ReadFile(repository(), "go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`(?m)^(replace|exclude)\b.*$`).FindString(string(text)); found != "" {
		t.Errorf("go.mod has %q", found)
	}
}
