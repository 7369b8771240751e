package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/envoy/files"
)

// TestConfigMap reads a directory as a ConfigMap is mounted, and follows the link that
// Kubernetes exchanges.
func TestConfigMap(t *testing.T) {
	dir := t.TempDir()
	write := func(version, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, version), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, version, "config.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(version, filepath.Join(dir, "..new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	write("..2026_1", "one")
	if err := os.Symlink(filepath.Join("..data", "config.yaml"), filepath.Join(dir, "config.yaml")); err != nil {
		t.Fatal(err)
	}
	first, err := files.Read(dir, false)
	if err != nil || len(first) != 1 || first[0].Name != "config.yaml" || string(first[0].Data) != "one" {
		t.Fatalf("%q, %v", first, err)
	}
	write("..2026_2", "two")
	second, err := files.Read(dir, false)
	if err != nil || len(second) != 1 || string(second[0].Data) != "two" || files.Hash(first) == files.Hash(second) {
		t.Errorf("%q, %v", second, err)
	}
}

func TestDirectoriesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := files.Read(dir, false); err == nil || !strings.Contains(err.Error(), "there is no file") {
		t.Error(err)
	}
	if _, err := files.Read(filepath.Join(dir, "none"), false); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
	file := filepath.Join(dir, "a.yaml")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Read(file, false); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Error(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "below", "b.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := files.Read(dir, false); err != nil || len(got) != 2 || got[1].Name != "below/b.yaml" {
		t.Errorf("%q, %v", got, err)
	}
}

// Names that begin with one dot are read, as the original reads them, unless they are to be left out.
func TestNamesThatBeginWithADot(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"config.yaml", ".config.yaml", ".extra/more.yaml", "..data/config.yaml", "..config.yaml",
		"below/..2026/x.yaml"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for ignore, want := range map[bool]string{false: ".config.yaml .extra/more.yaml config.yaml", true: "config.yaml"} {
		found, err := files.Read(dir, ignore)
		var names []string
		for _, f := range found {
			names = append(names, f.Name)
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("ignore %v: %q, %v", ignore, got, err)
		}
	}
}
